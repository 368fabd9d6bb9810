"""BLEU from counts of single sentences, so that sentences can be drawn again; all of it by sacreBLEU's public names."""

from collections.abc import Mapping, Sequence

import numpy as np
import sacrebleu
from sacrebleu.metrics.bleu import BLEUScore

METRIC = sacrebleu.BLEU()


def sentence_counts(hypotheses: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """What BLEU adds up, (sentences, 10): both lengths, then the n-grams shared, then the hypothesis's, n = 1 … 4."""
    scores = [METRIC.corpus_score([ours], [[theirs]]) for ours, theirs in zip(hypotheses, references, strict=True)]
    return np.array([[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in scores])


def bleu(counts: np.ndarray) -> BLEUScore:
    """The score of some sentences from the sum of their counts (10)."""
    length, reference, *ngrams = counts.tolist()
    return METRIC.compute_bleu(ngrams[:4], ngrams[4:], length, reference, smooth_method=METRIC.smooth_method)


def compared(systems: Mapping[str, Sequence[str]], references: Sequence[str]) -> dict[str, dict[str, float]]:
    """Of each system cased BLEU, chrF, words a word of the references, and how far its BLEU is from the first one's.

    "low" and "high" hold the difference in 95 of 100 draws of the sentences, the same draws for both: the paired
    bootstrap (Koehn 2004), with 1,000 draws.
    """
    chrf, rows, drawn = sacrebleu.CHRF(), {}, []
    draws = np.random.default_rng(0).integers(len(references), size=(1000, len(references)))
    for name, hypotheses in systems.items():
        counts = sentence_counts(hypotheses, references)
        drawn.append(np.array([bleu(counts[draw].sum(axis=0)).score for draw in draws]))
        low, high = np.quantile(drawn[-1] - drawn[0], [0.025, 0.975])
        score = bleu(counts.sum(axis=0))
        rows[name] = {
            "bleu": score.score,
            "low": low,
            "high": high,
            "chrf": chrf.corpus_score(hypotheses, [references]).score,
            "length": score.sys_len / score.ref_len,
        }
    return {name: {key: round(float(value), 3) for key, value in row.items()} for name, row in rows.items()}
