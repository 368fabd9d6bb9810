"""Encoder and decoder layers: equal to torch's in both norm orders, dropout and residuals where the paper has them."""

import pytest
import torch
from reference import DTYPES, equal, randomise
from torch import nn

from transformer_lib.cache import KeyValueCache
from transformer_lib.layers import DecoderLayer, EncoderLayer, FeedForward
from transformer_lib.masks import causal_mask

both_orders = pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
both_layers = pytest.mark.parametrize("kind", [EncoderLayer, DecoderLayer])
SUBLAYERS = {EncoderLayer: ["self_attention", "feed_forward"]}
SUBLAYERS[DecoderLayer] = ["self_attention", "cross_attention", "feed_forward"]


def make(kind, norm_first=False, dtype=torch.float64, **options):
    layer = kind(12, 3, 20, norm_first=norm_first, **({"dropout": 0.0} | options))
    return randomise(layer).to(dtype)


def call(layer, x, memory, **options):
    """Both kinds of layers with the same arguments."""
    if isinstance(layer, EncoderLayer):
        options.pop("memory_mask", None)
        return layer(x, **options)
    return layer(x, memory, **options)


def tokens(*shape, dtype=torch.float64):
    return torch.randn(*shape, 12, dtype=dtype, requires_grad=True)


def padding(*lengths):
    """A key-only mask for sentences of these lengths, padded on the right."""
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None])[:, None, None, :]


# --- what depends on what ----------------------------------------------------------------------------------------


@both_orders
@both_layers
def test_padding_does_not_matter_and_real_tokens_do(kind, norm_first):
    """The padded side is the encoder's input, or the decoder's memory."""
    layer, x, target = make(kind, norm_first), tokens(2, 6), tokens(2, 5)
    mask = padding(6, 4)

    def output(source):
        if kind is EncoderLayer:
            return layer(source, mask=mask)[1, :4]
        return layer(target, source, memory_mask=mask)[1]

    before = output(x)
    for position in range(6):
        changed = x.detach().clone()
        changed[1, position] += torch.randn(12)
        difference = (output(changed) - before).abs().amax(dim=-1)
        assert (difference > 1e-6).all() if position < 4 else (difference < 1e-12).all()


@both_orders
@both_layers
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_fully_masked_sentence_is_finite_and_leaves_the_other_alone(kind, norm_first, dtype):
    layer, x, memory = make(kind, norm_first, dtype), tokens(2, 5, dtype=dtype), tokens(2, 5, dtype=dtype)
    mask = padding(5, 0)
    output = call(layer, x, memory, mask=mask & causal_mask(5), memory_mask=mask)
    assert output.dtype == dtype
    output[0].float().square().sum().backward()
    assert output.isfinite().all()
    for tensor in (x, memory if kind is DecoderLayer else x, *layer.parameters()):
        assert tensor.grad.isfinite().all()
    assert (x.grad[1] == 0).all()
    alone = call(layer, x[:1], memory[:1], mask=causal_mask(5))
    # The kernel may sum in another order for another batch size: one rounding of numbers up to about 8.
    equal(output[:1], alone, 16 * torch.finfo(dtype).eps)


@both_orders
@both_layers
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_runs_forward_and_backward(kind, norm_first, dtype):
    layer = make(kind, norm_first, dtype, dropout=0.1).train()
    x, memory = tokens(2, 5, dtype=dtype), tokens(2, 7, dtype=dtype)
    output = call(layer, x, memory)
    output.float().square().sum().backward()
    assert output.dtype == dtype
    assert all(tensor.grad.isfinite().all() for tensor in (x, *layer.parameters()))


# --- norms and dropout -------------------------------------------------------------------------------------------


@both_layers
def test_the_last_step_of_post_norm_is_a_norm_and_of_pre_norm_is_not(kind):
    for norm_first in (False, True):
        layer = kind(12, 3, 20, norm_first=norm_first).double().train()  # fresh: norm weights 1, biases 0
        output = call(layer, 3 * tokens(4, 50) + 1, tokens(4, 6))
        normed = (output.mean(-1).abs() < 1e-10) & ((output.var(-1, correction=0) - 1).abs() < 1e-3)  # ε is 1e-5
        assert not normed.any() if norm_first else normed.all()


def replace_sublayers(layer, constant):
    """Each sub-layer answers zeros, the one called `constant` answers ones."""
    for name in SUBLAYERS[type(layer)]:
        last = layer.feed_forward.linear2 if name == "feed_forward" else getattr(layer, name).out_projection
        nn.init.zeros_(last.weight)
        nn.init.constant_(last.bias, float(name == constant))


@both_orders
@both_layers
def test_a_constant_token_has_a_norm(kind, norm_first):
    """Without ε in a norm, a token whose channels are all alike would be divided by 0."""
    layer, x = make(kind, norm_first), torch.ones(2, 5, 12, dtype=torch.float64, requires_grad=True)
    replace_sublayers(layer, None)
    output = call(layer, x, tokens(2, 4))
    output.sum().backward()
    assert output.isfinite().all()
    assert x.grad.isfinite().all()


@both_orders
@pytest.mark.parametrize(("kind", "sublayer"), [(kind, name) for kind in SUBLAYERS for name in SUBLAYERS[kind]])
def test_dropout_falls_on_what_a_sublayer_adds_before_the_addition(kind, sublayer, norm_first):
    """A sub-layer that answers 1 everywhere adds 0 or 4/3 at p = 1/4, to a stream that is never dropped."""
    layer, x, memory = make(kind, norm_first, dropout=0.25), tokens(8, 50), tokens(8, 4)
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
    layer(tokens(4, 5))
    layer.eval()(tokens(4, 5))
    assert 0.6 < (inner[0] == 0).double().mean() < 0.65  # a half by the ReLU, a quarter of the rest: 5/8
    assert 0.45 < (inner[1] == 0).double().mean() < 0.55


@both_layers
def test_evaluation_repeats_itself_and_training_does_not(kind):
    layer, x, memory = make(kind, dropout=0.2, attention_dropout=0.2), tokens(2, 5), tokens(2, 4)
    assert not torch.equal(call(layer.train(), x, memory), call(layer, x, memory))
    assert torch.equal(call(layer.eval(), x, memory), call(layer, x, memory))


@both_layers
def test_attention_dropout_reaches_every_attention_and_nothing_else(kind):
    layer = make(kind, dropout=0.1, attention_dropout=0.3)
    attentions = [getattr(layer, name) for name in SUBLAYERS[kind] if name != "feed_forward"]
    assert [attention.dropout for attention in attentions] == [0.3] * len(attentions)
    assert layer.dropout.p == 0.1
    assert layer.feed_forward.dropout.p == 0  # the paper drops nothing inside


@both_layers
def test_the_defaults_are_the_papers(kind):
    layer = kind(12, 3, 20)
    assert (layer.norm_first, layer.dropout.p) == (False, 0.1)
    assert [getattr(layer, name).dropout for name in SUBLAYERS[kind] if name != "feed_forward"] == (
        [0.0] * (len(SUBLAYERS[kind]) - 1)
    )


# --- parameters --------------------------------------------------------------------------------------------------


@both_orders
def test_parameter_counts(norm_first):
    attention, feed_forward, norm = 4 * 12 * 12 + 4 * 12, 2 * 12 * 20 + 20 + 12, 2 * 12
    encoder, decoder = make(EncoderLayer, norm_first), make(DecoderLayer, norm_first)
    assert sum(p.numel() for p in encoder.parameters()) == attention + feed_forward + 2 * norm
    assert sum(p.numel() for p in decoder.parameters()) == 2 * attention + feed_forward + 3 * norm


@both_layers
def test_a_width_that_does_not_divide_is_refused(kind):
    with pytest.raises(ValueError, match="got 12 and 5"):
        kind(12, 5, 20)


# --- masks and caches --------------------------------------------------------------------------------------------


@both_orders
def test_cached_steps_equal_one_pass(norm_first):
    layer, x, memory, mask = make(DecoderLayer, norm_first), tokens(2, 6), tokens(2, 4), padding(4, 2)
    cache = KeyValueCache(1).layers[0]
    steps = [layer(x[:, i : i + 1], memory, memory_mask=mask, cache=cache) for i in range(6)]
    equal(torch.cat(steps, dim=1), layer(x, memory, is_causal=True, memory_mask=mask))


@pytest.mark.bad_input
@pytest.mark.parametrize("which", ["mask", "memory_mask"])
def test_both_masks_are_checked(which):
    layer, x, memory = make(DecoderLayer), tokens(2, 5), tokens(2, 4)
    with pytest.raises(TypeError, match="float32"):
        layer(x, memory, **{which: torch.ones(1, 1, 1, 1)})
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        layer(x, memory, **{which: torch.ones(2, 3, dtype=torch.bool)})


def test_is_causal_goes_neither_with_a_mask_nor_with_a_cache():
    layer, x, memory = make(DecoderLayer), tokens(2, 5), tokens(2, 4)
    for options in ({"mask": causal_mask(5)}, {"cache": KeyValueCache(1).layers[0]}):
        with pytest.raises(ValueError, match="is_causal"):
            layer(x, memory, is_causal=True, **options)


def test_masks_go_by_name():
    """Two masks of the same shape in the wrong order would pass every shape check."""
    layer, x, memory = make(DecoderLayer), tokens(2, 5), tokens(2, 5)
    with pytest.raises(TypeError, match="positional"):
        layer(x, memory, causal_mask(5))
    with pytest.raises(TypeError, match="positional"):
        make(EncoderLayer)(x, causal_mask(5))
