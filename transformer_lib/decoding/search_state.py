# Generated from chapters/D_search.md: edit it there and `make export`, or here and `make sync`.

"""What the ways of decoding share: the state of a search, its limits, and the best next tokens."""

from numbers import Integral
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from transformer_lib.cache import KeyValueCache
from transformer_lib.files import InputError
from transformer_lib.model import Memory, Transformer


def length_limits(
    model: Transformer, source: Int[Tensor, "batch n"], bos_id: int, eos_id: int, max_length: int | list[int] | None
) -> list[int]:
    """Check the arguments; each sentence's largest number of tokens, the end token counted."""
    config = model.config
    if source.dim() != 2 or source.dtype not in (torch.int64, torch.int32):
        raise ValueError(
            f"source must be token ids (batch, length), int64 or int32; got {source.dtype} {tuple(source.shape)}"
        )
    if source.size(1) > config.max_len:
        raise ValueError(f"source must be at most as long as the model's {config.max_len}; got {source.size(1)}")
    for name, token in (("bos_id", bos_id), ("eos_id", eos_id)):
        if not 0 <= token < config.target_vocab_size:
            raise ValueError(f"{name} must be from 0 to {config.target_vocab_size - 1}; got {token}")
    if eos_id == config.pad_id:
        raise ValueError(f"eos_id must differ from the model's pad_id; got {eos_id} for both")
    if max_length is None:
        lengths = (source != config.pad_id).sum(dim=1)  # (batch,)
        return (2 * lengths + 10).clamp(max=config.max_len).tolist()
    limits = max_length if isinstance(max_length, list) else [max_length] * source.size(0)
    if len(limits) != source.size(0):
        raise ValueError(f"expected a max_length for each of {source.size(0)} sentences; got {len(limits)}")
    for limit in limits:
        if not isinstance(limit, Integral) or not 1 <= limit <= config.max_len:
            raise ValueError(f"max_length must be from 1 to the model's {config.max_len}; got {limit!r}")
    return limits


class SearchState:
    """Beginnings of sentences, one in each row of a batch, and what the model keeps of them.

    Args:
        model: what has `encode`, `decode`, `output_projection` and `config` like a `Transformer`. Without sources, a
            `DecoderOnly` (of chapter 15).
        tokens: the beginnings, token ids (rows, m), without padding.
        source: the source of each row, token ids (rows, n), right-padded; None = there are no sources.
        use_cache: False computes all earlier positions anew at each step, as for a model whose `has_cache` is False.
    """

    def __init__(
        self, model: Any, tokens: Int[Tensor, "rows m"], source: Int[Tensor, "rows n"] | None = None, *, use_cache: bool
    ) -> None:
        config = model.config
        self.model, self.tokens = model, tokens
        self.sentences = list(range(tokens.size(0)))  # which sentence each row belongs to
        self.cache = (
            KeyValueCache(config.num_decoder_layers) if use_cache and getattr(model, "has_cache", True) else None
        )
        self.memory = None
        if source is not None:
            states, mask = model.encode(source)
            self.memory = Memory(states, mask.expand(len(states), *mask.shape[1:]))  # a row for each sentence

    def logits(self) -> Float[Tensor, "rows vocabulary"]:
        """Score the next token of each row, in float32 or better."""
        new = self.tokens if self.cache is None else self.tokens[:, self.cache.length :]  # (rows, not yet cached)
        if self.memory is None:
            logits = self.model(new, cache=self.cache)[:, -1]  # (rows, vocabulary)
        else:
            hidden = self.model.decode(new, self.memory, is_causal=self.cache is None, cache=self.cache)
            logits = self.model.output_projection(hidden[:, -1])
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def append(self, tokens: Int[Tensor, " rows"], rows: list[int] | None = None) -> None:
        """Make row i what row rows[i] was, with tokens[i] at its end: rows may go, come twice, or change their places.

        Without `rows` each row stays where it is. The tokens may come from the CPU; nobody waits for the copy.
        """
        device = self.tokens.device
        is_gpu = device.type == "cuda"  # elsewhere a copy must be there before it is read
        if rows is not None and rows != list(range(len(self.sentences))):
            index = torch.tensor(rows, dtype=torch.long, device="cpu").to(device, non_blocking=is_gpu)
            sentences = [self.sentences[row] for row in rows]
            other_memory = sentences != self.sentences
            self.tokens, self.sentences = self.tokens[index], sentences
            if self.cache is not None:
                self.cache.select(index, memory=other_memory)
            if self.memory is not None and other_memory:
                self.memory = Memory(*(part[index] for part in self.memory))
        last = tokens.to(self.tokens, non_blocking=is_gpu)[:, None]  # (rows, 1)
        self.tokens = torch.cat([self.tokens, last], dim=1)  # (rows, m + 1)


DAMAGED = "the model's logits are infinite or not numbers: its weights are damaged, or diverged"


def require_finite(values: Float[Tensor, " rows"]) -> None:
    """Raise an InputError if one of the values is infinite or not a number."""
    if not values.isfinite().all():
        raise InputError(DAMAGED)


def best_tokens(
    logits: Float[Tensor, "rows vocabulary"], count: int
) -> tuple[Float[Tensor, "rows few"], Int[Tensor, "rows few"]]:
    """The `count` largest logits of each row, best first, and their tokens; among equals the lower token first."""
    size = logits.size(1)
    best, tokens = logits.topk(min(count + 1, size))  # one more, in case the last one is tied
    if logits.is_cpu and (best[:, 1:] < best[:, :-1]).all():  # no ties; to ask a GPU is to wait for it
        return best[:, :count], tokens[:, :count]
    least = best[:, :count][:, -1:]  # (rows, 1)
    larger, equal = (logits > least).long(), (logits == least).long()  # (rows, vocabulary)
    keys = (2 * larger + equal) * size - torch.arange(size, device=logits.device)  # the lower token first
    tokens = keys.topk(min(count, size)).indices  # all larger ones, then as many of the equal ones as there is room for
    best, order = logits.gather(1, tokens).sort(dim=-1, descending=True, stable=True)
    return best, tokens.gather(1, order)
