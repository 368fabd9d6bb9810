"""The full model: equal to nn.Transformer, blind to the future and to padding, awake to the source, honestly tied."""

import json
import math
from dataclasses import FrozenInstanceError, asdict, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import DTYPES, PAD, both_orders, equal, padded_batch, replace_from, small_config, small_model
from torch import nn

from transformer_lib.cache import KeyValueCache
from transformer_lib.masks import decoder_mask, padding_mask
from transformer_lib.model import Decoder, Encoder, Transformer, TransformerConfig
from transformer_lib.multi_head import MultiHeadAttention
from transformer_lib.positions import sinusoidal_table
from transformer_lib.training import TrainingConfig
from transformer_lib.variants import SwiGLU

ties = pytest.mark.parametrize("tie", ["none", "target", "all"])


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_papers_base_model_has_the_published_number_of_parameters():
    """nn.Transformer counts 44,140,544: two norms of 1024 parameters more than post-norm stacks have in the paper."""
    with torch.device("meta"):
        configs = {first: TransformerConfig(10, 10, 0, norm_first=first) for first in (False, True)}
        stacks = {first: count(Encoder(config)) + count(Decoder(config)) for first, config in configs.items()}
        tied = count(Transformer(TransformerConfig(37000, 37000, 0, tie_embeddings="all")))
    assert stacks == {False: 44_138_496, True: 44_140_544}
    assert tied == 44_138_496 + 37000 * 512


def test_the_layers_of_a_model_are_made_of_what_it_is_given():
    model = Transformer(small_config(), norm=nn.RMSNorm, feed_forward=SwiGLU)
    for stack in (model.encoder, model.decoder):
        kinds = [type(module) for layer in stack.layers for module in layer.modules()]
        assert kinds.count(SwiGLU) == len(stack.layers)
        assert nn.RMSNorm in kinds
        assert nn.LayerNorm not in kinds


number = st.integers(1, 6)


@given(st.integers(1, 3), number, number, number, st.booleans(), st.sampled_from(["none", "target", "all"]), number)
def test_logits_depend_on_earlier_target_tokens_and_on_no_later_one(batch, n, m, start, norm_first, tie, seed):
    """With padding anywhere in the source. Without padding in the target, the two causal paths agree."""
    torch.manual_seed(seed)
    model = small_model(norm_first=norm_first, tie_embeddings=tie, num_encoder_layers=1, num_decoder_layers=1)
    source, target, position = torch.randint(0, 13, (batch, n)), torch.randint(1, 13, (batch, m)), start % m
    logits = model(source, target)
    assert logits.shape == (batch, m, 13)
    difference = (model(source, replace_from(target, position)) - logits).abs().amax(dim=-1)
    assert (difference[:, :position] < 1e-12).all()
    assert (difference[:, position:] > 1e-9).all()
    equal(model.output_projection(model.decode(target, model.encode(source), is_causal=True)), logits)


@both_orders
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_every_dtype_runs_and_a_source_of_nothing_but_padding_spoils_nothing(side, dtype, norm_first):
    model = small_model(dtype, norm_first=norm_first)
    source, target = padded_batch((4, 0), side), padded_batch((3, 5), side)
    logits = model(source, target)
    assert logits.dtype == dtype
    assert logits.isfinite().all()
    nn.functional.cross_entropy(logits[0], torch.randint(1, 13, (5,))).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
    if dtype == torch.float64:
        equal(model(source[:1], target[:1])[0], logits[0])


@both_orders
def test_forward_is_the_two_stacks_with_the_masks_of_the_tokens(norm_first):
    model, source, target = small_model(norm_first=norm_first), padded_batch(), padded_batch((3, 6, 2), "left")
    x, y = model.embed(source, model.source_embedding), model.embed(target, model.target_embedding)
    mask, memory = padding_mask(source, PAD), model.encode(source)
    equal(memory.states, model.encoder(x, mask=mask), 0)
    equal(memory.mask, mask, 0)
    hidden = model.decoder(y, memory.states, mask=decoder_mask(target, PAD), memory_mask=mask)
    equal(model.decode(target, memory), hidden, 0)
    equal(model.hidden_states(source, target), hidden, 0)
    equal(model(source, target), model.output_projection(hidden), 0)
    unmasked = model.decoder(y, memory.states, memory_mask=mask, is_causal=True)  # with the padding on the left
    equal(model(source, target, is_causal=True), model.output_projection(unmasked), 0)
    for options in ({"mask": mask}, {"memory_mask": mask}):
        with pytest.raises(TypeError, match="unexpected keyword"):
            model.decode(target, memory, **options)  # nobody can forget causality, or the padding


def test_what_enters_the_encoder_is_the_scaled_embedding_plus_the_table():
    model, source = small_model(), padded_batch()
    seen = []
    model.encoder.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model.encode(source)
    expected = model.source_embedding(source) * math.sqrt(12) + sinusoidal_table(7, 12)
    equal(seen[0], expected, 1e-7)  # the stored table is float32


@ties
def test_the_scaled_embedding_starts_with_rms_one(tie):
    model = Transformer(small_config(source_vocab_size=1000, target_vocab_size=1000, d_model=60, tie_embeddings=tie))
    for embedding in (model.source_embedding, model.target_embedding):
        scaled = embedding.weight * math.sqrt(60)
        assert abs(scaled.square().mean().sqrt() - 1) < 0.02  # 60,000 draws: the standard deviation is 0.003
    assert abs(model.positions.table.square().mean().sqrt() - 0.5**0.5) < 1e-6


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_dropout_falls_on_the_embedding_with_its_position(stack):
    model = small_model(dropout=0.25, d_model=30, max_len=64).train()
    seen = []
    getattr(model, stack).register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    tokens = torch.randint(1, 13, (4, 40))
    model(tokens, tokens)
    assert 0.22 < (seen[0] == 0).double().mean() < 0.28  # 4800 draws: the standard deviation is 0.006


def test_every_layer_gets_the_configured_probabilities():
    model = small_model(dropout=0.2, attention_dropout=0.3)
    layers = [*model.encoder.layers, *model.decoder.layers]
    assert [layer.dropout.p for layer in layers] == [0.2] * 4
    assert model.dropout.p == 0.2
    assert [m.dropout for m in model.modules() if isinstance(m, MultiHeadAttention)] == [0.3] * 6
    assert [layer.feed_forward.dropout.p for layer in layers] == [0] * 4  # the paper drops nothing inside


@ties
def test_tying_shares_the_matrix_and_layers_share_nothing(tie):
    """How many parameters that leaves, test_cost.py counts."""
    model = Transformer(small_config(tie_embeddings=tie))
    source, target = model.source_embedding.weight, model.target_embedding.weight
    assert (model.output_projection.weight is target) == (tie != "none")
    assert (source is target) == (tie == "all")
    first, second = model.encoder.layers
    assert not torch.equal(first.self_attention.in_projection.weight, second.self_attention.in_projection.weight)


@both_orders
@pytest.mark.parametrize("side", ["left", "right"])
def test_cached_decoding_equals_uncached(norm_first, side):
    model, source, target = small_model(norm_first=norm_first), padded_batch(side=side), padded_batch((9, 9, 9))
    memory, at_once = model.encode(source), model.decode(target, model.encode(source))
    for lengths in ([1] * 9, [4, 1, 2, 2]):
        cache, parts = KeyValueCache(2), []
        for tokens in target.split(lengths, dim=1):
            assert cache.length == sum(part.size(1) for part in parts)
            parts.append(model.decode(tokens, memory, cache=cache))
            memory = memory._replace(states=torch.full_like(memory.states, float("nan")))  # projected only once
        equal(torch.cat(parts, dim=1), at_once)
        memory = model.encode(source)


@pytest.mark.bad_input
@pytest.mark.parametrize(("change", "message"), [
    *(({name: 0}, rf"{name} must be at least 1; got 0") for name in (
        "source_vocab_size", "target_vocab_size", "d_model", "num_heads", "d_ff", "num_encoder_layers",
        "num_decoder_layers", "max_len")),
    ({"dropout": 1.0}, "dropout must be at least 0 and below 1; got 1.0"),
    ({"attention_dropout": float("nan")}, "attention_dropout must be at least 0 and below 1; got nan"),
    ({"d_model": 12.0}, "d_model must be of type int; got 12.0"), ({"d_model": True}, "of type int; got True"),
    ({"tie_embeddings": None}, "of type str; got None"), ({"num_heads": 5}, "multiple of num_heads; got 12 and 5"),
    ({"pad_id": -1}, r"pad_id.*\(13, 13\).*got -1"),
    ({"pad_id": 12, "target_vocab_size": 12}, r"pad_id.*\(13, 12\).*got 12"),
    ({"tie_embeddings": "both"}, "'none', 'target' or 'all'; got 'both'"),
    ({"tie_embeddings": "all", "target_vocab_size": 14}, r"one joint vocabulary; got sizes \(13, 14\)"),
])  # fmt: skip
def test_a_configuration_out_of_range_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(small_config(), **change)


@pytest.mark.bad_input
def test_numpys_numbers_are_numbers_and_lists_are_tuples():
    config = TransformerConfig(np.int64(13), 13, np.uint8(0), dropout=np.float32(0.5))
    assert json.dumps(asdict(config)) == json.dumps(asdict(TransformerConfig(13, 13, 0, dropout=0.5)))
    training = TrainingConfig(steps=np.int32(4), adam_betas=[np.float32(0.5), 0])
    assert repr((training.steps, training.adam_betas)) == "(4, (0.5, 0))"
    for options in ({"adam_betas": (0.5,)}, {"adam_betas": (0.5, "much")}, {"adam_betas": 0.5}, {"steps": "many"}):
        with pytest.raises(ValueError, match=r"(adam_betas|steps) must be of type"):
            TrainingConfig(**{"steps": 4} | options)


def test_the_configuration_is_the_papers_base_model_and_frozen():
    config = TransformerConfig(100, 200, 1)
    assert config == TransformerConfig(
        100, 200, 1, d_model=512, num_heads=8, d_ff=2048, num_encoder_layers=6, num_decoder_layers=6, dropout=0.1,
        attention_dropout=0.0, max_len=1024, norm_first=False, tie_embeddings="none",
    )  # fmt: skip
    with pytest.raises(FrozenInstanceError):
        config.d_model = 256


def test_beyond_max_len_both_numbers_are_named_and_what_is_cached_counts():
    model, long = small_model(max_len=8), padded_batch((8,))
    assert model(long, long).isfinite().all()
    memory, cache = model.encode(long), KeyValueCache(2)
    model.decode(long, memory, cache=cache)
    longer = padded_batch((9,))
    for call in (lambda: model(long, longer), lambda: model(longer, long),
                 lambda: model.decode(long[:, :1], memory, cache=cache)):  # fmt: skip
        with pytest.raises(ValueError, match=r"9 positions.*max_len is 8"):
            call()


@pytest.mark.bad_input
def test_bad_tokens_and_the_causal_kernel_with_a_cache_are_refused():
    model, source, target = small_model(), padded_batch(), padded_batch((3, 6, 2))
    for call, got in (
        (lambda: model(source, target[:2]), r"\(3, 7\) and \(2, 6\)"),
        (lambda: model(source.float(), target), r"float32 \(3, 7\)"),
        (lambda: model(source, target.float()), r"float32 \(3, 6\)"),
        (lambda: model.encode(source[0]), r"int64 \(7,\)"),
        (lambda: model.encode(torch.tensor([[3, 99]])), r"ids from 0 to 12; got 3 to 99$"),
    ):
        with pytest.raises(ValueError, match=got):
            call()
    with pytest.raises(ValueError, match="is_causal"):
        model.decode(source, model.encode(source), is_causal=True, cache=KeyValueCache(2))
