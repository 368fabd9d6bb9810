# Generated from chapters/11_decoding.md: edit the chapter, not this file, then run `make export`.


# chapters/11_decoding.md: Many sentences at once
"""Decoding: from next-token probabilities to sentences, greedily or with a beam."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor

from transformer_lib.cache import KeyValueCache
from transformer_lib.files import UserError
from transformer_lib.masks import padding_mask
from transformer_lib.model import Transformer


# chapters/11_decoding.md: Many sentences at once
@contextmanager
def _evaluation(model: Transformer) -> Iterator[None]:
    """No dropout and no gradients inside; every module's own mode is restored afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module, training in modes:
            module.training = training


def _length_limits(
    model: Transformer, source: Int[Tensor, "batch n"], bos_id: int, eos_id: int, max_length: int | None
) -> list[int]:
    """Check the arguments; each sentence's largest number of tokens, the end token counted."""
    config = model.config
    if source.dim() != 2:
        raise ValueError(f"source must be token ids (batch, length); got shape {tuple(source.shape)}")
    for name, token in (("bos_id", bos_id), ("eos_id", eos_id)):
        if not 0 <= token < config.target_vocab_size:
            raise ValueError(f"{name} must be from 0 to {config.target_vocab_size - 1}; got {token}")
    if eos_id == config.pad_id:
        raise ValueError(f"eos_id must differ from the model's pad_id; got {eos_id} for both")
    if max_length is None:
        own_length = (source != config.pad_id).sum(dim=1)  # (batch,)
        return (2 * own_length + 10).clamp(max=config.max_len).tolist()
    if not 1 <= max_length <= config.max_len:
        raise ValueError(f"max_length must be from 1 to the model's {config.max_len}; got {max_length}")
    return [max_length] * source.size(0)


class _Prefixes:
    """The beginnings that a search extends, one a row: `owner` says which sentence each row belongs to."""

    def __init__(self, model: Transformer, source: Int[Tensor, "batch n"], bos_id: int, use_cache: bool) -> None:
        self.model = model
        self.owner = list(range(source.size(0)))
        self.tokens = torch.full((source.size(0), 1), bos_id, device=source.device)  # (rows, length)
        self.memory = model.encode(source)  # (rows, n, d_model)
        self.memory_mask = padding_mask(source, model.config.pad_id)  # (rows, 1, 1, n)
        self.cache = KeyValueCache(model.config.num_decoder_layers) if use_cache else None

    def best_next(self, count: int) -> tuple[list[list[int]], list[list[float]]]:
        """The `count` most probable next tokens of each row, best first, with their log-probabilities."""
        new = self.tokens if self.cache is None else self.tokens[:, -1:]  # (rows, length or 1)
        hidden = self.model.decode(
            new, self.memory, memory_mask=self.memory_mask, is_causal=self.cache is None, cache=self.cache
        )  # (rows, length or 1, d_model)
        logits = self.model.output_projection(hidden[:, -1])  # (rows, vocabulary)
        wide = torch.promote_types(logits.dtype, torch.float32)
        normalizer = logits.to(wide).logsumexp(dim=-1, keepdim=True).double()  # (rows, 1)
        if not normalizer.isfinite().all():
            raise UserError("the model's logits are infinite or not numbers: its weights are damaged, or diverged")
        pad = torch.tensor([self.model.config.pad_id], device=logits.device)
        logits = logits.index_fill(1, pad, -math.inf)  # padding is never a word
        best, tokens = logits.topk(min(count + 1, logits.size(1)))  # (rows, count + 1)
        tied = (best[:, 1:] == best[:, :-1]).any(dim=1)  # (rows,)
        if tied.any():  # topk promises no order among equals, nor which of them it takes
            ordered, order = logits[tied].sort(dim=-1, descending=True, stable=True)
            best[tied], tokens[tied] = ordered[:, : best.size(1)], order[:, : best.size(1)]
        log_probs = best.double() - normalizer  # (rows, count + 1)
        return tokens[:, :count].tolist(), log_probs[:, :count].tolist()

    def extend(self, rows: list[int], tokens: list[int]) -> None:
        """Go on with these rows, in this order, each longer by its token; a row may occur repeatedly."""
        owner = [self.owner[row] for row in rows]
        if rows != list(range(len(self.owner))):
            index = torch.tensor(rows, dtype=torch.long, device=self.tokens.device)
            self.tokens = self.tokens[index]
            if self.cache is not None:
                self.cache.select(index, memory=owner != self.owner)
            if owner != self.owner:  # else each row keeps its sentence, whose memory its rows share
                self.memory, self.memory_mask = self.memory[index], self.memory_mask[index]
        new = torch.tensor(tokens, dtype=torch.long, device=self.tokens.device)
        self.tokens = torch.cat([self.tokens, new[:, None]], dim=1)  # (rows, length + 1)
        self.owner = owner


# chapters/11_decoding.md: Many sentences at once
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
        use_cache: False computes all earlier positions anew at each step; the result is the same.

    Returns:
        For each sentence its tokens, without bos_id and eos_id.

    Raises:
        ValueError: source is not (batch, n), an id is not in the target vocabulary, eos_id is padding,
            max_length is below 1 or above the model's max_len, or the logits are not finite.
    """
    limits = _length_limits(model, source, bos_id, eos_id, max_length)
    outputs: list[list[int]] = [[] for _ in limits]
    if not limits:
        return outputs
    with _evaluation(model):
        prefixes = _Prefixes(model, source, bos_id, use_cache)
        while prefixes.owner:
            tokens, _ = prefixes.best_next(1)
            rows = []
            for row, (sentence, (token,)) in enumerate(zip(prefixes.owner, tokens, strict=True)):
                if token != eos_id:
                    outputs[sentence].append(token)
                    if len(outputs[sentence]) < limits[sentence]:
                        rows.append(row)
            prefixes.extend(rows, [tokens[row][0] for row in rows])
    return outputs


# chapters/11_decoding.md: The exported beam search
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
        length_penalty: α in score = log-probability / length^α; 0 favours short sentences.
        max_length: as in `greedy_decode`.
        use_cache: as in `greedy_decode`.

    Returns:
        For each sentence the hypotheses that finished before the search stopped, at most `beam_size`, best
        first. If none finished, those that reached max_length, marked `finished=False`.

    Raises:
        ValueError: beam_size is below 1, length_penalty is negative or infinite, or as in `greedy_decode`.
    """
    if beam_size < 1:
        raise ValueError(f"beam_size must be at least 1; got {beam_size}")
    if not 0 <= length_penalty < math.inf:
        raise ValueError(f"length_penalty must be a finite number, 0 or more; got {length_penalty}")
    limits = _length_limits(model, source, bos_id, eos_id, max_length)
    beams = [_Beam(beam_size, length_penalty, limit, eos_id) for limit in limits]
    if not beams:
        return []
    with _evaluation(model):
        prefixes = _Prefixes(model, source, bos_id, use_cache)
        while prefixes.owner:
            tokens, log_probs = prefixes.best_next(beam_size)
            rows: list[int] = []
            last: list[int] = []
            start = 0
            for sentence in dict.fromkeys(prefixes.owner):  # each sentence once; its rows stand side by side
                beam, stop = beams[sentence], start + len(beams[sentence].live)
                parents = beam.advance(tokens[start:stop], log_probs[start:stop])
                if not beam.done:
                    rows += [start + parent for parent in parents]
                    last += [prefix[-1] for _, prefix in beam.live]
                start = stop
            prefixes.extend(rows, last)
    return [beam.hypotheses() for beam in beams]


__all__ = ["KeyValueCache", "Hypothesis", "greedy_decode", "beam_search"]
