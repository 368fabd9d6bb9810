# Generated from chapters/11_decoding.md: edit the chapter, not this file, then run `make export`.

"""Sampling: sentences drawn at random, with the model's probabilities or changed ones."""

import math

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from transformer_lib.decoding.search_state import decode_token_by_token, require_finite
from transformer_lib.model import Transformer


def require_sampling_parameters(temperature: float, top_k: int | None, top_p: float) -> None:
    """Raise a ValueError that names the first of them that is out of its range."""
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature must be a finite number above 0; got {temperature}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, or None; got {top_k}")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1; got {top_p}")


def filtered_probabilities(
    logits: Float[Tensor, "rows vocabulary"], temperature: float, top_k: int | None, top_p: float
) -> tuple[Float64[Tensor, "rows some"], Int[Tensor, "rows some"]]:
    """Give the probabilities to draw with, best first, and their tokens; equal ones by the lower token.

    Args:
        logits: (rows, vocabulary); a token with -inf is never drawn.
        temperature: what the logits are divided by, more than 0.
        top_k: how many tokens may be drawn; None = all.
        top_p: the smallest set of best tokens with this share of the probability may be drawn; 1 = all.

    Returns:
        Probabilities and token ids, both (rows, vocabulary or top_k).
    """
    best, tokens = logits.double().sort(dim=-1, descending=True, stable=True)  # (rows, vocabulary)
    best, tokens = best[:, :top_k], tokens[:, :top_k]
    require_finite(best[:, 0])
    p = ((best - best[:, :1]) / temperature).softmax(dim=-1)
    p = p.masked_fill(p.cumsum(dim=-1) - p >= top_p, 0.0)  # those before it have the share already
    return p / p.sum(dim=-1, keepdim=True), tokens


def sample_decode(
    model: Transformer,
    source: Int[Tensor, "batch n"],
    *,
    bos_id: int,
    eos_id: int,
    seed: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    max_length: int | None = None,
    use_cache: bool = True,
) -> list[list[int]]:
    """Translate each sentence by drawing each token at random.

    First the temperature, then top-k (Fan et al. 2018), then top-p (Holtzman et al. 2020, section 3.1) of what is left.

    Args:
        model: the translator; its mode, and what is never chosen, as in `greedy_decode`.
        source: token ids (batch, n), right-padded with the model's pad_id. A row that comes twice is drawn twice.
        bos_id: the token every target begins with.
        eos_id: the token that ends a sentence.
        seed: the same seed draws the same sentences for the same batch; the lots are always drawn on the CPU.
        temperature: below 1 prefers the probable tokens, above 1 levels them.
        top_k: how many of the most probable tokens may be drawn; None = all.
        top_p: only the smallest set of most probable tokens with this probability may be drawn.
        max_length: as in `greedy_decode`.
        use_cache: as in `greedy_decode`.

    Returns:
        For each sentence its tokens, without bos_id and eos_id.

    Raises:
        ValueError: the temperature is not a positive number, top_k is below 1, top_p is not above 0 and at most 1, or
            as in `greedy_decode`.
    """
    require_sampling_parameters(temperature, top_k, top_p)
    generator = torch.Generator().manual_seed(seed)

    def drawn(logits: Float[Tensor, "rows vocabulary"], sentences: list[int]) -> Int[Tensor, " rows"]:
        lots = torch.rand(source.size(0), 1, generator=generator, dtype=torch.float64)[sentences]  # (rows, 1)
        p, tokens = filtered_probabilities(logits, temperature, top_k, top_p)
        ends = p.cumsum(dim=-1)  # (rows, kept): where each token's piece ends
        place = (ends[:, :-1] <= lots.to(p.device) * ends[:, -1:]).sum(dim=-1, keepdim=True)  # (rows, 1)
        return tokens.gather(1, place)[:, 0]

    return decode_token_by_token(
        model, source, drawn, bos_id=bos_id, eos_id=eos_id, max_length=max_length, use_cache=use_cache
    )
