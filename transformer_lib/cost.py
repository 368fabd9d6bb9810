# Generated from chapters/14_cost.md and 1 more: edit it there and `make export`, or here and `make sync`.

"""What a Transformer costs, by formula: parameters, operations and bytes."""

from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from transformer_lib.model import Transformer, TransformerConfig


def count_parameters(config: TransformerConfig) -> int:
    """The number of parameters of `Transformer(config)`; a matrix that is used twice counts once."""
    d, d_ff = config.d_model, config.d_ff
    attention, network, norm = 4 * (d * d + d), 2 * d * d_ff + d_ff + d, 2 * d
    encoder = config.num_encoder_layers * (attention + network + 2 * norm)
    decoder = config.num_decoder_layers * (2 * attention + network + 3 * norm)
    last_norms = 2 * norm if config.norm_first else 0
    source, target = config.source_vocab_size * d, config.target_vocab_size * d
    tables = {"none": source + 2 * target, "target": source + target, "all": target}[config.tie_embeddings]
    return encoder + decoder + last_norms + tables


class Product(NamedTuple):
    """`times` products of a (rows, inner) matrix and an (inner, columns) matrix."""

    times: int
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.times * self.rows * self.inner * self.columns

    @property
    def numbers(self) -> int:
        """Numbers read and written, if each is moved once."""
        return self.times * (self.rows * self.inner + self.inner * self.columns + self.rows * self.columns)


def matrix_products(
    config: TransformerConfig, source_length: int, target_length: int, *, batch: int = 1, cached: bool = False
) -> dict[str, list[Product]]:
    """Every matrix product of a forward pass, by part of the model.

    Args:
        config: the model.
        source_length: source tokens per sentence; no padding.
        target_length: target tokens per sentence.
        batch: sentences.
        cached: only what a step of decoding computes: the last target token alone, while the keys and values of
            the others and of the memory are at hand.
    """
    d, d_k, d_ff = config.d_model, config.d_model // config.num_heads, config.d_ff
    heads, n, m, new = batch * config.num_heads, source_length, target_length, 1 if cached else target_length
    encoders, decoders = config.num_encoder_layers, config.num_decoder_layers

    def own_projections(layers: int, rows: int) -> list[Product]:
        return [Product(layers, rows, d, 3 * d), Product(layers, rows, d, d)]

    def scores(layers: int, queries: int, keys: int) -> list[Product]:
        return [Product(layers * heads, queries, d_k, keys), Product(layers * heads, queries, keys, d_k)]

    def network(layers: int, rows: int) -> list[Product]:
        return [Product(layers, rows, d, d_ff), Product(layers, rows, d_ff, d)]

    encoder = {
        "encoder projections": own_projections(encoders, batch * n),
        "encoder scores": scores(encoders, n, n),
        "encoder network": network(encoders, batch * n),
        "memory keys, values": [Product(decoders, batch * n, d, 2 * d)],
    }
    decoder = {
        "decoder projections": own_projections(decoders, batch * new),
        "decoder scores": scores(decoders, new, m),
        "memory queries, output": [Product(2 * decoders, batch * new, d, d)],
        "memory scores": scores(decoders, new, n),
        "decoder network": network(decoders, batch * new),
        "logits": [Product(1, batch * new, d, config.target_vocab_size)],
    }
    return decoder if cached else encoder | decoder


def _flops(parts: dict[str, list[Product]]) -> int:
    return sum(product.flops for products in parts.values() for product in products)


def forward_flops(config: TransformerConfig, source_length: int, target_length: int, *, batch: int = 1) -> int:
    """FLOPs of the matrix products of `Transformer.forward`; the arguments are those of `matrix_products`."""
    return _flops(matrix_products(config, source_length, target_length, batch=batch))


def training_flops(
    config: TransformerConfig, source_length: int, target_length: int, *,
    batch: int = 1, fused: bool = False, recompute: bool = False,
) -> int:  # fmt: skip
    """FLOPs of the matrix products of a forward and a backward pass; see `matrix_products` for the first arguments.

    The default is the common convention, three forward passes: the work that a model asks for, however it is run.
    `fused` adds the scores that the fused kernel computes a second time (Dao et al. 2022, section 3.1), `recompute` a
    second forward pass of every layer (activation checkpointing, Chen et al. 2016). In a pre-norm model without
    dropout, PyTorch's own checkpointing stops before a layer's last product, counted here.
    """
    parts = matrix_products(config, source_length, target_length, batch=batch)
    total = 3 * _flops(parts)
    if fused:
        total += sum(parts[name][0].flops for name in parts if name.endswith("scores"))
    if recompute:
        total += _flops(parts) - parts["logits"][0].flops
    return total


def decoding_flops(
    config: TransformerConfig, source_length: int, target_length: int, *, batch: int = 1, cached: bool = True
) -> int:
    """FLOPs of the matrix products of greedy decoding: encode once, then one step per token, logits of the newest only.

    Without a cache (`cached=False`) each step processes all earlier positions and the memory's keys and values anew.
    The rest as in `matrix_products`.

    Raises:
        ValueError: a length is below 1.
    """
    if min(source_length, target_length) < 1:
        raise ValueError(f"expected lengths of at least 1; got {source_length} and {target_length}")
    newest = {"logits": [Product(1, batch, config.d_model, config.target_vocab_size)]}
    total = 0
    for length in range(1, target_length + 1):
        parts = matrix_products(config, source_length, length, batch=batch, cached=cached and length > 1) | newest
        total += _flops({name: parts[name] for name in parts if length == 1 or not name.startswith("encoder")})
    return total


def attention_memory(
    length: int, d_model: int, num_heads: int, *,
    batch: int = 1, fused: bool = True, mask_entries: int = 0, dropout: bool = False, itemsize: int = 4,
) -> int:  # fmt: skip
    """Bytes that one self-attention of `MultiHeadAttention` keeps for its backward pass, parameters left out.

    Args:
        length: tokens per sentence.
        d_model: width of the tokens.
        num_heads: heads.
        batch: sentences.
        fused: the fused kernel of the CPU, or the readable formula, which keeps the weights.
        mask_entries: size of the mask: 0 without one, batch × length for a key-only mask, batch × length² for pairs.
        dropout: attention dropout is on.
        itemsize: bytes per number; 4 for float32, 2 for half precision.

    Raises:
        ValueError: `fused` comes with `dropout`, which the fused kernel of the CPU refuses.
    """
    if fused and dropout:
        raise ValueError("the fused kernel of the CPU has no attention dropout: ask for fused=False")
    tokens = 5 * batch * length * d_model * itemsize  # the input, queries, keys, values, heads
    if fused:  # the mask becomes numbers; one number, at least a float32, for each query and head
        return tokens + mask_entries * itemsize + max(4, itemsize) * batch * num_heads * length
    copies = 3 if dropout else 2 if mask_entries else 1
    return tokens + copies * batch * num_heads * length**2 * itemsize + 2 * mask_entries


class Operation(NamedTuple):
    """An operation that PyTorch ran: its FLOPs by PyTorch's counter, and the bytes of its tensors, 0 for a view."""

    name: str
    flops: int
    bytes: int


class Operations(TorchDispatchMode):
    """Notes every operation inside the block, in `rows`."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Operation] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: tuple = (), options: dict | None = None) -> Any:
        """Run an operation, and note it."""
        options = options or {}
        result, name = function(*arguments, **options), function.overloadpacket.__name__
        if function.namespace == "aten":
            is_view = function.is_view or name in ("_unsafe_view", "detach")
            tensors = [] if is_view else [x for x in tree_leaves((arguments, options, result)) if isinstance(x, Tensor)]
            moved = sum(min(x.numel() * x.element_size(), x.untyped_storage().nbytes()) for x in tensors)
            formula = flop_registry.get(function.overloadpacket)
            self.rows.append(Operation(name, formula(*arguments, **options, out_val=result) if formula else 0, moved))
        return result

    @property
    def moving(self) -> list[Operation]:
        """All operations but the views, which move no bytes."""
        return [operation for operation in self.rows if operation.bytes]


def training_operations(
    config: TransformerConfig, source_length: int, target_length: int, *, batch: int = 1
) -> list[Operation]:
    """The operations of a training step in 16-bit mixed precision, views left out, as a GPU would run them, nearly.

    Nothing is computed: tensors have shapes only. PyTorch's counter has no FLOPs for the CPU's fused attention.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode  # here, so that importing the library stays fast

    def dropout(x: Tensor, p: float, training: bool, inplace: bool) -> Tensor:
        return torch.native_dropout(x, p, training)[0]  # one operation, where the CPU takes four

    with FakeTensorMode(), patch("torch.nn.functional.dropout", dropout):
        model = Transformer(config)
        source, target = (torch.ones(batch, n, dtype=torch.long) for n in (source_length, target_length))
        with Operations() as step:
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(source, target, is_causal=True).flatten(0, 1)  # (batch · target length, vocabulary)
                loss = F.cross_entropy(logits, target.flatten(), label_smoothing=0.1)
            loss.backward()
    return [*step.moving, Operation("clipping and AdamW", 0, 40 * count_parameters(config))]


class Gpu(NamedTuple):
    """What its manufacturer states: FLOPs a second of dense products in 16 bits, bytes a second of its memory."""

    flops: float
    bandwidth: float


GPUS = {"T4": Gpu(65e12, 320e9), "A100": Gpu(312e12, 1555e9), "H100": Gpu(989e12, 3350e9), "B200": Gpu(2250e12, 8000e9)}
UTILISATION, START = 0.3, 20e-6  # assumed: the share of the peak that products reach; seconds to start an operation


def predicted_seconds(operations: list[Operation], gpu: Gpu) -> float:
    """How long a GPU is busy with operations, by the roofline, or a program with starting them: the longer of the two.

    Both go on at once. A product is assumed to reach the `UTILISATION` of the peak, and each start to take `START`.
    """
    work = sum(max(o.flops / (UTILISATION * gpu.flops), o.bytes / gpu.bandwidth) for o in operations)
    return max(work, START * len(operations))
