# Generated from chapters/D_search.md: edit it there and `make export`, or here and `make sync`.

"""Decoding: from next-token probabilities to sentences, greedily or with a beam."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lib.decoding.search_state import DAMAGED, SearchState, best_tokens, length_limits, require_finite
from transformer_lib.files import InputError
from transformer_lib.model import Transformer, evaluation


def decode_token_by_token(
    choose: Callable[[Tensor, list[int]], Tensor], model: Transformer, source: Int[Tensor, "batch n"],
    bos_id: int, eos_id: int, max_length: int | list[int] | None, use_cache: bool,
) -> list[list[int]]:  # fmt: skip
    """Translate each sentence token by token; arguments, result and errors are those of `greedy_decode`.

    `choose` gets the logits (rows, vocabulary) and the index of each row's sentence, and returns tokens (rows,).
    """
    limits = length_limits(model, source, bos_id, eos_id, max_length)
    outputs: list[list[int]] = [[] for _ in limits]
    if not limits:
        return outputs
    with evaluation(model):
        state = SearchState(model, source.new_full((len(limits), 1), bos_id), source, use_cache=use_cache)
        while state.sentences:
            logits = state.logits()  # (rows, vocabulary)
            logits[:, model.config.pad_id] = -math.inf  # later steps would mask it out
            tokens = choose(logits, state.sentences)  # (rows,)
            rows = []  # those that go on
            for row, (sentence, token) in enumerate(zip(state.sentences, tokens.tolist())):
                if token != eos_id:
                    outputs[sentence].append(token)
                    if len(outputs[sentence]) < limits[sentence]:
                        rows.append(row)
            if len(rows) < len(tokens):  # some have ended
                tokens = tokens[tokens.new_tensor(rows)]
            state.append(tokens, rows)
    return outputs


def greedy_decode(
    model: Transformer,
    source: Int[Tensor, "batch n"],
    *,
    bos_id: int,
    eos_id: int,
    max_length: int | list[int] | None = None,
    use_cache: bool = True,
) -> list[list[int]]:
    """Translate each sentence by the most probable token at each step: of equal ones the lower, and never padding.

    The model runs in eval mode and without gradients, and afterwards each module has its own mode again.

    Args:
        model: the translator.
        source: token ids (batch, n), right-padded with the model's pad_id.
        bos_id: the token every target begins with.
        eos_id: the token that ends a sentence.
        max_length: the largest number of tokens, the end token counted; a list has one for each sentence. By default
            twice the length of the sentence's own source plus ten, and at most the model's max_len.
        use_cache: False computes all earlier positions anew at each step; the result is the same up to rounding.

    Returns:
        For each sentence its tokens, without bos_id and eos_id.

    Raises:
        ValueError: source is not (batch, n), not int64 or int32, or longer than the model's max_len; bos_id or eos_id
            is not in the target vocabulary; eos_id is padding; max_length is not from 1 to the model's max_len.
        InputError: the logits are not finite.
    """

    def most_probable(logits: Float[Tensor, "rows vocabulary"], _: list[int]) -> Int[Tensor, " rows"]:
        best, tokens = logits.max(dim=-1)  # of equal ones, `max` promises the first
        require_finite(best)
        return tokens

    return decode_token_by_token(most_probable, model, source, bos_id, eos_id, max_length, use_cache)


@dataclass(frozen=True)
class Hypothesis:
    """A translation that a beam search found.

    Args:
        tokens: token ids, without the beginning and the end token.
        score: log-probability / length^α, natural logarithm, the end token counted.
        finished: False if the search hit the length limit, so that there is no end token to count.
    """

    tokens: list[int]
    score: float
    finished: bool = True


@dataclass
class _Beam:
    """The hypotheses of one sentence, at most `size`; none is live once the search is over."""

    size: int
    length_penalty: float
    max_length: int
    eos_id: int
    live: list[tuple[float, list[int]]] = field(default_factory=lambda: [(0.0, [])])  # best first
    finished: list[Hypothesis] = field(default_factory=list)

    def advance(self, rows: range, tokens: list[list[int]], log_probs: list[list[float]]) -> list[int]:
        """Extend the live hypotheses, which have these rows, by one token; return the row that each one comes from."""
        candidates = [
            (total + log_prob, row, prefix, token)
            for row, (total, prefix) in zip(rows, self.live)
            for token, log_prob in zip(tokens[row], log_probs[row])
            if log_prob > -math.inf
        ]
        candidates.sort(key=lambda candidate: -candidate[0])  # equal ones stay in their order
        live, parents = [], []
        for total, row, prefix, token in candidates[: self.size - len(self.finished)]:  # rule 1: the slots left
            if token == self.eos_id:
                self.finished.append(Hypothesis(prefix, total / (len(prefix) + 1) ** self.length_penalty))  # rule 2
            else:
                live.append((total, [*prefix, token]))
                parents.append(row)
        divisor = self.max_length**self.length_penalty
        best = max((hypothesis.score for hypothesis in self.finished), default=-math.inf)
        if live and len(live[0][1]) < self.max_length and best < live[0][0] / divisor:
            self.live = live
            return parents
        self.live = []  # nothing live can win, or the limit
        if not self.finished:
            self.finished = [Hypothesis(prefix, total / divisor, False) for total, prefix in live]  # rule 3
        return []


def beam_search(
    model: Transformer,
    source: Int[Tensor, "batch n"],
    *,
    bos_id: int,
    eos_id: int,
    beam_size: int = 5,
    length_penalty: float = 1.0,
    max_length: int | list[int] | None = None,
    use_cache: bool = True,
) -> list[list[Hypothesis]]:
    """Translate each sentence by keeping its best beginnings; model, tokens, limits and errors as in `greedy_decode`.

    A sentence has `beam_size` slots, and a finished hypothesis keeps its slot: a beam of 1 is greedy decoding. Scores
    are log-probability / length^α (after Wu et al. 2016, section 7), where α is `length_penalty`; 0 favours short
    sentences. A sentence's search stops when nothing live can still beat its best finished hypothesis. Ties go to the
    better beginning, then to the lower id.

    Returns:
        For each sentence the hypotheses that finished before the search stopped, at most `beam_size`, best
        first. If none finished, those that reached max_length, marked `finished=False`.

    Raises:
        ValueError: beam_size is below 1, or length_penalty is not from 0 to 50.
    """
    if not isinstance(beam_size, Integral) or beam_size < 1:
        raise ValueError(f"beam_size must be a whole number, at least 1; got {beam_size!r}")
    if not 0 <= length_penalty <= 50:  # a million tokens to the power of 50 are still a float
        raise ValueError(f"length_penalty must be from 0 to 50; got {length_penalty}")
    limits = length_limits(model, source, bos_id, eos_id, max_length)
    beams = [_Beam(beam_size, length_penalty, limit, eos_id) for limit in limits]
    if not beams:
        return []
    with evaluation(model):
        state = SearchState(model, source.new_full((len(beams), 1), bos_id), source, use_cache=use_cache)
        while state.sentences:  # until no beam has a live hypothesis
            logits = state.logits()  # (rows, vocabulary)
            normalizer = logits.logsumexp(dim=-1, keepdim=True)  # (rows, 1)
            logits[:, model.config.pad_id] = -math.inf  # padding has a probability, but is never chosen
            best, best_ids = best_tokens(logits, beam_size)  # (rows, k) each
            found = torch.stack([best.double() - normalizer, best_ids.double()]).cpu()  # waits for the device, once
            log_probs, tokens = found[0].tolist(), found[1].long().tolist()
            if not all(math.isfinite(row[0]) for row in log_probs):
                raise InputError(DAMAGED)
            parents, first = [], 0
            for beam in beams:
                rows = range(first, first + len(beam.live))
                parents += beam.advance(rows, tokens, log_probs)
                first = rows.stop
            last = torch.tensor([prefix[-1] for beam in beams for _, prefix in beam.live], device="cpu")
            state.append(last, parents)
    return [sorted(beam.finished, key=lambda hypothesis: -hypothesis.score) for beam in beams]
