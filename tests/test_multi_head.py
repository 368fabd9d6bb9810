"""Multi-head attention: equal to nn.MultiheadAttention, its two paths equal to each other, and no token mixed up."""

import math
import re

import pytest
import torch
from equivalence import torch_names
from reference import equal, random_mask, randomise, tokens
from torch import nn

from transformer_lib.cache import KeyValueCache
from transformer_lib.masks import causal_mask
from transformer_lib.multi_head import MultiHeadAttention


def attention(d_model=12, num_heads=3, **options):
    return randomise(MultiHeadAttention(d_model, num_heads, **options)).double()


@pytest.mark.parametrize("bias", [True, False])
def test_the_weights_equal_torchs(bias):
    """The ladder compares outputs and gradients; here are the weights of each head, and the layer without biases."""
    ours, theirs = attention(bias=bias), nn.MultiheadAttention(12, 3, bias=bias, batch_first=True).double()
    theirs.load_state_dict(torch_names(ours.state_dict()))
    query, memory, mask = tokens(2, 5, 12), tokens(2, 7, 12), random_mask(2, 3, 5, 7)
    got = ours(query, memory, memory, mask=mask, need_weights=True)
    expected = theirs(query, memory, memory, attn_mask=~mask.flatten(0, 1), average_attn_weights=False)
    for tensor, other in zip(got, expected):
        equal(tensor, other)


def test_the_same_tensor_twice_is_two_equal_tensors():
    """Which of the three are one object decides how they are projected, not what comes out."""
    layer, x, y = attention(), tokens(2, 5, 12), tokens(2, 5, 12)
    for query, key, value in ((x, x, x), (x, x, y), (x, y, x), (x, y, y)):
        equal(layer(query, key, value)[0], layer(query.clone(), key.clone(), value.clone())[0])


@pytest.mark.parametrize("need_weights", [True, False])
def test_dropout_drops_weights_in_training_only(need_weights):
    """With one key its weight is 1, so a head's whole output is dropped or doubled together."""
    layer = attention(16, 4, dropout=0.5)
    with torch.no_grad():
        layer.out_projection.weight.copy_(torch.eye(16))
        layer.out_projection.bias.zero_()
    query, memory = tokens(1, 200, 16), tokens(1, 1, 16)
    with torch.no_grad():
        value = layer.eval()(query, memory, memory)[0]
        output, _ = layer.train()(query, memory, memory, need_weights=need_weights)
    kept = (output != 0).unflatten(-1, (4, 4))  # (b, n, h, d_k)
    assert torch.equal(kept.all(dim=-1), kept.any(dim=-1))
    equal(output[output != 0], 2 * value[output != 0])
    assert 0.4 < kept.double().mean() < 0.6  # 800 draws: the standard deviation is 0.018
    again, _ = layer.eval()(query, memory, memory, need_weights=need_weights)
    equal(again, value)


def test_what_it_makes_stands_where_its_input_stands():
    """Whatever the default device is."""
    layer, x = attention(), tokens(2, 5, 12)
    with torch.device("meta"):
        output, weights = layer(x, x, x, is_causal=True, need_weights=True)
    equal(output, layer(x, x, x, is_causal=True)[0])
    assert not weights.triu(1).any()


def test_each_of_the_four_projections_starts_as_xavier_uniform():
    layer, bound = MultiHeadAttention(64, 4), math.sqrt(6 / 128)
    for weight in (*layer.in_projection.weight.chunk(3), layer.out_projection.weight):
        assert 0.99 * bound < weight.abs().max() <= bound  # the largest of 4096
    assert not layer.in_projection.bias.any()
    assert not layer.out_projection.bias.any()


@pytest.mark.parametrize("need_weights", [True, False])
def test_with_a_cache_a_mask_covers_the_cached_keys_and_one_token_needs_none(need_weights):
    layer, x, cache = attention(), tokens(2, 6, 12), KeyValueCache(1).layers[0].self_attention
    mask = causal_mask(6)
    outputs = [
        layer(part, part, part, mask=given, cache=cache, need_weights=need_weights)[0]
        for part, given in zip(x.split([3, 2, 1], dim=1), (mask[:, :, :3, :3], mask[:, :, 3:5, :5], None))
    ]
    equal(torch.cat(outputs, dim=1), layer(x, x, x, is_causal=True)[0])
    with pytest.raises(ValueError, match=r"mask.*\(2, 3, 1, 7\).*\(1, 1, 1, 6\)"):
        layer(x[:, :1], x[:, :1], x[:, :1], mask=mask[:, :, :1, :6], cache=cache)


@pytest.mark.parametrize(("d_model", "heads"), [(10, 3), (4, 8), (0, 1), (8, 0), (-8, 2), (8, -2)])
def test_widths_that_do_not_divide_are_refused(d_model, heads):
    with pytest.raises(ValueError, match=f"got {d_model} and {heads}"):
        MultiHeadAttention(d_model, heads)
    MultiHeadAttention(1, 1)  # one channel is wide enough


@pytest.mark.bad_input
@pytest.mark.parametrize("need_weights", [True, False])
def test_what_does_not_fit_is_refused_by_name(need_weights):
    """Unequal lengths unchecked, torch's fused kernel on the CPU uses some of the longer side, or reads beyond it."""
    layer, x = attention(), tokens(2, 5, 12)
    causal, alone = {"is_causal": True}, "is_causal=True goes neither with a mask nor with a cache"
    rows = [(TypeError, "boolean.*float32", {"mask": torch.ones(1, 1, 5, 5)})]
    for shape in ((5, 5), (1, 1, 5, 6), (3, 1, 5, 5), (1, 2, 5, 5)):
        words = re.escape(f"(2, 3, 5, 5) cannot have shape {shape}")
        rows.append((ValueError, words, {"mask": torch.ones(shape).bool()}))
    rows += [(ValueError, alone, causal | {"mask": causal_mask(5)})]
    rows += [(ValueError, alone, causal | {"cache": KeyValueCache(1).layers[0].self_attention})]
    for kind, words, options in rows:
        with pytest.raises(kind, match=words):
            layer(x, x, x, need_weights=need_weights, **options)
    for keys, values in ((5, 4), (4, 5), (1, 5)):
        with pytest.raises(ValueError, match=f"got {keys} keys and {values} values"):
            layer(x, x[:, :keys], x[:, :values], need_weights=need_weights)
    with pytest.raises(ValueError, match="got 5 and 4"):
        layer(x, x[:, :4], x[:, :4], need_weights=need_weights, **causal)
