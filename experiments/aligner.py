"""A simple word aligner, learnt from sentence pairs: which words of a sentence and of its translation belong together.

IBM model 1 (Brown et al. 1993) with a word NULL and a fixed preference for the diagonal (Dyer, Chahuneau and Smith
2013, with their first values), learnt by expectation maximisation in both directions; a link counts if both agree.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

NULL_SHARE, DIAGONAL = 0.08, 4.0

Pair = tuple[list[str], list[str]]


def words(text: str) -> list[str]:
    """Words and punctuation marks of a sentence, in their order and as they are written."""
    return re.findall(r"\w+(?:[-'’]\w+)*|[^\w\s]", text)


def align(pairs: Sequence[Pair], *, iterations: int = 5) -> list[list[tuple[int, int]]]:
    """Link the words of each pair with one another.

    To align the pairs of a small corpus, hand them in together with a large one and keep the links of the small one.

    Args:
        pairs: (words of a sentence, words of its translation), none of them empty.
        iterations: rounds of expectation maximisation in each direction.

    Returns:
        For each pair its links, (position in the sentence, position in the translation), sorted. A word may have no
        link, and has at most one.
    """
    forth = _looks(pairs, iterations)
    back = _looks([(target, source) for source, target in pairs], iterations)
    return [
        sorted((s, t) for t, s in enumerate(to_source) if s >= 0 and to_target[s] == t)
        for to_source, to_target in zip(forth, back)
    ]


def dictionary(pairs: Sequence[Pair], *, iterations: int = 5) -> dict[str, str]:
    """The word of the translations that each word of the sentences is linked to most often, of those with a link."""
    seen: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for (source, target), links in zip(pairs, align(pairs, iterations=iterations)):
        for s, t in links:
            seen[source[s]][target[t]] += 1
    return {word: counts.most_common(1)[0][0] for word, counts in seen.items()}


def _looks(pairs: Sequence[Pair], iterations: int) -> list[list[int]]:
    """For each word of each translation the position of its most probable source word, or -1 for NULL."""
    source_ids, target_ids = ({word: n for n, word in enumerate(_vocabulary(pairs, side))} for side in (0, 1))
    null = len(source_ids)
    sources, targets, owners, priors, shapes = [], [], [], [], []
    first = 0
    for source, target in pairs:  # one entry for each pair of a target word and a source word or NULL
        n, m = len(source), len(target)
        s = np.array([null] + [source_ids[word] for word in source])
        t = np.array([target_ids[word] for word in target])
        near = np.exp(-DIAGONAL * np.abs((np.arange(n) + 0.5) / n - (np.arange(m)[:, None] + 0.5) / m))  # (m, n)
        near *= (1 - NULL_SHARE) / near.sum(1, keepdims=True)
        sources.append(np.tile(s, m))
        targets.append(np.repeat(t, n + 1))
        owners.append(np.repeat(np.arange(first, first + m), n + 1))
        priors.append(np.column_stack([np.full(m, NULL_SHARE), near]).ravel())
        shapes.append((m, n + 1))
        first += m
    owner, prior = np.concatenate(owners), np.concatenate(priors)  # (entries)
    keys = np.concatenate(sources) * len(target_ids) + np.concatenate(targets)
    known, entry = np.unique(keys, return_inverse=True)  # the pairs of words that meet in a sentence
    table, source_of = np.ones(len(known)), known // len(target_ids)  # t(target word | source word)
    for _ in range(iterations):
        share = _shares(table[entry] * prior, owner)
        counts = np.bincount(entry, share)
        table = counts / np.bincount(source_of, counts, null + 1)[source_of]
    share = _shares(table[entry] * prior, owner)
    ends = np.cumsum([m * width for m, width in shapes])[:-1]
    return [(part.reshape(shape).argmax(1) - 1).tolist() for part, shape in zip(np.split(share, ends), shapes)]


def _vocabulary(pairs: Sequence[Pair], side: int) -> dict[str, None]:
    return dict.fromkeys(word for pair in pairs for word in pair[side])


def _shares(weights: np.ndarray, owner: np.ndarray) -> np.ndarray:
    """Weights divided by the sum of those of the same target word."""
    return weights / np.bincount(owner, weights)[owner]
