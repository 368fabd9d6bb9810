"""Measure what the last chapter shows of the recorded translator, and write it down beside it, as analysis.json.

python experiments/analysis.py RECORD   RECORD is the directory that experiments/record.py wrote; needs the data
"""

import json
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import sacrebleu
import torch
from aligner import align, words
from bleu import sentence_counts
from heads import BATCH_TOKENS, alignment, cut_heads, without_heads
from record import SPLITS, corpus, digest, further, load, save_table
from torch import Tensor

from transformer_lib.data import encode_pairs, token_batches
from transformer_lib.model import Transformer
from transformer_lib.scores import evaluate_bleu, papers_form
from transformer_lib.training.loss import Pairs, validation_loss
from transformer_lib.translation import Translator

TEST = SPLITS[0]
EDGES = [0, 1, 10, 100, 1000]  # lower bounds of the bins of word frequency

# --- scores ------------------------------------------------------------------------------------------------------


def statistics(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, list[int]]:
    """For each sentence what BLEU adds up: both lengths, and how many runs of one to four words are shared."""
    names = ("length", "reference", "shared 1", "shared 2", "shared 3", "shared 4")
    return dict(zip(names, sentence_counts(hypotheses, references).T.tolist()))


def interval(metric: sacrebleu.BLEU, hypotheses: list[str], references: list[str]) -> list[float]:
    """The mean of BLEU over 1,000 draws of the sentences, and half the width of the middle 95 %, by sacrebleu."""
    score = metric.corpus_score(hypotheses, [references], n_bootstrap=1000)
    found = json.loads(score.format(width=2, signature=str(metric.get_signature()), is_json=True))
    return [found["confidence_mean"], found["confidence_var"]]


def intervals(hypotheses: list[str], references: list[str], language: str) -> dict[str, list[float]]:
    """That of cased BLEU, and of BLEU as papers have it."""
    papers = [papers_form(side, language) for side in (hypotheses, references)]
    return {
        "cased": interval(sacrebleu.BLEU(), hypotheses, references),
        "papers": interval(sacrebleu.BLEU(tokenize="none", force=True), *papers),
    }


def stored(folder: Path, record: dict, split: str) -> list[str]:
    """The recorded translations of a part of Multi30k."""
    return (folder / f"{split}.{record['target']}").read_text(encoding="utf-8").splitlines()


def recall_by_frequency(
    hypotheses: Iterable[Sequence[str]], references: Iterable[Sequence[str]], seen: Counter[str]
) -> dict[str, list[int]]:
    """How many words of the references there are, and how many of them the hypotheses have, by how often seen.

    Args:
        hypotheses: lists of words.
        references: as many.
        seen: how often each word stands in the training data.
    """
    total, found = [0] * len(EDGES), [0] * len(EDGES)
    for hypothesis, reference in zip(hypotheses, references):
        said = Counter(hypothesis)
        for word, count in Counter(reference).items():
            place = bisect_right(EDGES, seen[word]) - 1
            total[place] += count
            found[place] += min(count, said[word])
    return {"from": EDGES, "words": total, "found": found}


def how_often(sentences: Iterable[str]) -> Counter[str]:
    """How often each word stands in some sentences."""
    return Counter(word for text in sentences for word in words(text))


def on_further(hypotheses: list[str], references: list[str], seen: Counter[str], language: str) -> dict[str, dict]:
    """What is said of a further test set: how sure its scores are, and which of its words were found."""
    ours, theirs = ([words(text) for text in side] for side in (hypotheses, references))
    return {
        "interval": intervals(hypotheses, references, language),
        "recall": recall_by_frequency(ours, theirs, seen),
    }


def spaced(scores: Sequence[float], pool: int = 100, step: int = 10) -> list[int]:
    """Every tenth of the hundred sentences with the lowest score, the lowest first: where the ten are taken from."""
    return sorted(range(len(scores)), key=lambda n: (scores[n], n))[:pool:step]


# --- calibration -------------------------------------------------------------------------------------------------


@torch.no_grad()
def best_guesses(model: Transformer, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """For each real next token, given the right ones before it: the highest probability, and if that token is right."""
    confidence, right = [], []
    for source, target in token_batches(pairs, BATCH_TOKENS, pad_id=model.config.pad_id):
        labels = target[:, 1:]
        real = labels != model.config.pad_id
        highest, token = model(source, target[:, :-1])[real].softmax(dim=-1).max(dim=-1)  # (real tokens)
        confidence.append(highest)
        right.append(token == labels[real])
    return torch.cat(confidence), torch.cat(right)


def calibration(confidence: Tensor, right: Tensor, bins: int = 20) -> dict[str, list[float]]:
    """Guesses in bins of equal width: how many, the sum of their probabilities, and how many are right.

    Args:
        confidence: probabilities (guesses).
        right: booleans (guesses).
        bins: how many; a probability on an edge belongs to the upper bin, 1 to the last.
    """
    place = (confidence * bins).long().clamp(max=bins - 1)  # (guesses)
    sums = (torch.bincount(place, weight, bins) for weight in (None, confidence.double(), right.double()))
    return {name: [round(x, 3) for x in s.tolist()] for name, s in zip(("count", "confidence", "right"), sums)}


# --- all ---------------------------------------------------------------------------------------------------------


def analysis(folder: Path) -> dict:
    """All that analysis.json holds."""
    record = load(folder)
    translator = Translator.from_pretrained(folder)
    model, tokenizer = translator.model, translator.tokenizer
    train, val, test = (corpus(record, split) for split in ("train", "val", TEST))
    hypotheses = stored(folder, record, TEST)
    greedy = translator.translate(test.source, beam_size=1)
    chrf = sacrebleu.CHRF()
    scores = [chrf.sentence_score(ours, [theirs]).score for ours, theirs in zip(hypotheses, test.target)]
    val_pairs, test_pairs = (encode_pairs(part, tokenizer, max_len=model.config.max_len)[0] for part in (val, test))
    links = align([(words(s), words(t)) for part in (val, train) for s, t in zip(part.source, part.target)])
    our_words, their_words = ([words(text) for text in side] for side in (hypotheses, test.target))
    in_source, in_target = how_often(text.lower() for text in train.source), how_often(train.target)
    recall = recall_by_frequency(our_words, their_words, in_target)
    others = our_words[len(hypotheses) // 2 :] + our_words[: len(hypotheses) // 2]  # translations of other sentences
    heads = cut_heads(model, val_pairs)
    for name, gone in (("whole", []), ("cut", heads["order"][: heads["free"]])):
        with without_heads(model, gone):
            answers = translator.translate(test.source, beam_size=1) if gone else greedy
            score, loss = evaluate_bleu(answers, test.target)["bleu"], validation_loss(model, test_pairs, BATCH_TOKENS)
        changed = sum(ours != theirs for ours, theirs in zip(answers, greedy))
        heads[name] = {"greedy bleu": round(float(score), 2), "loss": round(loss, 4), "changed": changed}
    return {
        "weights": digest(folder / "model.safetensors"),
        "sentences": [
            {"number": n, "chrf": round(scores[n], 1), "source": test.source[n],
             "seen": {word: in_source[word] for word in words(test.source[n].lower())}} for n in spaced(scores)
        ],
        "interval": intervals(hypotheses, test.target, record["target"]),
        "further": {split: on_further(stored(folder, record, split), data.target, in_target, record["target"])
                    for split, data in further(record).items()},
        "source words": [len(words(sentence)) for sentence in test.source],
        "statistics": {name: statistics(answers, test.target) for name, answers in
                       (("beam", hypotheses), ("greedy", greedy))},
        "recall": recall | {"by chance": recall_by_frequency(others, their_words, in_target)["found"]},
        "calibration": calibration(*best_guesses(model, test_pairs)),
        "alignment": alignment(translator, val, links[: len(val)]),
        "heads": heads,
    }  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    place = Path(sys.argv[1])
    save_table(place / "analysis.json", analysis(place))
