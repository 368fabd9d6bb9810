# Generated from chapters/11_decoding.md: edit the chapter, not this file, then run `make export`.

"""Decoding: from next-token probabilities to sentences, greedily or with a beam."""

import math
from dataclasses import dataclass, field

from jaxtyping import Float, Int
from torch import Tensor

from transformer_lib.decoding.search_state import (
    SearchState,
    best_tokens,
    decode_token_by_token,
    length_limits,
    require_finite,
)
from transformer_lib.model import Transformer, evaluation


def greedy_decode(
    model: Transformer,
    source: Int[Tensor, "batch n"],
    *,
    bos_id: int,
    eos_id: int,
    max_length: int | None = None,
    use_cache: bool = True,
) -> list[list[int]]:
    """Translate each sentence by the most probable token at each step.

    Ties go to the lower id; padding is never chosen. The model runs in eval mode and without gradients, and
    afterwards each module has its own mode again.

    Args:
        model: the translator.
        source: token ids (batch, n), right-padded with the model's pad_id.
        bos_id: the token every target begins with.
        eos_id: the token that ends a sentence.
        max_length: the largest number of tokens, the end token counted. By default, for each sentence, twice
            the length of its own source plus ten, and at most the model's max_len.
        use_cache: False computes all earlier positions anew at each step; the result is the same up to rounding.

    Returns:
        For each sentence its tokens, without bos_id and eos_id.

    Raises:
        ValueError: source is not (batch, n), not of whole numbers (int64 or int32) or longer than the model's
            max_len; bos_id or eos_id is not in the target vocabulary; eos_id is padding; max_length is below 1 or
            above the model's max_len.
        InputError: the logits are not finite.
    """

    def most_probable(logits: Float[Tensor, "rows vocabulary"], _: list[int]) -> Int[Tensor, " rows"]:
        best, tokens = logits.max(dim=-1)  # of equal ones, `max` promises the first
        require_finite(best)
        return tokens

    return decode_token_by_token(
        model, source, most_probable, bos_id=bos_id, eos_id=eos_id, max_length=max_length, use_cache=use_cache
    )


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
    """The hypotheses of one sentence; the live and the finished ones are never more than `size` together."""

    size: int
    length_penalty: float
    max_length: int
    eos_id: int
    live: list[tuple[float, list[int]]] = field(default_factory=lambda: [(0.0, [])])  # best first
    finished: list[Hypothesis] = field(default_factory=list)

    def advance(self, tokens: list[list[int]], log_probs: list[list[float]]) -> list[int]:
        """Extend by one token, given each live hypothesis's best next ones; return the new ones' parents."""
        candidates = [
            (total + log_prob, row, token)
            for row, (total, _) in enumerate(self.live)
            for token, log_prob in zip(tokens[row], log_probs[row], strict=True)
            if log_prob > -math.inf
        ]
        candidates.sort(key=lambda candidate: -candidate[0])  # stable: ties to the better row, lower id
        live, parents = [], []
        for total, row, token in candidates[: self.size - len(self.finished)]:
            prefix = self.live[row][1]
            if token == self.eos_id:
                score = total / (len(prefix) + 1) ** self.length_penalty
                self.finished.append(Hypothesis(prefix, score))
            else:
                live.append((total, [*prefix, token]))
                parents.append(row)
        self.live = live
        return parents

    @property
    def done(self) -> bool:
        """True if no live hypothesis may grow, or none can beat the best finished one."""
        if not self.live or len(self.live[0][1]) == self.max_length:
            return True
        reach = self.live[0][0] / self.max_length**self.length_penalty
        return max((hypothesis.score for hypothesis in self.finished), default=-math.inf) >= reach

    def hypotheses(self) -> list[Hypothesis]:
        """The finished hypotheses, best first, ties to the earlier; without any, those cut at the limit."""
        divisor = self.max_length**self.length_penalty
        cut = [Hypothesis(prefix, total / divisor, False) for total, prefix in self.live]
        return sorted(self.finished or cut, key=lambda hypothesis: -hypothesis.score)


def beam_search(
    model: Transformer,
    source: Int[Tensor, "batch n"],
    *,
    bos_id: int,
    eos_id: int,
    beam_size: int = 5,
    length_penalty: float = 1.0,
    max_length: int | None = None,
    use_cache: bool = True,
) -> list[list[Hypothesis]]:
    """Translate each sentence by keeping its best beginnings (score: after Wu et al. 2016, section 7).

    A finished hypothesis keeps its slot, so a beam of 1 is `greedy_decode`. A sentence's search stops when
    nothing live can still beat its best finished one. Ties go to the better beginning, then to the lower id.

    Args:
        model: the translator; its mode, and what is never chosen, as in `greedy_decode`.
        source: token ids (batch, n), right-padded with the model's pad_id.
        bos_id: the token every target begins with.
        eos_id: the token that ends a sentence.
        beam_size: how many slots each sentence has.
        length_penalty: α in score = log-probability / length^α, from 0 to 50; 0 favours short sentences.
        max_length: as in `greedy_decode`.
        use_cache: as in `greedy_decode`.

    Returns:
        For each sentence the hypotheses that finished before the search stopped, at most `beam_size`, best
        first. If none finished, those that reached max_length, marked `finished=False`.

    Raises:
        ValueError: beam_size is below 1, length_penalty is negative or above 50, or as in `greedy_decode`.
    """
    if beam_size < 1:
        raise ValueError(f"beam_size must be at least 1; got {beam_size}")
    if not 0 <= length_penalty <= 50:  # a million tokens to the power of 50 are still a float
        raise ValueError(f"length_penalty must be from 0 to 50; got {length_penalty}")
    limits = length_limits(model, source, bos_id, eos_id, max_length)
    beams = [_Beam(beam_size, length_penalty, limit, eos_id) for limit in limits]
    if not beams:
        return []
    with evaluation(model):
        state = SearchState(model, source.new_full((source.size(0), 1), bos_id), source, use_cache=use_cache)
        while state.sentences:
            logits = state.logits()  # (rows, vocabulary)
            normalizer = logits.logsumexp(dim=-1, keepdim=True)  # (rows, 1)
            logits[:, model.config.pad_id] = -math.inf  # padding has a probability, but is never chosen
            best, tokens = best_tokens(logits, beam_size)  # (rows, beam_size) each
            log_probs = best.double() - normalizer  # (rows, beam_size)
            require_finite(log_probs[:, 0])
            next_tokens, next_log_probs = tokens.tolist(), log_probs.tolist()
            rows, chosen, first = [], [], 0
            for sentence in dict.fromkeys(state.sentences):  # each of them once, in the order of the rows
                beam, own = beams[sentence], slice(first, first + len(beams[sentence].live))
                parents = beam.advance(next_tokens[own], next_log_probs[own])
                if not beam.done:
                    rows += [first + parent for parent in parents]
                    chosen += [prefix[-1] for _, prefix in beam.live]
                first = own.stop
            state.reorder(rows)
            state.append(state.tokens.new_tensor(chosen))
    return [beam.hypotheses() for beam in beams]
