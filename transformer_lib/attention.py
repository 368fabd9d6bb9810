# Generated from chapters/02_attention.md: edit it there and `make export`, or here and `make sync`.

"""Scaled dot-product attention: the formula, readable, in every dtype."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

# `*batch` stands for any leading dimensions, and `#` before a name for a size that may also be 1.
Queries = Float[Tensor, "*batch n_q d_k"]
Keys = Float[Tensor, "*batch n_k d_k"]
Values = Float[Tensor, "*batch n_k d_v"]
Mask = Bool[Tensor, "#*batch #n_q #n_k"]
Weights = Float[Tensor, "*batch n_q n_k"]
Output = Float[Tensor, "*batch n_q d_v"]


def check_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse a mask that is not boolean or does not fit scores of this shape.

    Args:
        mask: boolean, True = may attend, with as many dimensions as the scores, each of size 1 or the scores' size.
        shape: the shape of the scores, (…, query length, key length).

    Raises:
        TypeError: the mask is not boolean.
        ValueError: the mask has another number of dimensions, or a size that is neither 1 nor the scores' own.
    """
    if mask.dtype != torch.bool:
        raise TypeError(f"a mask is boolean, True = may attend; got dtype {mask.dtype}")
    if mask.dim() != len(shape) or any(have not in (1, want) for have, want in zip(mask.shape, shape)):
        raise ValueError(f"a mask for scores of shape {tuple(shape)} cannot have shape {tuple(mask.shape)}")


def scaled_dot_product_attention(
    query: Queries, key: Keys, value: Values, mask: Mask | None = None, *, dropout: float = 0.0
) -> tuple[Output, Weights]:
    """Look up values by the similarity of queries and keys (Vaswani et al. 2017, section 3.2.1).

    Args:
        query: (…, query length, d_k).
        key: (…, key length, d_k).
        value: (…, key length, d_v).
        mask: boolean, True = may attend; as many dimensions as the scores (…, query length, key length), each of
            size 1 or theirs. A query that may attend to nothing gets weights and an output of zeros.
        dropout: the probability with which a weight is set to zero (the others are divided by 1 - dropout);
            0 when not training.

    Returns:
        The output (…, query length, d_v) and the weights (…, query length, key length), as they were before dropout.

    Raises:
        TypeError: the mask is not boolean.
        ValueError: the mask does not fit the scores.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (…, n_q, n_k)
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        check_mask(mask, scores.shape)
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)  # so low that the softmax makes it 0
        weights = scores.softmax(dim=-1).masked_fill(~mask, 0.0)  # zeros also where nothing is allowed
    return F.dropout(weights, dropout) @ value, weights  # (…, n_q, d_v), (…, n_q, n_k)
