"""Decoding: the cache changes nothing, a beam of 1 is greedy, a full beam is brute force, rows stay apart."""

import functools
import itertools
import math
from inspect import signature
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from transformer_lib.cache import KeysAndValues, KeyValueCache
from transformer_lib.decoding import Hypothesis, beam_search, greedy_decode
from transformer_lib.decoding.sampling import sample_decode
from transformer_lib.decoding.search_state import SearchState, best_tokens
from transformer_lib.model import Memory, Transformer, TransformerConfig
from transformer_lib.multi_head import MultiHeadAttention
from transformer_lib.variants.grouped_attention import GroupedQueryAttention

PAD, BOS, EOS = 0, 1, 2
TOKENS = {"bos_id": BOS, "eos_id": EOS}


def random_model(seed, *, vocabulary=12, dtype=torch.float64, max_len=64, norm_first=True, **options):
    """A small random model in which the last token matters, so that it does not repeat one word for ever."""
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocabulary, vocabulary, PAD, d_model=16, num_heads=4, d_ff=32, num_encoder_layers=1,
        num_decoder_layers=2, max_len=max_len, norm_first=norm_first, **options,
    )  # fmt: skip
    model = Transformer(config).to(dtype).eval()
    with torch.no_grad():
        model.target_embedding.weight.mul_(2)
        model.output_projection.weight.mul_(2)
    return model


def random_source(seed, *, rows=5, length=8, vocabulary=12):
    generator = torch.Generator().manual_seed(seed)
    source = torch.randint(3, vocabulary, (rows, length), generator=generator)
    for row in range(1, rows):
        source[row, int(torch.randint(1, length + 1, (), generator=generator)) :] = PAD
    return source


def without_padding(row):
    return row[row != PAD][None]


class PrefixModel(torch.nn.Module):
    """Random logits for each whole prefix, drawn on demand: decoding without a Transformer."""

    def __init__(self, seed, vocabulary=5, max_len=12, spread=1.5, eos_bonus=0.0):
        super().__init__()
        self.seed, self.spread, self.eos_bonus, self.known = seed, spread, eos_bonus, {}
        self.config = SimpleNamespace(pad_id=PAD, target_vocab_size=vocabulary, num_decoder_layers=1, max_len=max_len)

    def encode(self, source_tokens):
        return Memory(source_tokens, source_tokens != PAD)

    def decode(self, target_tokens, memory, **_):
        words = [tuple(s) + tuple(t) for s, t in zip(memory.states.tolist(), target_tokens.tolist(), strict=True)]
        self.rows = words
        return torch.arange(len(words))[:, None, None]  # a row's hidden state is its number

    def output_projection(self, hidden):
        return torch.stack([self.logits(self.rows[row]) for row in hidden[:, 0].tolist()])

    def logits(self, words):
        if words not in self.known:
            key = functools.reduce(lambda key, word: (31 * key + word + 1) % 2**31, words, self.seed)
            generator = torch.Generator().manual_seed(key)
            logits = self.spread * torch.randn(self.config.target_vocab_size, generator=generator, dtype=torch.float64)
            logits[EOS] += self.eos_bonus
            self.known[words] = logits
        return self.known[words]


def search(model, source, **options):
    return beam_search(model, source, **TOKENS, use_cache=False, **options)


def plain_search(model, row, size, alpha, limit, *, patient=False):
    """The rules of the chapter in plain Python, for one sentence; a patient search does not stop early."""
    live, finished = [(0.0, ())], []
    for length in range(1, limit + 1):
        candidates = []
        for total, words in live:
            log_probs = model.logits((*row, BOS, *words)).log_softmax(dim=-1).tolist()
            candidates += [(total + p, (*words, token)) for token, p in enumerate(log_probs) if token != PAD]
        candidates.sort(key=lambda candidate: -candidate[0])
        kept = candidates[: size - len(finished)]
        finished += [(total / length**alpha, words[:-1], True) for total, words in kept if words[-1] == EOS]
        live = [(total, words) for total, words in kept if words[-1] != EOS]
        if not live or (finished and not patient and max(finished)[0] >= live[0][0] / limit**alpha):
            break
    cut = [(total / limit**alpha, words, False) for total, words in live]
    return sorted(finished or cut, key=lambda found: -found[0])


def test_the_cache_processes_each_position_once():
    with pytest.raises(ValueError, match="num_layers=0"):
        KeyValueCache(0)
    model, lengths = random_model(0, max_len=40), []
    decode = model.decode
    model.decode = lambda tokens, *args, **options: lengths.append(tokens.size(1)) or decode(tokens, *args, **options)
    for options in ({}, {"use_cache": True}, {"use_cache": False}):
        (tokens,) = greedy_decode(model, torch.full((1, 3), 4), **TOKENS, max_length=40, **options)
        beam_search(model, torch.full((1, 3), 4), **TOKENS, beam_size=1, max_length=40, **options)
        steps = min(len(tokens) + 1, 40)
        assert steps > 3
        assert lengths == 2 * (list(range(1, steps + 1)) if options == {"use_cache": False} else [1] * steps)
        lengths.clear()


def test_memory_is_projected_once_a_sentence():
    """A search begins with one row for each sentence; later steps make queries alone."""
    model, source, projected = random_model(3, vocabulary=40), random_source(0, vocabulary=40), []
    attention = model.decoder.layers[0].cross_attention
    project = attention.project
    attention.project = lambda *x: projected.append((len(x[1]), x[1].size(1))) or project(*x)
    beam_search(model, source, **TOKENS, beam_size=4)
    assert [rows for rows, keys in projected if keys] == [5]
    assert max(rows for rows, _ in projected) > 5


@pytest.mark.parametrize("attention", [MultiHeadAttention, functools.partial(GroupedQueryAttention, num_groups=2)])
def test_a_cached_token_makes_its_query_and_neither_keys_nor_values_of_the_memory(attention, monkeypatch):
    layer, memory, cache, made = attention(16, 4).double(), torch.randn(2, 5, 16).double(), KeysAndValues(), []
    first, second = torch.randn(2, 2, 1, 16).double()
    layer(first, memory, memory, cache=cache)
    linear = F.linear
    monkeypatch.setattr(F, "linear", lambda *x: made.append(len(x[1])) or linear(*x))
    answer = layer(second, memory[:, :0], memory[:, :0], cache=cache)[0]
    assert made == [16, 16]  # the query, and what is made of what the heads found
    torch.testing.assert_close(answer, layer(second, memory, memory)[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_state_scores_the_next_tokens_of_its_rows(use_cache):
    """Through changes of rows, fewer sentences, and a source of padding only."""
    model, source = random_model(0), random_source(1)
    source[2] = PAD
    changes = {2: [0, 0, 1, 2, 2, 3, 4], 4: [1, 0, 2, 3, 4, 5, 6], 6: [6, 6, 2, 1], 7: [3, 1, 0], 9: [1]}
    sentences, generator = list(range(5)), torch.Generator().manual_seed(0)
    with torch.no_grad():
        state = SearchState(model, torch.full((5, 1), BOS), source, use_cache=use_cache)
        for step in range(12):
            wanted = model(source[sentences], state.tokens, is_causal=True)[:, -1]
            assert (state.logits() - wanted).abs().max() < 1e-12
            rows = changes.get(step)
            sentences = [sentences[row] for row in rows] if rows else sentences
            wanted = state.tokens[rows] if rows else state.tokens
            new = torch.randint(3, 12, (len(sentences),), generator=generator)
            state.append(new, rows)
            assert state.sentences == sentences
            assert torch.equal(state.tokens, torch.cat([wanted, new[:, None]], dim=1))


def test_the_best_tokens_are_those_of_a_full_sort():
    for vocabulary, spread in itertools.product((7, 97, 400), (1, 3, 1000)):
        logits = torch.randint(-spread, spread + 1, (30, vocabulary)).float()
        logits[:, 0] = -math.inf
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        for count in (1, 2, 5, vocabulary, vocabulary + 3):
            best, tokens = best_tokens(logits, count)
            assert torch.equal(best, ordered[:, :count])
            assert torch.equal(tokens, order[:, :count])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_beam_of_one_is_greedy(dtype):
    """And the cache changes nothing. What greedy is, page D compares with a naive loop."""
    for seed in range(2):
        model, source = random_model(seed, dtype=dtype), random_source(seed)
        beam = beam_search(model, source, **TOKENS, beam_size=1, length_penalty=seed / 2, max_length=16)
        assert [best.tokens for (best,) in beam] == greedy_decode(model, source, **TOKENS, max_length=16)
        if dtype is torch.float64:
            assert greedy_decode(model, source, **TOKENS) == greedy_decode(model, source, **TOKENS, use_cache=False)


@pytest.mark.parametrize(("beam_size", "rows"), [(2, 70), (5, 6)])
def test_neighbours_do_not_matter(beam_size, rows):
    model, source = random_model(3), random_source(3, rows=rows)
    size = {} if beam_size == 5 else {"beam_size": beam_size}  # 5 is the default
    together = beam_search(model, source, **TOKENS, **size)
    wider = torch.cat([source, torch.full((rows, 9), PAD)], dim=1)
    backwards = beam_search(model, wider.flip(0), **TOKENS, beam_size=beam_size)[::-1]
    for row, found, other in list(zip(source, together, backwards, strict=True))[-12:]:
        (alone,) = beam_search(model, without_padding(row), **TOKENS, beam_size=beam_size)
        assert [h.tokens for h in found] == [h.tokens for h in alone] == [h.tokens for h in other]
        assert [h.score for h in found] == pytest.approx([h.score for h in alone], rel=0, abs=1e-11)


def test_a_full_beam_is_brute_force():
    """Vocabulary of 5: three tokens go on, one ends; within 4 tokens 40 sentences end and 81 do not."""
    lengths, sentences = set(), [s for n in range(4) for s in itertools.product((1, 3, 4), repeat=n)]
    for seed, alpha in enumerate((0.0, 0.3, 1.0, 2.0)):
        model, source, scores = random_model(seed, vocabulary=5), torch.tensor([[3, 4, 4]]), {}
        for words in sentences:
            target = torch.tensor([[BOS, *words, EOS]])
            with torch.no_grad():
                log_probs = model(source, target[:, :-1]).log_softmax(dim=-1)
            scores[words] = log_probs.gather(2, target[:, 1:, None]).sum().item() / (len(words) + 1) ** alpha
        best = max(scores, key=scores.__getitem__)
        ((found, *rest),) = beam_search(model, source, **TOKENS, beam_size=121, length_penalty=alpha, max_length=4)
        assert len({tuple(h.tokens) for h in (found, *rest)}) == 1 + len(rest) <= 121  # each but once
        assert (tuple(found.tokens), found.finished) == (best, True)
        assert found.score == pytest.approx(scores[best], rel=0, abs=1e-11)
        lengths.add(len(best))
    assert len(lengths) > 1


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 3.0])
@pytest.mark.parametrize("eos_bonus", [1.0, -9.0])
def test_a_search_is_the_plain_one_and_stopping_early_never_changes_the_best(alpha, eos_bonus):
    """Hypothesis for hypothesis. A patient search stops only when nothing is live or the limit is reached."""
    finished, early, late = set(), 0, 0
    for seed in range(10):
        model, source = PrefixModel(seed, eos_bonus=eos_bonus), torch.tensor([[3], [4]])
        for size in (1, 2, 4):
            found = search(model, source, beam_size=size, length_penalty=alpha)
            for row, hypotheses in zip(source.tolist(), found, strict=True):
                wanted = plain_search(model, row, size, alpha, 12)  # limit: 2 · 1 + 10
                assert [(tuple(h.tokens), h.finished) for h in hypotheses] == [found[1:] for found in wanted]
                assert [h.score for h in hypotheses] == pytest.approx([score for score, *_ in wanted], rel=0, abs=1e-11)
                patient = plain_search(model, row, size, alpha, 12, patient=True)
                assert tuple(hypotheses[0].tokens) == patient[0][1]
                finished |= {h.finished for h in hypotheses}
                early, late = early + len(hypotheses), late + len(patient)
    assert finished == {eos_bonus > 0} or (finished == {True, False} and eos_bonus < 0)
    assert late > early if alpha < 3 and eos_bonus > 0 else late >= early  # it did stop early, somewhere


class ConstantModel(PrefixModel):
    def __init__(self, logits, **options):
        super().__init__(0, vocabulary=len(logits), **options)
        self.constant = torch.tensor(logits)

    def logits(self, words):
        return self.constant


def test_ties_go_to_the_lower_token():
    model = ConstantModel([0.0] * 300)
    source = torch.tensor([[3], [4]])
    # First 1, 2 = the end, 3; nothing live can beat the end at once.
    assert [[h.tokens for h in found] for found in search(model, source, beam_size=3, length_penalty=0.0)] == [[[]]] * 2
    assert greedy_decode(model, source, **TOKENS, max_length=2, use_cache=False) == [[1, 1]] * 2
    model.constant[EOS] = -30.0
    for best, wanted in ((0.0, [[1, 1], [1, 3], [1, 4]]), (9.0, [[5, 5], [5, 1], [5, 3]])):
        model.constant[5] = best
        found, _ = search(model, source, beam_size=3, max_length=2)
        assert [h.tokens for h in found] == wanted


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("level", [-70.0, 0.0, 70.0])
def test_log_probabilities_are_as_exact_as_the_logits(dtype, level):
    """The sum over the vocabulary is taken in float32 or better, whatever the dtype and the size of the logits."""
    model = ConstantModel((torch.linspace(-3, 3, 300) + level).tolist())
    model.constant = model.constant.to(dtype)
    ((best,),) = search(model, torch.tensor([[3]]), beam_size=1, max_length=1)
    exact = model.constant.double().log_softmax(dim=0)[best.tokens[0]].item()
    assert best.score == pytest.approx(exact, rel=0, abs=1e-5)


def test_padding_and_impossible_tokens_are_never_chosen():
    model = ConstantModel([9.0, -5.0, 0.0, 1.0, -math.inf])
    assert greedy_decode(model, torch.tensor([[3]]), **TOKENS, max_length=3, use_cache=False) == [[3, 3, 3]]
    for h in search(model, torch.tensor([[3]]), beam_size=20, max_length=3)[0]:
        assert not {PAD, 4} & set(h.tokens)
        total = sum(model.constant.log_softmax(0)[[*h.tokens] + [EOS] * h.finished].tolist())  # padding is in the sum
        assert h.score == pytest.approx(total / (len(h.tokens) + h.finished), rel=0, abs=1e-5)


def both(model, source):
    yield lambda: greedy_decode(model, source, **TOKENS)
    yield lambda: beam_search(model, source, **TOKENS)


def test_modes_are_restored_dropout_is_off_and_no_gradients_are_recorded():
    model, source = random_model(0, dropout=0.5), random_source(0)
    wanted = [call() for call in both(model, source)]
    model.train()
    model.encoder.eval()  # frozen by its owner
    before, decode, seen = [module.training for module in model.modules()], model.decode, []
    model.decode = lambda *args, **options: seen.append(torch.is_grad_enabled()) or decode(*args, **options)
    assert [call() for call in both(model, source)] == wanted
    assert set(seen) == {False}
    damage = [math.nan, -math.inf] * 3  # in one row of five
    model.output_projection.register_forward_hook(lambda _, __, x: x.index_fill(0, torch.tensor(0), damage.pop()))
    for call in (*both(model, source), lambda: sample_decode(model, source, **TOKENS, seed=0)) * 2:
        assert [module.training for module in model.modules()] == before
        with pytest.raises(ValueError, match="not numbers"):
            call()
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
    assert [module.training for module in model.modules()] == before


def test_default_limit_is_each_sentences_own():
    model, limits = ConstantModel([0.0, 0.0, -90.0, 1.0], max_len=17), (17, 12, 14, 10)
    source = torch.tensor([[3, 3, 3, 3, 3], [3, 0, 0, 0, 0], [3, 3, 0, 0, 0], [0, 0, 0, 0, 0]])
    assert greedy_decode(model, source, **TOKENS, use_cache=False) == [[3] * limit for limit in limits]
    for (best, *_), limit in zip(search(model, source, beam_size=1), limits, strict=True):
        assert best == Hypothesis([3] * limit, best.score, False)
    with_positions = random_model(0, max_len=6)  # the last of its positions can be used
    assert max(map(len, greedy_decode(with_positions, random_source(0, length=6), **TOKENS, max_length=6))) == 6


def test_empty_batches_and_sources_of_padding_only_and_of_int32():
    model, source = random_model(0), torch.tensor([[3, 4], [PAD, PAD]])
    for call in both(model, source[:0]):
        assert call() == []
    for together, alone in zip(both(model, source.int()), both(model, source[:1]), strict=True):
        first, _ = together()
        with torch.device("meta"):  # what it makes stands where the source stands, whatever the default is
            (only,) = alone()
        if isinstance(only[0], Hypothesis):  # another batch may round otherwise
            assert [h.score for h in first] == pytest.approx([h.score for h in only], rel=0, abs=1e-11)
            first, only = ([(h.tokens, h.finished) for h in found] for found in (first, only))
        assert first == only


def test_a_target_may_begin_with_padding():
    """Some models begin with the padding token; the first token is read, with the cache and without."""
    model, source = random_model(1), random_source(1)
    found = greedy_decode(model, source, bos_id=PAD, eos_id=EOS)
    assert found == greedy_decode(model, source, bos_id=PAD, eos_id=EOS, use_cache=False)
    assert found != greedy_decode(model, source, **TOKENS)


@pytest.mark.parametrize(("options", "message"), [
    ({"max_length": 0}, "max_length.*got 0"), ({"max_length": 65}, "64; got 65"),
    ({"eos_id": 12}, "^eos_id must.*0 to 11; got 12"), ({"bos_id": -1}, "^bos_id must.*got -1"),
    ({"eos_id": PAD}, "pad_id.*got 0"), ({"beam_size": 0}, "beam_size.*got 0"),
    ({"length_penalty": -0.5}, "length_penalty.*got -0.5"), ({"length_penalty": math.nan}, "length_penalty.*got nan"),
    ({"length_penalty": 50.5}, "length_penalty.*0 to 50; got 50.5"), ({"temperature": 0.0}, "temperature.*got 0.0"),
    ({"temperature": math.nan}, "temperature.*got nan"), ({"top_k": 0}, "top_k.*got 0"),
    ({"top_p": 0.0}, "top_p.*got 0.0"),
])  # fmt: skip
def test_bad_arguments_are_named(options, message):
    functions = beam_search, greedy_decode, functools.partial(sample_decode, seed=0)
    calls = [function for function in functions if options.keys() <= signature(function).parameters.keys()]
    assert calls
    for call in calls:
        with pytest.raises(ValueError, match=message):
            call(random_model(0), random_source(0), **TOKENS | options)


@pytest.mark.bad_input
@pytest.mark.parametrize(("source", "message"), [
    (torch.tensor([3, 4]), r"token ids \(batch, length\), .*; got torch.int64 \(2,\)"),
    (torch.ones(2, 3), r"int64 or int32; got torch.float32 \(2, 3\)"), (torch.full((1, 65), 3), "64; got 65"),
])  # fmt: skip
def test_a_source_that_is_none_is_refused(source, message):
    model = random_model(0)
    for call in (*both(model, source), lambda: sample_decode(model, source, **TOKENS, seed=0)):
        with pytest.raises(ValueError, match=f"^source must be .*{message}"):
            call()


def test_the_largest_length_penalty_overflows_nowhere():
    model = ConstantModel([0.0, 0.0, 9.0, 1.0], max_len=2**20)
    ((best,),) = search(model, torch.tensor([[3]]), beam_size=1, length_penalty=50.0, max_length=2**20)
    assert math.isfinite(best.score)


def test_the_same_seed_draws_the_same():
    model, source, state = random_model(0), random_source(0), torch.random.get_rng_state()
    first, again, other = (sample_decode(model, source, **TOKENS, seed=seed) for seed in (7, 7, 8))
    assert first == again != other
    assert torch.equal(torch.random.get_rng_state(), state)  # nobody else's random numbers are used


@pytest.mark.parametrize("dials", [{"top_k": 1}, {"temperature": 1e-6}, {"top_p": 1e-9}])
def test_sampling_from_one_token_is_greedy(dials):
    """With which probabilities tokens are drawn, page D counts."""
    model, source = random_model(0), random_source(0)
    assert sample_decode(model, source, **TOKENS, seed=0, **dials) == greedy_decode(model, source, **TOKENS)


def test_a_lot_depends_on_the_place_and_not_on_the_neighbours():
    """The second row's neighbours end earlier or later: it is drawn the same."""
    model, source = random_model(0), random_source(0, rows=3)
    found = sample_decode(model, source, **TOKENS, seed=0)
    for neighbour in (3, 4, PAD):
        others = source.clone()
        others[0], others[2] = neighbour, 11
        assert sample_decode(model, others, **TOKENS, seed=0)[1] == found[1]
    assert sample_decode(model, source, **TOKENS, seed=0, use_cache=False) == found
