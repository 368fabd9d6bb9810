# Generated from chapters/11_decoding.md: edit the chapter, not this file, then run `make export`.

"""What the ways of decoding share: the state of a search, its limits, the best next tokens, and the greedy loop."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lib.cache import KeyValueCache
from transformer_lib.model import Memory, Transformer
from transformer_lib.serialization import InputError


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """No dropout and no gradients inside; every module's own mode is restored afterwards. For one thread at a time."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True


def length_limits(
    model: Transformer, source: Int[Tensor, "batch n"], bos_id: int, eos_id: int, max_length: int | None
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
        own_length = (source != config.pad_id).sum(dim=1)  # (batch,)
        return (2 * own_length + 10).clamp(max=config.max_len).tolist()
    if not 1 <= max_length <= config.max_len:
        raise ValueError(f"max_length must be from 1 to the model's {config.max_len}; got {max_length}")
    return [max_length] * source.size(0)


class SearchState:
    """Beginnings of sentences, one in each row, and what the model keeps of them.

    Args:
        model: a translator: what has `encode`, `decode`, `output_projection` and `config` like a `Transformer`. Without
            sources, a `DecoderOnly`.
        tokens: the beginnings, token ids (rows, length), without padding when the search starts.
        source: the source of each row, token ids (rows, n), right-padded; None = there are no sources.
        use_cache: False computes all earlier positions anew at each step.
    """

    def __init__(
        self,
        model: Any,
        tokens: Int[Tensor, "rows length"],
        source: Int[Tensor, "rows n"] | None = None,
        *,
        use_cache: bool = True,
    ) -> None:
        config = model.config
        self.model, self.tokens = model, tokens
        self.sentences = list(range(tokens.size(0)))  # which sentence each row belongs to
        layers = config.num_encoder_layers if source is None else config.num_decoder_layers
        self.cache = KeyValueCache(layers) if use_cache else None
        self.memory = None if source is None else model.encode(source)

    def logits(self) -> Float[Tensor, "rows vocabulary"]:
        """Score the next token of each row, in float32 or better."""
        new = self.tokens if self.cache is None else self.tokens[:, self.cache.length :]  # (rows, not yet cached)
        if self.memory is None:
            logits = self.model(new, cache=self.cache)[:, -1]  # (rows, vocabulary)
        else:
            hidden = self.model.decode(new, self.memory, is_causal=self.cache is None, cache=self.cache)
            logits = self.model.output_projection(hidden[:, -1])
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def append(self, tokens: Int[Tensor, " rows"]) -> None:
        """Make each row longer by its token."""
        self.tokens = torch.cat([self.tokens, tokens[:, None]], dim=1)  # (rows, length + 1)

    def reorder(self, rows: list[int]) -> None:
        """Make row i what row rows[i] was."""
        if rows == list(range(len(self.sentences))):
            return
        sentences, index = [self.sentences[row] for row in rows], self.tokens.new_tensor(rows)  # (new rows,)
        other_memory = sentences != self.sentences
        self.tokens, self.sentences = self.tokens[index], sentences
        if self.cache is not None:
            self.cache.select(index, memory=other_memory)
        if self.memory is not None and other_memory:
            self.memory = Memory(*(part[index] for part in self.memory))


def require_finite(values: Float[Tensor, " rows"]) -> None:
    """Raise a InputError if one of the values is infinite or not a number."""
    if not values.isfinite().all():
        raise InputError("the model's logits are infinite or not numbers: its weights are damaged, or diverged")


def best_tokens(
    logits: Float[Tensor, "rows vocabulary"], count: int
) -> tuple[Float[Tensor, "rows few"], Int[Tensor, "rows few"]]:
    """The `count` largest logits of each row, best first, and their tokens: among equals the lower one first."""
    best, tokens = logits.topk(min(count + 1, logits.size(1)))  # one more, in case the last one is tied
    tied = (best[:, 1:] == best[:, :-1]).any(dim=1)  # (rows,)
    if tied.any():
        tokens[tied] = logits[tied].sort(dim=-1, descending=True, stable=True).indices[:, : tokens.size(1)]
    return best[:, :count], tokens[:, :count]


def decode_token_by_token(
    model: Transformer,
    source: Int[Tensor, "batch n"],
    choose: Callable[[Tensor, list[int]], Tensor],
    *,
    bos_id: int,
    eos_id: int,
    max_length: int | None,
    use_cache: bool,
) -> list[list[int]]:
    """Translate each sentence token by token; arguments, result and errors are those of `greedy_decode`.

    `choose` gets the logits (rows, vocabulary) and the number of the sentence in each row, and returns tokens (rows,).
    """
    limits = length_limits(model, source, bos_id, eos_id, max_length)
    outputs: list[list[int]] = [[] for _ in limits]
    if not limits:
        return outputs
    with evaluation(model):
        state = SearchState(model, source.new_full((source.size(0), 1), bos_id), source, use_cache=use_cache)
        while state.sentences:
            logits = state.logits()  # (rows, vocabulary)
            logits[:, model.config.pad_id] = -math.inf
            tokens = choose(logits, state.sentences)  # (rows,)
            state.append(tokens)
            rows = []
            for row, (sentence, token) in enumerate(zip(state.sentences, tokens.tolist(), strict=True)):
                if token != eos_id:
                    outputs[sentence].append(token)
                    if len(outputs[sentence]) < limits[sentence]:
                        rows.append(row)
            state.reorder(rows)
    return outputs
