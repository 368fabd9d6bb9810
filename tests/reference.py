"""Helpers of the tests: small models and batches, and ways to compare and to disturb."""

import pytest
import torch
from equivalence import PAD, randomise
from torch import nn

from transformer_lib.model import Transformer, TransformerConfig

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
both_orders = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])


def equal(got, expected, atol=1e-13):
    """Assert equality. float64 sums of numbers up to about 100, taken in another order, differ by about 2e-14."""
    torch.testing.assert_close(got, expected, rtol=0, atol=atol)


def gradients(output, tensors):
    """The gradients of a random weighted sum of the output."""
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(output.dtype)
    return torch.autograd.grad(output, tensors, direction, materialize_grads=True)


def tokens(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def random_mask(*shape):
    """Half of the entries; every query may attend to key 0."""
    mask = torch.rand(*shape) < 0.5
    mask[..., 0] = True
    return mask


# --- models and batches ------------------------------------------------------------------------------------------
def small_config(**options):
    vocabulary = {"source_vocab_size": 13, "target_vocab_size": 13, "pad_id": PAD}
    sizes = {"d_model": 12, "num_heads": 3, "d_ff": 20, "num_encoder_layers": 2, "num_decoder_layers": 2}
    return TransformerConfig(**(vocabulary | sizes | {"dropout": 0.0, "max_len": 32} | options))


def small_model(dtype=torch.float64, **options):
    """A model with random weights, in evaluation mode."""
    return randomise(Transformer(small_config(**options))).to(dtype).eval()


class Projection(nn.Linear):
    """One for which the loss is computed as on a GPU."""


def padded_batch(lengths=(7, 4, 5), side="right", vocabulary=13):
    """Random sentences of these lengths, padded on one side to the longest."""
    batch = torch.full((len(lengths), max(lengths)), PAD)
    for row, length in zip(batch, lengths):
        words = torch.randint(1, vocabulary, (length,))
        if side == "right":
            row[:length] = words
        else:
            row[len(row) - length :] = words
    return batch


def replace_from(tokens, position, vocabulary=13):
    """The same tokens, but each from `position` on is certainly another one (never padding)."""
    words = vocabulary - 1  # 1 … vocabulary - 1; 0 is padding
    shift = torch.randint(1, words, tokens.shape)
    return torch.where(torch.arange(tokens.size(1)) < position, tokens, (tokens - 1 + shift) % words + 1)
