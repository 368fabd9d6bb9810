"""The families and the newer components: equal to torch and Hugging Face, causal, cached, and right at their edges."""

import math
import re
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from reference import both_orders, equal, padded_batch, randomise, small_config
from small import nonsense
from torch import nn

from transformer_lib.cache import KeyValueCache
from transformer_lib.decoding import sample_decode
from transformer_lib.decoding.search_state import SearchState
from transformer_lib.layers import EncoderLayer
from transformer_lib.masks import causal_mask
from transformer_lib.model import Encoder, Transformer
from transformer_lib.variants import (
    DecoderOnly,
    EncoderOnly,
    Ensemble,
    GroupedQueryAttention,
    ModernDecoderOnly,
    ensemble_of,
    mask_tokens,
)
from transformer_lib.variants.modern_blocks import rotary

PAD, MASK, V = 0, 12, 13


def make(kind, **options):
    """A model with random weights in float64, in evaluation mode."""
    sizes = {"d_model": 16, "num_heads": 4} | options
    return randomise(kind(small_config(**sizes)), 0.3).double().eval().requires_grad_(False)


# --- equal to Hugging Face's --------------------------------------------------------------------------------------
LLAMA = {  # their weights by our names; of several in one, one below the other
    "self_attention.in_projection": "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
    "self_attention.out_projection": "self_attn.o_proj", "self_attention_norm": "input_layernorm",
    "feed_forward.gate": "mlp.gate_proj", "feed_forward.linear1": "mlp.up_proj",
    "feed_forward.linear2": "mlp.down_proj", "feed_forward_norm": "post_attention_layernorm",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_modern_decoder_only_is_hugging_faces_llama():
    """With two groups; chapter 15.c compares others. Their rotation pairs channels half a head apart."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=V, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, rms_norm_eps=1e-6, tie_word_embeddings=False,
        attn_implementation="eager",
    )  # fmt: skip
    theirs = randomise(transformers.LlamaForCausalLM(config), 0.3).double().eval().requires_grad_(False)
    for module in theirs.modules():  # their frequencies are float32 until they are told otherwise
        if hasattr(module, "inv_freq"):
            module.inv_freq = 10000.0 ** (-torch.arange(0, 4, 2, dtype=torch.float64) / 4)
    ours = make(lambda config: ModernDecoderOnly(config, num_groups=2), norm_first=True)
    weights = {"embedding.weight": theirs.model.embed_tokens.weight, "output_projection.weight": theirs.lm_head.weight}
    weights["stack.norm.weight"] = theirs.model.norm.weight
    for number, layer in enumerate(theirs.model.layers):
        for name, paths in LLAMA.items():
            found = {path: layer.get_submodule(path).weight for path in paths.split()}
            for path in found.keys() & {"self_attn.q_proj", "self_attn.k_proj"}:  # (heads, 2, d_k / 2) -> pairs
                found[path] = found[path].unflatten(0, (-1, 2, 2)).transpose(1, 2).flatten(0, 2)
            weights[f"stack.layers.{number}.{name}.weight"] = torch.cat([*found.values()])
    ours.load_state_dict(weights)
    tokens = padded_batch((9, 9))
    # Their cosines and the roots of their norms are float32; angles up to 9 round at 5e-7 there.
    equal(ours(tokens), theirs(input_ids=tokens).logits, 2e-5)


# --- the encoder-only family --------------------------------------------------------------------------------------
def test_ties_share_the_embedding_and_the_rest_does_not():
    for kind in (EncoderOnly, DecoderOnly):
        assert make(kind).output_projection.weight is not make(kind).embedding.weight
        for ties in ("target", "all"):
            model = make(kind, tie_embeddings=ties)
            assert model.output_projection.weight is model.embedding.weight


def test_each_family_takes_its_side_of_the_configuration():
    sides = {"source_vocab_size": 20, "num_encoder_layers": 1, "target_vocab_size": 30, "num_decoder_layers": 3}
    for kind, size, depth in ((EncoderOnly, 20, 1), (DecoderOnly, 30, 3)):
        model = make(kind, **sides)
        assert (len(model.embedding.weight), len(model.output_projection.weight)) == (size, size)
        assert len(model.stack.layers) == depth


def test_initial_sizes_are_those_of_the_positions():
    torch.manual_seed(0)
    model = EncoderOnly(small_config(source_vocab_size=500, target_vocab_size=500, d_model=64, num_heads=4))
    for weight in (model.embedding.weight, model.output_projection.weight):
        assert abs(weight.std().item() * 8 - 1) < 0.03  # 1 / √64


@pytest.mark.bad_input
def test_all_that_takes_tokens_refuses_what_are_none():
    encoder, writer = make(EncoderOnly), make(DecoderOnly)
    for use in (encoder, encoder.hidden_states, encoder.sentence_vector, lambda prompt: writer.generate(prompt, 9)):
        for tokens in (torch.rand(2, 3), torch.tensor([1, 2, 3])):
            with pytest.raises(ValueError, match=r"integer token ids \(batch, length\); got torch"):
                use(tokens)


# --- masking tokens -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("pad", [0, 2, 4])
def test_a_random_replacement_is_any_token_but_padding(pad):
    tokens = torch.full((200, 100), 1 if pad == 0 else 0)
    inputs, chosen = mask_tokens(tokens, mask_id=3, pad_id=pad, vocab_size=5, rate=0.9)
    assert set(inputs[chosen].tolist()) == set(range(5)) - {pad}


def test_masking_repeats_with_its_generator_leaves_the_tokens_alone_and_refuses_other_rates():
    tokens = torch.randint(1, 12, (5, 40))
    before = tokens.clone()
    options = {"mask_id": MASK, "pad_id": PAD, "vocab_size": V}
    generators = (torch.Generator().manual_seed(seed) for seed in (1, 1, 2))
    first, second, third = (mask_tokens(tokens, generator=generator, **options) for generator in generators)
    assert torch.equal(first[0], second[0])
    assert not torch.equal(first[1], third[1])
    assert torch.equal(tokens, before)
    for rate in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="rate must be above 0"):
            mask_tokens(tokens, rate=rate, **options)


# --- the decoder-only family --------------------------------------------------------------------------------------
def test_beginnings_without_sources_are_rearranged():
    model, tokens = make(DecoderOnly, num_encoder_layers=1, num_decoder_layers=3), padded_batch((3, 3, 3))
    state = SearchState(model, tokens, use_cache=True)
    state.logits()
    state.append(tokens[:2, 0], rows=[2, 0])
    equal(state.logits(), model(torch.cat([tokens[[2, 0]], tokens[:2, :1]], dim=1))[:, -1], 1e-12)
    assert (state.sentences, state.cache.length) == ([2, 0], 4)


def always(*tokens):
    """A model that finds these tokens most probable, one a position, whatever it reads."""
    model = make(DecoderOnly, norm_first=True, max_len=32)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    width = model.config.d_model
    model.positions.table[: len(tokens)] = torch.eye(width, dtype=torch.float64)[: len(tokens)]
    nn.init.ones_(model.stack.norm.weight)
    for position, token in enumerate(tokens):
        model.output_projection.weight[token, position] = 1.0
    return model


def test_generation_ends_each_row_at_its_end_token_and_writes_no_padding_before():
    prompt = torch.tensor([[5], [6]])
    model = always(3, 4, 2, 7, 7)
    assert model.generate(prompt, 5).tolist()[0] == [5, 3, 4, 2, 7, 7]
    assert model.generate(prompt, 10, eos_id=2).tolist() == [[5, 3, 4, 2], [6, 3, 4, 2]]  # all ended: it stops
    assert model.generate(prompt, 2, eos_id=2).tolist() == [[5, 3, 4], [6, 3, 4]]
    drawn = model.generate(torch.full((40, 1), 5), 11, eos_id=2, seed=0).tolist()
    ends = [row.index(2) if 2 in row else len(row) for row in drawn]
    assert len(set(ends)) > 3  # rows end at different steps
    assert all(set(row[end + 1 :]) <= {PAD} and PAD not in row[: end + 1] for row, end in zip(drawn, ends))
    assert PAD not in always(PAD, PAD, PAD).generate(prompt[:1], 3)
    assert (always(3).generate(torch.ones(500, 1, dtype=torch.long), 2, seed=0) != PAD).all()


def test_one_seed_draws_the_tokens_of_sample_decode(monkeypatch):
    """Where both have the same logits, row by row, until each sentence has all its tokens."""
    logits = torch.randn(3, V, generator=torch.Generator().manual_seed(0))
    logits[:, 2] = -math.inf  # no sentence ends
    monkeypatch.setattr(SearchState, "logits", lambda self: logits[self.sentences])
    options = {"seed": 7, "temperature": 0.7, "top_k": 9, "top_p": 0.9}
    texts = DecoderOnly(small_config()).generate(torch.full((3, 1), 1), 6, **options)[:, 1:].tolist()
    options |= {"bos_id": 1, "eos_id": 2, "max_length": 6}
    assert texts == sample_decode(Transformer(small_config()), padded_batch((2, 2, 2)), **options)
    assert len({*map(tuple, texts)}) == 3  # each row draws for itself


def test_dropout_acts_while_training_only_and_what_was_written_can_be_trained_on():
    for kind in (DecoderOnly, ModernDecoderOnly):
        for name in ("dropout", "attention_dropout"):
            model = randomise(kind(small_config(d_model=16, num_heads=4, norm_first=True, **{name: 0.5}))).train()
            prompt = padded_batch((3, 3))
            assert not torch.equal(model(prompt), model(prompt))
            written = model.generate(prompt, 9)
            assert model.training
            assert torch.equal(model.generate(prompt, 9), written)
            model(written).sum().backward()


def test_generation_refuses_padding_nothing_too_much_and_damaged_weights():
    model = make(DecoderOnly)
    for prompt, got in ((padded_batch((3, 2)), "(2, 3), of which 1"), (torch.ones(2, 0).long(), "(2, 0), of which 0")):
        with pytest.raises(ValueError, match=re.escape(f"without padding; got shape {got} padding")):
            model.generate(prompt, 9)
    prompt = padded_batch((3, 3))
    with pytest.raises(ValueError, match=f"eos_id must differ .* got {PAD} for both"):
        model.generate(prompt, 9, eos_id=PAD)
    with mock.patch.object(model, "forward", side_effect=AssertionError("it began")):
        for length in (0, 30):
            with pytest.raises(ValueError, match=f"max_length must be from 1 to 29, .*; got {length}$"):
                model.generate(prompt, length)
    assert model.generate(prompt, 29).shape == (2, 32)
    nn.init.constant_(model.output_projection.weight, math.nan)
    with pytest.raises(ValueError, match="infinite or not numbers"):
        model.generate(prompt, 9)


@both_orders
def test_encoder_layer_and_stack_are_causal_when_asked(norm_first):
    config = small_config(d_model=16, num_heads=4, norm_first=norm_first)
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    for module in (EncoderLayer(**config.layer_arguments()), Encoder(config)):
        module = randomise(module).double()
        equal(module(x, is_causal=True), module(x, mask=causal_mask(6)), 1e-12)
        assert (module(x, is_causal=True) - module(x)).abs().max() > 1e-3
        with pytest.raises(ValueError, match="is_causal"):
            module(x, is_causal=True, mask=causal_mask(6))


# --- components ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_rotary_keeps_its_type_and_its_digits_far_out(dtype):
    """Position 100,000 cannot even be written in float16; angles are float64."""
    x = torch.randn(4, 8, dtype=torch.float64)
    got = rotary(x.to(dtype), offset=100_000)
    assert got.dtype == dtype
    equal(got.double(), rotary(x, offset=100_000), 16 * torch.finfo(dtype).eps)


def test_the_kernel_reads_the_cache_itself_and_no_copy_for_each_head():
    grouped, x = GroupedQueryAttention(24, 6, num_groups=2, positions=rotary), torch.randn(2, 1, 24)
    cache = KeyValueCache(1).layers[0].self_attention
    with mock.patch.object(F, "scaled_dot_product_attention", wraps=F.scaled_dot_product_attention) as kernel:
        grouped(x, x, x, cache=cache)
    _, key, value, *_ = kernel.call_args.args
    assert key is cache.key
    assert value is cache.value
    assert key.shape == value.shape == (2, 2, 1, 4)  # two groups, six heads


def test_groups_and_positions_refuse_what_does_not_fit():
    for groups in (5, 4, 0):
        with pytest.raises(ValueError, match=f"multiple of num_groups; got 6 and {groups}"):
            GroupedQueryAttention(24, 6, num_groups=groups)
    layer, x = GroupedQueryAttention(24, 6, num_groups=2, positions=rotary), torch.randn(2, 5, 24)
    with pytest.raises(ValueError, match="equal queries and keys"):
        layer(x, x + 1, x)
    equal(layer(x, x.clone(), x)[0], layer(x, x, x)[0], 1e-5)  # a wrapper may copy what it hands on
    with pytest.raises(ValueError, match="got d_k = 5"):
        rotary(torch.zeros(3, 5))
    with pytest.raises(ValueError, match="even d_model / num_heads; got 6 / 2"):
        ModernDecoderOnly(small_config(d_model=6, num_heads=2, norm_first=True))
    with pytest.raises(ValueError, match="norm_first=True"):
        make(ModernDecoderOnly)
    make(ModernDecoderOnly, norm_first=True).generate(torch.tensor([[3]]), 40)  # beyond max_len = 32: no table ends


# --- several translators as one -----------------------------------------------------------------------------------
def test_members_of_an_ensemble_have_the_same_tokens():
    for models in ([], [make(Transformer), make(Transformer, target_vocab_size=7)]):
        with pytest.raises(ValueError, match="expected models of the same vocabularies, pad_id and max_len"):
            Ensemble(models)
    with pytest.raises(ValueError, match="expected models of the same vocabularies"):
        ensemble_of([])


def test_translators_as_one_have_one_tokenizer(tmp_path):
    one, other = nonsense(tmp_path / "one"), nonsense(tmp_path / "other", texts=["the same number of tokens"] * 3)
    both = ensemble_of([one, one])
    assert both.translate(["A dog runs."]) == one.translate(["A dog runs."]) != [""]
    other.search.model = one.model
    with pytest.raises(ValueError, match="expected translators with one tokenizer"):
        ensemble_of([one, other])
