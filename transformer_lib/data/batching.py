# Generated from chapters/08_data.md: edit it there and `make export`, or here and `make sync`.

"""Batches of token ids: sentences of nearly equal length, padded on the right."""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data.corpora import ParallelCorpus, is_blank
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.files import InputError


def encode_pairs(
    corpus: ParallelCorpus, tokenizer: Tokenizer, *, max_len: int
) -> tuple[list[tuple[list[int], list[int]]], int]:
    """Turn a corpus into pairs of token lists (source … eos, bos target … eos).

    Args:
        corpus: sentences and translations.
        tokenizer: one for both languages.
        max_len: the most tokens that a side may have, special tokens included.

    Returns:
        The pairs, and how many were skipped because a side was blank or too long.

    Raises:
        InputError: no pair is left.
    """
    pairs = []
    for source, target in zip(corpus.source, corpus.target):
        pair = tokenizer.encode(source), [tokenizer.bos_id, *tokenizer.encode(target)]
        if not (is_blank(source) or is_blank(target)) and _width(pair) <= max_len:
            pairs.append(pair)
    if not pairs:
        raise InputError(f"no usable pair among {len(corpus)}: all are blank on a side or longer than {max_len} tokens")
    return pairs, len(corpus) - len(pairs)


def _width(pair: tuple[list[int], list[int]]) -> int:
    """The length of the longer side."""
    return max(map(len, pair))


class Batch(NamedTuple):
    """Token ids of some pairs, int64, padded on the right: `source` (pairs, n) and `target` (pairs, m)."""

    source: Tensor
    target: Tensor


def _pad(sentences: Sequence[list[int]], pad_id: int) -> Tensor:
    tensors = [torch.tensor(sentence, dtype=torch.long) for sentence in sentences]
    return pad_sequence(tensors, batch_first=True, padding_value=pad_id)  # (sentences, longest)


def token_batches(
    pairs: Sequence[tuple[list[int], list[int]]],
    batch_tokens: int,
    *,
    pad_id: int = 0,
    seed: int | None = None,
    epoch: int = 0,
    start: int = 0,
) -> Iterator[Batch]:
    """Pack pairs of similar length into batches; each pair is in one batch, made when it is asked for.

    Args:
        pairs: (source, target) token lists.
        batch_tokens: the budget: a batch's number of pairs times its longest side is never more.
        pad_id: what short sides are filled up with, on the right.
        seed: None = from short to long, in the given order among equals; a number = shuffled.
        epoch: with the same seed, each epoch has its own order.
        start: how many batches to leave out, at the beginning.

    Raises:
        InputError: a pair alone is over the budget.
    """
    rng, order = random.Random(f"{seed} {epoch}"), list(pairs)
    if seed is not None:
        order.sort(key=lambda _: rng.random())
    order.sort(key=lambda pair: (_width(pair), len(pair[1]), len(pair[0])))
    if order and _width(order[-1]) > batch_tokens:
        raise InputError(f"expected pairs of at most batch_tokens = {batch_tokens} tokens; got {_width(order[-1])}")
    groups: list[list[tuple[list[int], list[int]]]] = []
    for pair in order:
        if not groups or (len(groups[-1]) + 1) * _width(pair) > batch_tokens:
            groups.append([])
        groups[-1].append(pair)
    if seed is not None:
        groups.sort(key=lambda _: rng.random())
    return (Batch(*(_pad(side, pad_id) for side in zip(*group))) for group in groups[start:])
