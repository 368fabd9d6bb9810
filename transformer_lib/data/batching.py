# Generated from chapters/08b_bucketing.md: edit it there and `make export`, or here and `make sync`.

"""Batches of token ids: sentences of nearly equal length, padded on the right."""

import random
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

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
    lengths = np.array([len(sentence) for sentence in sentences])
    padded = np.full((len(sentences), lengths.max()), pad_id, np.int64)  # (sentences, longest)
    real = np.arange(lengths.max()) < lengths[:, None]  # (sentences, longest): where a token goes
    padded[real] = np.fromiter(chain.from_iterable(sentences), np.int64)
    return torch.from_numpy(padded)


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


Item = TypeVar("Item")


def ahead(items: Iterable[Item], *, pin: bool = False) -> Generator[Item]:
    """Yield the same items in the same order, while a thread makes up to four more.

    What the making of an item raises is raised in its place. The thread ends with this generator, so close it
    if you stop early.

    Args:
        items: anything, batches for example; they are used in the thread only.
        pin: put tensors, also those in tuples, into pinned memory, for copies to a GPU with `non_blocking=True`.
    """
    source, end = iter(items), object()

    def following() -> Any:
        item = next(source, end)
        return _pinned(item) if pin else item

    thread = ThreadPoolExecutor(1)
    try:
        coming = deque(thread.submit(following) for _ in range(4))
        while (item := coming.popleft().result()) is not end:
            coming.append(thread.submit(following))
            yield item
    finally:
        thread.shutdown(cancel_futures=True)


def _pinned(item: Any) -> Any:
    if isinstance(item, tuple):
        parts = map(_pinned, item)
        return type(item)(*parts) if hasattr(item, "_fields") else tuple(parts)  # a named one, such as a batch
    return item.pin_memory() if isinstance(item, Tensor) else item
