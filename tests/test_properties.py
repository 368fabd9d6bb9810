"""What holds for any size, any mask and any weights, of every component of chapters 02 to 07."""

import pytest
import torch
import torch.nn.functional as F
from equivalence import Sizes, config, roundings
from hypothesis import given
from hypothesis import strategies as st
from reference import DTYPES, equal, gradients, randomise, tokens

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.layers import DecoderLayer, EncoderLayer
from transformer_lib.masks import causal_mask
from transformer_lib.model import Decoder, Encoder
from transformer_lib.multi_head import MultiHeadAttention


@st.composite
def problems(draw):
    """Sizes, with a seed set for everything that is random: a failing example can be repeated."""
    torch.manual_seed(draw(st.integers(0, 999), label="seed"))
    heads, width = draw(st.integers(1, 3)), draw(st.integers(2, 4))
    d_model = heads * width + heads * (heads == 1)  # a norm of two or three channels has little to say
    batch, n, m, d_ff, layers = (draw(st.integers(1, most)) for most in (3, 6, 6, 7, 2))
    return Sizes(batch=batch, n=n, m=m, d_model=d_model, heads=heads, d_ff=d_ff, layers=layers)


problem = problems()
densities = st.sampled_from([0.0, 0.3, 0.7, 1.0])  # of masks: nobody sees anything … everybody sees everything
orders, four = st.booleans(), st.tuples(*[st.booleans()] * 4)


# --- attention ---------------------------------------------------------------------------------------------------
@given(s=problem, lead=st.lists(st.integers(1, 3), max_size=2), width=st.integers(1, 5), density=densities, ones=four)
def test_attention_is_the_fused_kernel(s, lead, width, density, ones):
    """Forward and backward, with every shape of mask that broadcasts, and with queries that see nothing."""
    q, k, v = tokens(*lead, s.n, s.d_model), tokens(*lead, s.m, s.d_model), tokens(*lead, s.m, width)
    shape = (*lead, s.n, s.m)
    mask = torch.rand([1 if one else size for one, size in zip(ones, shape)]) < density
    output, weights = scaled_dot_product_attention(q, k, v, mask)
    expected = F.scaled_dot_product_attention(q, k, v, mask)
    equal(output, expected)
    for got, wanted in zip(gradients(output, (q, k, v)), gradients(expected, (q, k, v))):
        equal(got, wanted)
    seeing = mask.expand(shape).any(dim=-1)
    assert weights.shape == shape
    assert (weights[~mask.expand(shape)] == 0).all()
    equal(weights.sum(dim=-1), seeing.double())  # one, or zero for a query that sees nothing
    equal(output, weights @ v)


# --- everything that reads tokens --------------------------------------------------------------------------------
def run(module, x, memory, mask=None, memory_mask=None, is_causal=False, need_weights=False):
    """Every kind with the same arguments; those without a memory ignore it."""
    if isinstance(module, MultiHeadAttention):
        return module(x, x, x, mask=mask, is_causal=is_causal, need_weights=need_weights)[0]
    if isinstance(module, EncoderLayer | Encoder):
        return module(x, mask=mask)
    return module(x, memory, mask=mask, memory_mask=memory_mask, is_causal=is_causal)


def make(kind, s, norm_first, scale=0.4, dtype=torch.float64):
    if kind is MultiHeadAttention:
        module = kind(s.d_model, s.heads)
    elif kind in (EncoderLayer, DecoderLayer):
        module = kind(**config(s, norm_first).layer_arguments())
    else:
        module = kind(config(s, norm_first))
    return randomise(module, scale).to(dtype)


KINDS = {MultiHeadAttention: "self_attention", EncoderLayer: "encoder_layer", DecoderLayer: "decoder_layer",
         Encoder: "encoder", Decoder: "decoder"}  # fmt: skip
every_kind = pytest.mark.parametrize("kind", KINDS, ids=KINDS.get)
decoders = pytest.mark.parametrize("kind", [MultiHeadAttention, DecoderLayer, Decoder], ids=KINDS.get)


@given(s=problem, density=densities, is_causal=st.booleans(), ones=four)
def test_the_two_paths_of_multi_head_attention_agree(s, density, is_causal, ones):
    """Forward and backward; queries, keys and values differ, unless causality needs them equally many."""
    layer, shape = make(MultiHeadAttention, s, False), (s.batch, s.heads, s.n, s.n if is_causal else s.m)
    x = [tokens(s.batch, length, s.d_model) for length in (s.n, shape[3], shape[3])]
    mask = torch.rand([1 if one else size for one, size in zip(ones, shape)]) < density
    options = {"is_causal": True} if is_causal else {"mask": mask}
    fused, none = layer(*x, **options)
    readable, weights = layer(*x, **options, need_weights=True)
    assert none is None
    equal(fused, readable)
    used = (*x, *layer.parameters())
    for got, wanted in zip(gradients(fused, used), gradients(readable, used)):
        equal(got, wanted)
    mask = (causal_mask(s.n) if is_causal else mask).expand(shape)
    assert (weights[~mask] == 0).all()
    equal(weights.sum(dim=-1), mask.any(dim=-1).double())


@every_kind
@given(s=problem, density=densities, norm_first=orders)
def test_reordered_tokens_give_reordered_outputs_and_the_memory_has_no_order(kind, s, density, norm_first):
    """Under any mask, if the mask is reordered with them: what is masked belongs to the tokens, not to their places."""
    module, x, memory = make(kind, s, norm_first), tokens(s.batch, s.n, s.d_model), tokens(s.batch, s.m, s.d_model)
    mask, memory_mask = torch.rand(s.batch, 1, s.n, s.n) < density, torch.rand(s.batch, 1, s.n, s.m) < density
    order, other = torch.randperm(s.n), torch.randperm(s.m)
    masks = mask[:, :, order][..., order], memory_mask[:, :, order][..., other]
    equal(run(module, x[:, order], memory[:, other], *masks), run(module, x, memory, mask, memory_mask)[:, order])


@every_kind
@given(s=problem, density=densities, norm_first=orders)
def test_sentences_of_a_batch_do_not_touch(kind, s, density, norm_first):
    module, x, memory = make(kind, s, norm_first), tokens(s.batch, s.n, s.d_model), tokens(s.batch, s.m, s.d_model)
    mask, memory_mask = torch.rand(s.batch, 1, s.n, s.n) < density, torch.rand(s.batch, 1, 1, s.m) < density
    together = run(module, x, memory, mask, memory_mask)
    for row in range(s.batch):
        one = slice(row, row + 1)
        equal(run(module, x[one], memory[one], mask[one], memory_mask[one]), together[one])


@decoders
@given(s=problem, norm_first=orders, by_mask=st.booleans(), start=st.integers(0, 5), need_weights=st.booleans())
def test_the_future_does_not_matter_and_the_past_does(kind, s, norm_first, by_mask, start, need_weights):
    module, x, memory = make(kind, s, norm_first), tokens(s.batch, s.n, s.d_model), tokens(s.batch, s.m, s.d_model)
    causality = {"mask": causal_mask(s.n)} if by_mask else {"is_causal": True}
    causality["need_weights"] = need_weights  # the readable path, where there is one
    position = start % s.n
    changed = torch.where((torch.arange(s.n) == position)[:, None], torch.randn(s.d_model).double(), x)
    before, after = run(module, x, memory, **causality), run(module, changed, memory, **causality)
    equal(after[:, :position], before[:, :position])
    assert ((after - before)[:, position:].abs().amax(dim=-1) > 1e-9).all()


@every_kind
@given(s=problem, norm_first=orders, extra=st.integers(1, 3), content=st.sampled_from([0.0, 1.0, 1e4]))
def test_padding_changes_no_real_position(kind, s, norm_first, extra, content):
    """More of it, with any content, on the right of the tokens and on the left of the memory."""
    module, x, memory = make(kind, s, norm_first), tokens(s.batch, s.n, s.d_model), tokens(s.batch, s.m, s.d_model)
    noise = content * torch.randn(s.batch, extra, s.d_model, dtype=torch.float64)
    real = torch.arange(s.n + extra) < s.n
    real_memory = torch.arange(s.m + extra) >= extra
    masks = real.expand(s.batch, 1, 1, -1), real_memory.expand(s.batch, 1, 1, -1)
    longer = run(module, torch.cat([x, noise], dim=1), torch.cat([noise, memory], dim=1), *masks)
    equal(longer[:, : s.n], run(module, x, memory))


@pytest.mark.parametrize(("kind", "need_weights"), [*((kind, False) for kind in KINDS), (MultiHeadAttention, True)])
@given(s=problem, norm_first=orders, dtype=st.sampled_from(DTYPES), is_causal=st.booleans())
def test_every_dtype_stays_and_is_as_good_as_its_digits(kind, need_weights, s, norm_first, dtype, is_causal):
    """The bound is that of the equivalence ladder."""
    module = make(kind, s, norm_first, 0.25, dtype)
    x, memory = tokens(s.batch, s.n, s.d_model, dtype=dtype), tokens(s.batch, s.m, s.d_model, dtype=dtype)
    is_causal = is_causal and not isinstance(module, EncoderLayer | Encoder)
    output = run(module, x, memory, is_causal=is_causal, need_weights=need_weights)
    assert output.dtype == dtype
    assert all(gradient.dtype == dtype and gradient.isfinite().all() for gradient in gradients(output, (x, memory)))
    exact = run(module.double(), x.double(), memory.double(), is_causal=is_causal, need_weights=need_weights)
    longest = roundings(s, dtype)[KINDS[kind]]
    equal(output.double(), exact, 2 * longest**0.5 * torch.finfo(dtype).eps * exact.abs().amax().clamp(min=1).item())
