"""Helpers of the tests: torch's own modules with our weights, and ways to compare and to disturb."""

from copy import deepcopy

import torch
from torch import nn

from transformer_lib.model import Transformer, TransformerConfig

PAD = 0
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def equal(got, expected, atol=1e-10):
    """Assert equality. float64 sums of a few hundred numbers near 1, taken in another order, differ by about 1e-14."""
    torch.testing.assert_close(got, expected, rtol=0, atol=atol)


def randomise(module, scale=0.4):
    """Give every parameter a random value, so that no bias is 0 and no norm weight is 1 by accident."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.randn_like(parameter) * scale + (1.0 if "norm" in name else 0.0))
    return module


# --- copying torch's weights into ours ---------------------------------------------------------------------------


def copy_linear(ours, theirs):
    """Linear, LayerNorm: the names are the same."""
    ours.load_state_dict(theirs.state_dict())


def copy_attention(ours, theirs):
    """nn.MultiheadAttention."""
    with torch.no_grad():
        ours.in_projection.weight.copy_(theirs.in_proj_weight)
        if theirs.in_proj_bias is not None:
            ours.in_projection.bias.copy_(theirs.in_proj_bias)
    copy_linear(ours.out_projection, theirs.out_proj)


def copy_layer(ours, theirs):
    """nn.TransformerEncoderLayer or nn.TransformerDecoderLayer."""
    copy_attention(ours.self_attention, theirs.self_attn)
    copy_linear(ours.self_attention_norm, theirs.norm1)
    if isinstance(theirs, nn.TransformerDecoderLayer):
        copy_attention(ours.memory_attention, theirs.multihead_attn)
        copy_linear(ours.memory_attention_norm, theirs.norm2)
        copy_linear(ours.feed_forward_norm, theirs.norm3)
    else:
        copy_linear(ours.feed_forward_norm, theirs.norm2)
    copy_linear(ours.feed_forward.linear1, theirs.linear1)
    copy_linear(ours.feed_forward.linear2, theirs.linear2)


def copy_stack(ours, theirs):
    """nn.TransformerEncoder or nn.TransformerDecoder."""
    assert len(ours.layers) == len(theirs.layers)
    for our_layer, their_layer in zip(ours.layers, theirs.layers):
        copy_layer(our_layer, their_layer)
    if theirs.norm is not None:
        copy_linear(ours.norm, theirs.norm)


def _with_gradients_as_weights(module):
    """The same module, its parameters replaced by their gradients: what copies weights then copies gradients."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.grad)
    return module


def equal_gradients(ours, theirs, copy, atol=1e-10):
    """Compare the gradients of all parameters; `copy` is the function that copied the weights."""
    twin = deepcopy(ours)
    copy(twin, _with_gradients_as_weights(theirs))
    for (name, parameter), expected in zip(ours.named_parameters(), twin.parameters(), strict=True):
        assert parameter.grad is not None, name
        torch.testing.assert_close(
            parameter.grad, expected.detach(), rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
        )


# --- models and batches ------------------------------------------------------------------------------------------


def small_config(**options):
    vocabulary = {"source_vocab_size": 13, "target_vocab_size": 13, "pad_id": PAD}
    sizes = {"d_model": 12, "num_heads": 3, "d_ff": 20, "num_encoder_layers": 2, "num_decoder_layers": 2}
    return TransformerConfig(**(vocabulary | sizes | {"dropout": 0.0, "max_len": 32} | options))


def small_model(dtype=torch.float64, **options):
    """A model with random weights, in evaluation mode."""
    return randomise(Transformer(small_config(**options))).to(dtype).eval()


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
