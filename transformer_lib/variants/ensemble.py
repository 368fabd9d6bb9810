# Generated from chapters/17d_recipes.md: edit it there and `make export`, or here and `make sync`.

"""Several translators as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from itertools import islice
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lib.cache import KeyValueCache
from transformer_lib.files import InputError
from transformer_lib.model import Memory, Transformer
from transformer_lib.translation import Translator


class Ensemble(nn.Module):
    """Models whose next-token probabilities are averaged, with the methods of a `Transformer` that a search calls.

    Args:
        models: with one tokenizer, and the same `pad_id` and `max_len`; their sizes may differ.

    Raises:
        ValueError: there is no model, one is not a `Transformer` of this library's layers, or their vocabularies,
            `pad_id`, `max_len`, dtypes or devices differ.
    """

    def __init__(self, models: Sequence[Transformer]) -> None:
        super().__init__()
        for model in models:
            if not hasattr(model, "decoder"):
                raise ValueError(f"expected models of this library's layers; got {type(model).__name__}")
        settings = {
            (m.config.source_vocab_size, m.config.target_vocab_size, m.config.pad_id, m.config.max_len) for m in models
        }
        kinds = {f"{weight.dtype} on {weight.device}" for model in models for weight in islice(model.parameters(), 1)}
        if len(kinds) > 1:
            raise ValueError(f"expected models of one dtype, on one device; got {', '.join(sorted(kinds))}")
        if len(settings) != 1:
            raise ValueError(f"expected models of the same vocabularies, pad_id and max_len; got {sorted(settings)}")
        self.models = cast("Sequence[Transformer]", nn.ModuleList(models))  # `cast` is for type checkers
        self.depths = [model.config.num_decoder_layers for model in models]
        self.widths = [model.config.d_model for model in models]
        self.config = replace(models[0].config, num_decoder_layers=sum(self.depths))  # for a search's cache

    def forward(self, *_: Tensor, **__: object) -> Tensor:
        """Refuse: what is trained or examined is a member.

        Raises:
            InputError: always.
        """
        raise InputError("an ensemble can only be searched: train or call its members")

    def encode(self, source_tokens: Int[Tensor, "batch n"]) -> Memory:
        """The memories of all members side by side, (batch, n, sum of d_model), with the mask that they share."""
        memories = [model.encode(source_tokens) for model in self.models]
        return Memory(torch.cat([memory.states for memory in memories], dim=-1), memories[0].mask)

    def decode(
        self,
        target_tokens: Int[Tensor, "batch m"],
        memory: Memory,
        *,
        is_causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch m width"]:
        """The hidden states of all members side by side, (batch, m, sum of d_model); called as `Transformer.decode`."""
        hidden, layers = [], iter([] if cache is None else cache.layers)
        for model, depth, states in zip(self.models, self.depths, memory.states.split(self.widths, dim=-1)):
            own = copy(cache)  # another list of the same layers: what a member stores in them is found in `cache`
            if own is not None:
                own.layers = list(islice(layers, depth))
            hidden.append(model.decode(target_tokens, Memory(states, memory.mask), is_causal=is_causal, cache=own))
        return torch.cat(hidden, dim=-1)

    def output_projection(self, hidden: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch vocabulary"]:
        """The logarithm of the mean probability of each token (…, vocabulary), which serves as its logit."""
        parts = zip(self.models, hidden.split(self.widths, dim=-1))
        log_probs = [model.output_projection(part).log_softmax(dim=-1) for model, part in parts]
        return torch.stack(log_probs).logsumexp(dim=0) - math.log(len(log_probs))


def ensemble_of(translators: Sequence[Translator]) -> Translator:
    """Several translators as one, which translates with the mean of their probabilities; it can only be searched.

    It allows the shortest of their `max_len` and the largest of their `length_ratio`, and computes in their precision.

    Raises:
        ValueError: their tokenizers or precisions differ, or `Ensemble` refuses their models.
    """
    if len({translator.tokenizer.to_json() for translator in translators}) > 1:
        raise ValueError("expected translators with one tokenizer: train them on one corpus, with one vocabulary size")
    together = Ensemble([translator.model for translator in translators])
    dtypes = sorted({str(translator.search.precision.fast_dtype) for translator in translators})
    if len(dtypes) > 1:
        raise ValueError(f"expected translators of one precision; got {' and '.join(dtypes)}: load them with the same")
    first, ratio = translators[0], max(translator.length_ratio for translator in translators)
    ensemble = Translator(together, first.tokenizer, device=first.search.device, length_ratio=ratio)
    ensemble.search.precision = first.search.precision
    ensemble.max_len = min(translator.max_len for translator in translators)
    return ensemble
