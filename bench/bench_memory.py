"""What one attention keeps for its backward pass, by length: on the fused path, and by the readable formula."""

import pytest
import torch
from side_by_side import MEMORY

from transformer_lib.multi_head import MultiHeadAttention

PATHS = {
    "fused kernel, causal": {"is_causal": True},
    "fused kernel, key-only mask": {},
    "readable formula": {"need_weights": True},
}


def kept_bytes(length: int, mask: torch.Tensor | None = None, **arguments) -> int:
    """The bytes of all that autograd keeps, each storage once, parameters apart."""
    layer, kept = MultiHeadAttention(128, 4), {}
    own = {parameter.untyped_storage().data_ptr() for parameter in layer.parameters()}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor  # held, so that no other gets its place
        return tensor

    x = torch.randn(1, length, 128, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        layer(x, x, x, mask=mask, **arguments)
    return sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in own)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("length", [512, 1024, 2048, 4096, 8192])
def test_memory(path, length):
    if path == "readable formula" and length > 4096:
        pytest.skip("the readable formula would need gigabytes")
    torch.manual_seed(0)
    mask = (torch.arange(length) < length - 10)[None, None, None] if path.endswith("mask") else None
    MEMORY.append({"system": path, "length": length, "bytes": kept_bytes(length, mask, **PATHS[path])})
