"""Encoder and decoder layers: norms, dropout and residuals where the paper has them, and made of what they are told."""

from functools import partial

import pytest
import torch
from reference import both_orders, equal, randomise, tokens
from torch import nn

from transformer_lib.layers import DecoderLayer, EncoderLayer, FeedForward
from transformer_lib.masks import causal_mask
from transformer_lib.multi_head import MultiHeadAttention
from transformer_lib.variants import GroupedQueryAttention, SwiGLU, rotary

both_layers = pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
SUBLAYERS = {EncoderLayer: ["self_attention", "feed_forward"]}
SUBLAYERS[DecoderLayer] = ["self_attention", "cross_attention", "feed_forward"]


def make(kind, norm_first=False, **options):
    return randomise(kind(12, 3, 20, norm_first=norm_first, **({"dropout": 0.0} | options))).double()


def call(layer, x, memory, **options):
    if isinstance(layer, EncoderLayer):
        return layer(x, **options)
    return layer(x, memory, **options)


def replace_sublayers(layer, constant):
    """Each sub-layer answers zeros, the one called `constant` answers ones."""
    for name in SUBLAYERS[type(layer)]:
        last = layer.feed_forward.linear2 if name == "feed_forward" else getattr(layer, name).out_projection
        nn.init.zeros_(last.weight)
        nn.init.constant_(last.bias, float(name == constant))


@both_orders
@pytest.mark.parametrize(("kind", "sublayer"), [(kind, name) for kind in SUBLAYERS for name in SUBLAYERS[kind]])
def test_dropout_falls_on_what_a_sublayer_adds_before_the_addition(kind, sublayer, norm_first):
    """A sub-layer that answers 1 everywhere adds 0 or 4/3 at p = 1/4, to a stream that is never dropped."""
    layer, x, memory = make(kind, norm_first, dropout=0.25), tokens(8, 50, 12), tokens(8, 4, 12)
    replace_sublayers(layer, sublayer)
    if not norm_first:  # without the norms, the output shows what was added
        for name in SUBLAYERS[kind]:
            setattr(layer, f"{name}_norm", nn.Identity())
    added = call(layer.train(), x, memory) - x
    dropped = added.abs() < 1e-12
    equal(added[~dropped], torch.full_like(added[~dropped], 4 / 3))
    assert 0.22 < dropped.double().mean() < 0.28  # 4800 draws: the standard deviation is 0.006
    equal(call(layer.eval(), x, memory) - x, torch.ones_like(x))


def test_the_inner_dropout_of_feed_forward_follows_the_relu():
    layer = FeedForward(12, 400, dropout=0.25).double().train()
    inner = []
    layer.linear2.register_forward_pre_hook(lambda _, args: inner.append(args[0]))
    layer(tokens(4, 5, 12))
    layer.eval()(tokens(4, 5, 12))
    assert 0.6 < (inner[0] == 0).double().mean() < 0.65  # a half by the ReLU, a quarter of the rest: 5/8
    assert 0.45 < (inner[1] == 0).double().mean() < 0.55


@both_layers
def test_a_layer_is_the_papers_unless_it_is_told(kind):
    """Section 5.4: dropout of 0.1 on each sub-layer's output, and none on the weights of attention."""
    layer = kind(12, 3, 20)
    attentions = [part for part in layer.modules() if isinstance(part, MultiHeadAttention)]
    assert [attention.dropout for attention in attentions] == [0.0] * (len(SUBLAYERS[kind]) - 1)
    assert (layer.dropout.p, layer.norm_first) == (0.1, False)
    given = [tokens(2, 5, 12)] * (len(SUBLAYERS[kind]) - 1)
    with pytest.raises(TypeError, match="positional"):  # two masks in the wrong order would pass every shape check
        layer.double()(*given, causal_mask(5))


@both_orders
@both_layers
def test_a_layer_is_made_of_the_components_that_it_is_told(kind, norm_first):
    """And computes what they compute."""
    parts = {"attention": partial(GroupedQueryAttention, num_groups=1, positions=rotary), "feed_forward": SwiGLU}
    parts["norm"] = partial(nn.RMSNorm, eps=1e-3)
    if kind is DecoderLayer:
        parts["cross_attention"] = partial(GroupedQueryAttention, num_groups=3, bias=False)
    layer, x, memory = make(kind, norm_first, **parts), tokens(2, 5, 12), tokens(2, 7, 12)
    expected = x
    for name in SUBLAYERS[kind]:
        sublayer, norm = getattr(layer, name), getattr(layer, f"{name}_norm")
        assert type(norm) is nn.RMSNorm
        y = norm(expected) if norm_first else expected
        keys = memory if name == "cross_attention" else y
        added = sublayer(y) if name == "feed_forward" else sublayer(y, keys, keys)[0]
        expected = expected + added if norm_first else norm(expected + added)
    equal(call(layer, x, memory), expected)
    assert layer.self_attention.num_groups == 1
    assert layer.self_attention.positions is rotary
