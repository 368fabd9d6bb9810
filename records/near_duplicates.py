"""Count the sentences of Multi30k's test sets that have a near duplicate among those of the training, and write it.

PYTHONPATH=.:experiments python records/near_duplicates.py     It needs Multi30k, and takes some seconds.

Two sentences are near if they share half of their runs of three words: shared ones, divided by all that one of the two
has. The scores are those of the recorded translations, of all sentences and of those without a near duplicate; the
interval is a bootstrap of the near ones, in percentiles. The control, "as long", has for each near one that is drawn
another sentence of as many words, drawn from all such.

The rule is strict with short sentences: one exchanged word takes three runs from both. Those are counted apart, and so
are pairs of which either side is near one of the training data.
"""

import json
import random
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean

from record import environment

from transformer_lib.data import load_multi30k
from transformer_lib.files import atomic_write
from transformer_lib.scores import evaluate_bleu

HERE = Path(__file__).resolve().parent
SPLIT = "test_2016_flickr"
LEAST = 0.5


def runs(sentence: str) -> frozenset[tuple[str, ...]]:
    """Its runs of three words, in lower case and without punctuation."""
    words = re.findall(r"\w+", sentence.lower())
    return frozenset(tuple(words[start : start + 3]) for start in range(max(1, len(words) - 2)))


def nearest(sentences: list[str], training: list[str]) -> list[tuple[float, int]]:
    """For each sentence the largest share, and the number of the training sentence that has it."""
    sets, places = [runs(sentence) for sentence in training], defaultdict(list)
    for number, own in enumerate(sets):
        for run in own:
            places[run].append(number)
    found = []
    for sentence in sentences:
        own = runs(sentence)
        shared = Counter(number for run in own for number in places.get(run, ()))
        found.append(max(((count / len(own | sets[n]), n) for n, count in shared.items()), default=(0.0, -1)))
    return found


def with_gaps(sentence: str) -> set[tuple[str, ...]]:
    """The sentence with each of its words left open: another has one of these if one word at most is exchanged."""
    words = re.findall(r"\w+", sentence.lower())
    return {(*words[:place], "", *words[place + 1 :]) for place in range(len(words))}


if __name__ == "__main__":
    train, test = load_multi30k("train"), load_multi30k(SPLIT)
    answers = (HERE / "multi30k-en-de" / f"{SPLIT}.de").read_text(encoding="utf-8").splitlines()
    best = nearest(test.source, train.source)
    far = [number for number, (share, _) in enumerate(best) if share < LEAST]
    lengths = [len(sentence.split()) for sentence in test.source]
    near, rng = sorted(set(range(len(best))) - set(far)), random.Random(0)
    near_in_german = {n for n, (share, _) in enumerate(nearest(test.target, train.target)) if share >= LEAST}
    gaps = {gap for sentence in train.source for gap in with_gaps(sentence)}

    def bleu(kept):
        """The score of these sentences."""
        return evaluate_bleu([answers[n] for n in kept], [test.target[n] for n in kept])["bleu"]

    scores = {name: bleu(kept) for name, kept in (("all", range(len(best))), ("far", far), ("near", near))}
    # the bootstrap: as many near ones, drawn with replacement
    drawn = sorted(bleu(rng.choices(near, k=len(near))) for _ in range(1000))
    as_long = {n: [far_one for far_one in far if lengths[far_one] == lengths[n]] for n in near}
    differences, control = [], []
    for _ in range(1000):
        kept = rng.choices(near, k=len(near))
        control.append(bleu([rng.choice(as_long[n]) for n in kept]))
        differences.append(bleu(kept) - control[-1])
    differences.sort()
    scores["as long"] = fmean(control)
    record = {
        "made": {"command": f"python records/{Path(sys.argv[0]).name}", **environment()},
        "least": LEAST,
        "sentences": len(best),
        "near": len(best) - len(far),
        "far, one word exchanged": sum(not gaps.isdisjoint(with_gaps(test.source[n])) for n in far),
        "near on either side": len(near_in_german | set(near)),
        "equal": sum(share == 1 for share, _ in best),
        "repeated in training": len(train.source) - len({runs(sentence) for sentence in train.source}),
        "bleu": scores,
        "interval of the near": [drawn[24], drawn[975]],
        "near minus as long": [fmean(differences), differences[24], differences[975]],
        "words": {name: fmean(lengths[n] for n in kept) for name, kept in (("near", near), ("far", far))},
        "nearest": [
            {"share": round(share, 3), "test": test.source[n], "training": train.source[number]}
            for n, (share, number) in sorted(enumerate(best), key=lambda row: -row[1][0])[:3]
        ],
    }
    atomic_write(HERE / "near_duplicates.json", json.dumps(record, indent=1) + "\n")
