"""Multi-head attention: equal to nn.MultiheadAttention, its two paths equal to each other, and no token mixed up."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import DTYPES, copy_attention, equal, equal_gradients, randomise
from torch import nn

from transformer_lib.decoding import KeyValueCache
from transformer_lib.masks import causal_mask
from transformer_lib.multi_head import MultiHeadAttention


def attention(d_model=12, num_heads=3, **options):
    return randomise(MultiHeadAttention(d_model, num_heads, **options)).double()


def tokens(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def random_mask(*shape):
    mask = torch.rand(*shape) < 0.5
    mask[..., 0] = True
    return mask


# --- against torch -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("inputs", ["self", "memory", "three"])
def test_equal_to_torch_with_gradients(inputs, need_weights, bias):
    theirs = randomise(nn.MultiheadAttention(12, 3, bias=bias, batch_first=True)).double()
    ours = attention(bias=bias)
    copy_attention(ours, theirs)
    query = tokens(2, 5, 12)
    key = query if inputs == "self" else tokens(2, 7, 12)
    value = tokens(2, 7, 12) if inputs == "three" else key
    mask = random_mask(2, 3, 5, key.size(1))
    output, weights = ours(query, key, value, mask=mask, need_weights=need_weights)
    expected, expected_weights = theirs(
        query, key, value, attn_mask=~mask.flatten(0, 1), need_weights=need_weights, average_attn_weights=False
    )
    equal(output, expected)
    if need_weights:
        equal(weights, expected_weights)
    else:
        assert weights is None
    direction = torch.randn_like(output)
    got = torch.autograd.grad((output * direction).sum(), (query, key, value), retain_graph=True)
    for ours_gradient, gradient in zip(
        got, torch.autograd.grad((expected * direction).sum(), (query, key, value), retain_graph=True)
    ):
        equal(ours_gradient, gradient)
    (output * direction).sum().backward()
    (expected * direction).sum().backward()
    equal_gradients(ours, theirs, copy_attention)


# --- the two paths -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["none", "padding", "full", "causal"])
def test_the_fused_kernel_equals_the_readable_formula(kind):
    layer, x = attention(), tokens(2, 6, 12)
    options = {
        "none": {},
        "padding": {"mask": random_mask(2, 1, 1, 6)},
        "full": {"mask": random_mask(2, 3, 6, 6)},
        "causal": {"is_causal": True},
    }[kind]
    fused, none = layer(x, x, x, **options)
    readable, weights = layer(x, x, x, **options, need_weights=True)
    assert none is None
    assert weights.shape == (2, 3, 6, 6)
    equal(fused, readable)
    direction = torch.randn_like(fused)
    wanted = (x, *layer.parameters())
    for got, expected in zip(
        torch.autograd.grad((fused * direction).sum(), wanted),
        torch.autograd.grad((readable * direction).sum(), wanted),
    ):
        equal(got, expected)


@pytest.mark.parametrize("need_weights", [True, False])
def test_is_causal_equals_the_causal_mask(need_weights):
    layer, x = attention(), tokens(2, 6, 12)
    by_flag, weights = layer(x, x, x, is_causal=True, need_weights=need_weights)
    by_mask, _ = layer(x, x, x, mask=causal_mask(6), need_weights=need_weights)
    equal(by_flag, by_mask, 1e-12)
    if need_weights:
        assert torch.equal(weights > 0, causal_mask(6).expand(2, 3, 6, 6))


@given(
    batch=st.integers(1, 3), heads=st.integers(1, 4), width=st.integers(1, 5), n=st.integers(1, 6), m=st.integers(1, 6)
)
def test_any_shape(batch, heads, width, n, m):
    layer = attention(heads * width, heads)
    query, key = tokens(batch, n, heads * width), tokens(batch, m, heads * width)
    mask = random_mask(batch, 1, n, m)
    fused, _ = layer(query, key, key, mask=mask)
    readable, weights = layer(query, key, key, mask=mask, need_weights=True)
    assert fused.shape == query.shape
    assert weights.shape == (batch, heads, n, m)
    equal(fused, readable)


# --- what depends on what ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("options", [{"is_causal": True}, {"mask": causal_mask(6)}], ids=["kernel", "mask"])
def test_the_future_does_not_matter_and_the_past_does(options, need_weights):
    layer, x = attention(), tokens(2, 6, 12)
    before, _ = layer(x, x, x, **options, need_weights=need_weights)
    for position in range(6):
        changed = x.detach().clone()
        changed[:, position] += torch.randn(2, 12)
        after, _ = layer(changed, changed, changed, **options, need_weights=need_weights)
        difference = (after - before).abs().amax(dim=-1)
        assert (difference[:, :position] < 1e-12).all()
        assert (difference[:, position:] > 1e-6).all()


def test_reordered_tokens_give_reordered_outputs():
    layer, x, order = attention(), tokens(2, 6, 12), torch.randperm(6)
    y = x[:, order]
    equal(layer(y, y, y)[0], layer(x, x, x)[0][:, order], 1e-12)


def test_sentences_of_a_batch_do_not_touch():
    layer, x = attention(), tokens(3, 5, 12)
    mask = random_mask(3, 1, 5, 5)
    together, _ = layer(x, x, x, mask=mask)
    for row in range(3):
        alone = x[row : row + 1]
        equal(layer(alone, alone, alone, mask=mask[row : row + 1])[0], together[row : row + 1], 1e-12)


def test_every_head_sees_all_channels():
    layer, x = attention(), tokens(1, 5, 12)
    _, weights = layer(x, x, x, need_weights=True)
    for head in range(3):
        (gradient,) = torch.autograd.grad(weights[0, head, :, 0].sum(), x, retain_graph=True)
        assert (gradient != 0).all()


# --- a query that may attend to nothing --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("need_weights", [True, False])
def test_a_blind_query_gets_zeros_forward_and_backward(dtype, need_weights):
    layer = attention().to(dtype)
    query, memory = tokens(2, 5, 12, dtype=dtype), tokens(2, 4, 12, dtype=dtype)
    mask = torch.ones(2, 1, 5, 4, dtype=torch.bool)
    mask[1, 0, 3] = False
    output, weights = layer(query, memory, memory, mask=mask, need_weights=need_weights)
    assert torch.equal(output[1, 3], layer.out_projection.bias)  # of zeros, the bias is all that is left
    if need_weights:
        assert (weights[1, :, 3] == 0).all()
    output.float().square().sum().backward()
    assert (query.grad[1, 3] == 0).all()
    assert (query.grad[0] != 0).any(dim=-1).all()
    for tensor in (query, memory, *layer.parameters()):
        assert tensor.grad.isfinite().all()


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_blind_sentence_leaves_its_neighbour_alone(need_weights):
    layer, x = attention(), tokens(2, 5, 12)
    mask = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    mask[1] = False
    output, _ = layer(x, x, x, mask=mask, need_weights=need_weights)
    (gradient,) = torch.autograd.grad(output.square().sum(), x)
    alone, _ = layer(x[:1], x[:1], x[:1], need_weights=need_weights)
    (expected,) = torch.autograd.grad(alone.square().sum(), x)
    equal(output[:1], alone, 1e-12)
    equal(gradient, expected, 1e-12)


# --- dtypes, dropout, initialisation -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"mask": causal_mask(5)}], ids=["none", "kernel", "mask"])
def test_every_dtype_runs_forward_and_backward(dtype, need_weights, options):
    layer, x = attention().to(dtype), tokens(2, 5, 12, dtype=dtype)
    output, _ = layer(x, x, x, **options, need_weights=need_weights)
    output.sum().backward()
    assert output.dtype == dtype
    assert output.isfinite().all()
    assert all(tensor.grad.isfinite().all() for tensor in (x, *layer.parameters()))


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
    equal(output[output != 0], 2 * value[output != 0], 1e-12)
    assert 0.4 < kept.double().mean() < 0.6  # 800 draws: the standard deviation is 0.018
    again, _ = layer.eval()(query, memory, memory, need_weights=need_weights)
    equal(again, value, 1e-12)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_the_number_of_heads_costs_no_parameters(heads):
    assert sum(p.numel() for p in MultiHeadAttention(16, heads).parameters()) == 4 * 16 * 16 + 4 * 16
    assert sum(p.numel() for p in MultiHeadAttention(16, heads, bias=False).parameters()) == 4 * 16 * 16


def test_each_of_the_four_projections_starts_as_xavier_uniform():
    layer, bound = MultiHeadAttention(64, 4), math.sqrt(6 / 128)
    for weight in (*layer.in_projection.weight.chunk(3), layer.out_projection.weight):
        assert 0.99 * bound < weight.abs().max() <= bound  # the largest of 4096
    assert not layer.in_projection.bias.any()
    assert not layer.out_projection.bias.any()


# --- the cache ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("need_weights", [True, False])
def test_one_token_at_a_time_with_a_cache_equals_all_at_once(need_weights):
    layer, x, cache = attention(), tokens(2, 6, 12), KeyValueCache(1).layers[0].self_attention
    steps = [x[:, i : i + 1] for i in range(6)]
    outputs = [layer(y, y, y, cache=cache, need_weights=need_weights)[0] for y in steps]
    equal(torch.cat(outputs, dim=1), layer(x, x, x, is_causal=True)[0], 1e-12)


def test_a_mask_covers_the_cached_keys_too():
    layer, x, cache = attention(), tokens(2, 6, 12), KeyValueCache(1).layers[0].self_attention
    first, rest = x[:, :4], x[:, 4:]
    mask = causal_mask(6)
    outputs = [
        layer(first, first, first, mask=mask[:, :, :4, :4], cache=cache)[0],
        layer(rest, rest, rest, mask=mask[:, :, 4:], cache=cache)[0],
    ]
    equal(torch.cat(outputs, dim=1), layer(x, x, x, is_causal=True)[0], 1e-12)
    with pytest.raises(ValueError, match="mask") as caught:
        layer(x[:, :1], x[:, :1], x[:, :1], mask=mask[:, :, :1, :6], cache=cache)
    assert "(2, 3, 1, 7)" in str(caught.value)
    assert "(1, 1, 1, 6)" in str(caught.value)


def test_a_filled_static_cache_is_reused_and_not_projected_again():
    layer, memory, cache = attention(), tokens(2, 4, 12), KeyValueCache(1).layers[0].memory_attention
    first, second = tokens(2, 1, 12), tokens(2, 1, 12)
    equal(layer(first, memory, memory, cache=cache)[0], layer(first, memory, memory)[0], 1e-12)
    other = torch.full_like(memory, float("nan"))
    equal(layer(second, other, other, cache=cache)[0], layer(second, memory, memory)[0], 1e-12)


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d_model", "heads"), [(10, 3), (4, 8), (0, 1), (8, 0), (-8, 2), (8, -2)])
def test_widths_that_do_not_divide_are_refused(d_model, heads):
    with pytest.raises(ValueError, match=f"got {d_model} and {heads}"):
        MultiHeadAttention(d_model, heads)


@pytest.mark.bad_input
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    ("mask", "error"),
    [
        (torch.ones(1, 1, 5, 5), TypeError),
        (torch.ones(1, 1, 5, 5, dtype=torch.int64), TypeError),
        (torch.ones(5, 5, dtype=torch.bool), ValueError),
        (torch.ones(2, 5, 5, dtype=torch.bool), ValueError),
        (torch.ones(2, 5, dtype=torch.bool), ValueError),
        (torch.ones(1, 1, 5, 6, dtype=torch.bool), ValueError),
        (torch.ones(3, 1, 5, 5, dtype=torch.bool), ValueError),
        (torch.ones(1, 2, 5, 5, dtype=torch.bool), ValueError),
    ],
    ids=lambda case: f"{case.dtype}{tuple(case.shape)}" if isinstance(case, torch.Tensor) else None,
)
def test_an_unfit_mask_is_refused_by_name(mask, error, need_weights):
    layer, x = attention(), tokens(2, 5, 12)
    with pytest.raises(error) as caught:
        layer(x, x, x, mask=mask, need_weights=need_weights)
    said = str(caught.value)
    assert str(mask.dtype) in said if error is TypeError else str(tuple(mask.shape)) in said
    assert "boolean" in said if error is TypeError else "(2, 3, 5, 5)" in said


@pytest.mark.parametrize("need_weights", [True, False])
def test_is_causal_goes_with_nothing_else(need_weights):
    layer, x = attention(), tokens(2, 5, 12)
    for options in ({"mask": causal_mask(5)}, {"cache": KeyValueCache(1).layers[0].self_attention}):
        with pytest.raises(ValueError, match="is_causal=True goes neither with a mask nor with a cache"):
            layer(x, x, x, is_causal=True, need_weights=need_weights, **options)
    with pytest.raises(ValueError, match="got 5 and 4"):
        layer(x, x[:, :4], x[:, :4], is_causal=True, need_weights=need_weights)


@pytest.mark.bad_input
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize(("keys", "values"), [(5, 4), (4, 5), (1, 5)])
def test_keys_and_values_come_in_pairs(keys, values, need_weights):
    """Without the check torch's fused kernel on the CPU uses some of the longer ones, or reads beyond the shorter."""
    layer, x = MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
    with pytest.raises(ValueError, match=f"got {keys} keys and {values} values"):
        layer(x, x[:, :keys], x[:, :values], need_weights=need_weights)
