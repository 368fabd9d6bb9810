"""The shapes in the signatures: all of them are there, and in this test run every call is held to them."""

import inspect
from importlib import import_module
from typing import get_args, get_origin

import pytest
import torch
from jaxtyping import TypeCheckError
from reference import padded_batch, small_model
from torch import Tensor
from typecheck import CORE

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.masks import padding_mask
from transformer_lib.multi_head import MultiHeadAttention


def functions(module):
    """Every function and method that a module defines."""
    for thing in vars(module).values():
        if getattr(thing, "__module__", None) == module.__name__:
            if inspect.isclass(thing):
                yield from (method for method in vars(thing).values() if inspect.isfunction(method))
            elif inspect.isfunction(thing):
                yield thing


@pytest.mark.parametrize("module", CORE)
def test_every_tensor_says_its_shape(module):
    """Except what `check_mask` is handed: it is there to refuse any other shape in words of its own."""
    seen = 0
    for function in functions(import_module(f"transformer_lib.{module}")):
        hints = inspect.get_annotations(inspect.unwrap(function), eval_str=True)
        for name, hint in hints.items():
            bare = hint in (Tensor, Tensor | None) or (get_origin(hint) is tuple and Tensor in get_args(hint))
            assert not bare or function.__name__ == "check_mask", f"{function.__qualname__}: {name}"
            seen += "Tensor" in str(hint)
    assert seen >= 3 or module == "variants.modern_decoder", "it only puts together what others define"


def memory_of_one_sentence():
    model = small_model()
    return model.decode(padded_batch((3, 6)), model.encode(padded_batch((7,))))


@pytest.mark.parametrize("call", [
    lambda: scaled_dot_product_attention(torch.randn(2, 4, 3), torch.randn(5, 3), torch.randn(5, 2)),  # no batch
    lambda: MultiHeadAttention(6, 2)(torch.randn(2, 4, 6), torch.randn(1, 5, 6), torch.randn(1, 5, 6)),
    lambda: padding_mask(torch.ones(2, 3, dtype=torch.long), torch.tensor([0, 1, 2])), memory_of_one_sentence,
])  # fmt: skip
def test_what_torch_would_let_pass_is_found(call, monkeypatch):
    """Each of these runs to its end and answers something; only the signature says that it is wrong."""
    with pytest.raises(TypeCheckError):
        call()
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    call()
