# Generated from chapters/D_search.md: edit it there and `make export`, or here and `make sync`.

"""Sampling: sentences drawn at random, with the model's probabilities or changed ones."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from transformer_lib.decoding.search import decode_token_by_token
from transformer_lib.decoding.search_state import require_finite
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
    """Give the probabilities to draw with, best first, and their tokens, both (rows, vocabulary or top_k).

    Of equal ones the lower token comes first; one with the logit -inf is never drawn. For the rest of the arguments see
    `sample_decode`.
    """
    best, tokens = logits.double().sort(dim=-1, descending=True, stable=True)  # (rows, vocabulary)
    best, tokens = best[:, :top_k], tokens[:, :top_k]
    require_finite(best[:, 0])
    p = ((best - best[:, :1]) / temperature).softmax(dim=-1)
    p = p.masked_fill(p.cumsum(dim=-1) - p >= top_p, 0.0)  # those before it have the share already
    return p / p.sum(dim=-1, keepdim=True), tokens


def sampler(
    count: int, seed: int, temperature: float, top_k: int | None, top_p: float
) -> Callable[[Tensor, list[int]], Tensor]:
    """What draws the next token of some of `count` sentences; for the other arguments see `sample_decode`."""
    require_sampling_parameters(temperature, top_k, top_p)
    generator = torch.Generator().manual_seed(seed)

    def drawn(logits: Float[Tensor, "rows vocabulary"], sentences: list[int]) -> Int[Tensor, " rows"]:
        draws = torch.rand(count, 1, generator=generator, dtype=torch.float64)[sentences]  # (rows, 1)
        p, tokens = filtered_probabilities(logits, temperature, top_k, top_p)
        ends = p.cumsum(dim=-1)  # (rows, kept): where each token's piece ends
        place = (ends[:, :-1] <= draws.to(p.device) * ends[:, -1:]).sum(dim=-1, keepdim=True)  # (rows, 1)
        return tokens.gather(1, place)[:, 0]

    return drawn


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
    """Translate each sentence by drawing each token at random; model, tokens, limits and errors as in `greedy_decode`.

    First the temperature: below 1 it prefers the probable tokens, above 1 it levels them. Then only the `top_k` most
    probable tokens may be drawn (Fan et al. 2018), and of these only the smallest set of most probable ones with the
    probability `top_p` (Holtzman et al. 2020, section 3.1). The same seed draws the same for the same batch, on every
    device. A sentence that comes twice is drawn twice.

    Returns:
        For each sentence its tokens, without bos_id and eos_id.

    Raises:
        ValueError: the temperature is not a positive number, top_k is below 1, or top_p is not above 0 and at most 1.
    """
    drawn = sampler(source.size(0), seed, temperature, top_k, top_p)
    return decode_token_by_token(drawn, model, source, bos_id, eos_id, max_length, use_cache)
