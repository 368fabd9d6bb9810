"""Does more data help, and cleaner data? Small trainings on 2,900 pairs of Multi30k.

They are in data_experiments.json; the longer ones of the second command in data_experiments_longer.json.

PYTHONPATH=.:experiments python records/data_experiments.py     It needs Multi30k, and ten minutes or so of one core.

All sentences have ten words at most, so that little time teaches something. Each of three seeds draws the pairs, which
of them are spoiled, the first weights and the order; all trainings have as many steps.

PYTHONPATH=.:experiments python records/data_experiments.py 0 1 2     Eight minutes of one core for each of these seeds.

In 300 steps twice as many true pairs gained nothing, so nothing could be said of back-translation. Hence all once more
with five times the steps. Steps and seeds were fixed before the first of these trainings had come to its end, and every
training is in the record. The two filters that give the others their scale, at random and without mistake, came last,
and only here.

From the translations in data_experiments_longer.json.gz comes how much a difference depends on the choice of test
sentences: "errors of the sentences". They are of seed 0, trained once more for this, on a faster machine: its chrF
came out up to half a point higher or lower. Scores in the record are those of the first time.

What the record already holds is not trained again. No test runs this.
"""

import gzip
import json
import math
import random
import sys
import time
from itertools import combinations
from pathlib import Path
from statistics import median

import numpy as np
import torch
import torch.nn.functional as F
from record import environment, pretty_json
from sacrebleu import BLEU, CHRF
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data import ParallelCorpus, Tokenizer, encode_pairs, load_multi30k
from transformer_lib.files import atomic_write
from transformer_lib.model import Transformer, TransformerConfig, evaluation
from transformer_lib.recipes import PRESETS
from transformer_lib.scores import evaluate_bleu
from transformer_lib.training import TrainingConfig, train
from transformer_lib.training.loss import validation_loss
from transformer_lib.translation import Translator

SEEDS, PAIRS, SPOILED, VOCABULARY, LONGEST = (0, 1, 2), 2900, 580, 1500, 10
SIZES = {"d_model": 64, "d_ff": 128, "num_encoder_layers": 1, "num_decoder_layers": 1, "dropout": 0.1}
SETTINGS = {"steps": 300, "batch_tokens": 1024, "peak_lr": 6e-3, "warmup_steps": 60, "cooldown_steps": 150}
LONGER = {"steps": 1500, "cooldown_steps": 750}


def path_of(longer: bool) -> Path:
    """Where the record is."""
    path = Path(__file__).with_suffix(".json")
    return path.with_stem(path.stem + "_longer") if longer else path


def read(longer: bool) -> dict:
    """The record, or a new one."""
    if path_of(longer).exists():
        return json.loads(path_of(longer).read_text(encoding="utf-8"))
    made = {"command": "python records/data_experiments.py" + longer * " 0 1 2"} | environment()
    made |= {"threads": torch.get_num_threads(), "preset": "tiny", "pairs": PAIRS, "spoiled": SPOILED}
    made |= {"vocabulary": VOCABULARY} | SIZES | SETTINGS | (LONGER if longer else {}) | {"longest, words": LONGEST}
    return {"made": made, "runs": {}}


def chosen(corpus: ParallelCorpus, numbers: list[int]) -> ParallelCorpus:
    """The pairs of these numbers."""
    return ParallelCorpus([corpus.source[n] for n in numbers], [corpus.target[n] for n in numbers])


def short(corpus: ParallelCorpus) -> ParallelCorpus:
    """Those of at most ten words on both sides."""
    lengths = [max(len(side.split()) for side in pair) for pair in zip(corpus.source, corpus.target)]
    return chosen(corpus, [n for n, length in enumerate(lengths) if length <= LONGEST])


def spoil(corpus: ParallelCorpus, numbers: list[int]) -> ParallelCorpus:
    """The same pairs, but each of these numbers has the translation of the one before it."""
    target = list(corpus.target)
    for number, before in zip(numbers, numbers[-1:] + numbers[:-1]):
        target[number] = corpus.target[before]
    return ParallelCorpus(corpus.source, target)


def backwards(corpus: ParallelCorpus) -> ParallelCorpus:
    """The same pairs, from German to English."""
    return ParallelCorpus(corpus.target, corpus.source)


def learn(corpora: list[ParallelCorpus], tokenizer: Tokenizer, seed: int, longer: bool) -> Translator:
    """A translator that has learned all pairs of these corpora."""
    pairs = [pair for corpus in corpora for pair in encode_pairs(corpus, tokenizer, max_len=512)[0]]
    torch.manual_seed(seed)
    both = tokenizer.vocab_size, tokenizer.vocab_size
    model = Transformer(TransformerConfig(*both, tokenizer.pad_id, **PRESETS["tiny"]["model"] | SIZES))
    settings = SETTINGS | LONGER if longer else SETTINGS
    train(model, pairs, TrainingConfig(**settings, precision="fp32", seed=seed))
    return Translator(model, tokenizer)


def scores(translator: Translator, answers: list[str], test: ParallelCorpus) -> dict[str, float]:
    """The loss on the test set, in nats a token, and BLEU and chrF of these translations."""
    found = evaluate_bleu(answers, test.target)
    pairs, _ = encode_pairs(test, translator.tokenizer, max_len=512)
    loss = validation_loss(translator.model, pairs, 2048, "fp32")
    return {"loss": round(loss, 3), "bleu": round(float(found["bleu"]), 2), "chrf": round(float(found["chrf"]), 2)}


def kept_answers() -> dict[str, dict[str, list[str]]]:
    """The translations of the longer trainings: for each seed, for each name."""
    path = path_of(True).with_suffix(".json.gz")
    return json.loads(gzip.decompress(path.read_bytes())) if path.exists() else {}


def sentence_errors(test: ParallelCorpus) -> dict[str, dict[str, float]]:
    """For two trainings how much their mean difference depends on the test sentences, as a standard deviation.

    It is that of 1,000 draws of as many sentences, with replacement. A draw is the same for all trainings and seeds.
    """
    seeds, size = [*kept_answers().values()], len(test)
    draws = np.random.default_rng(0).multinomial(size, [1 / size] * size, size=1000)  # (1000, sentences)
    errors: dict[str, dict[str, float]] = {}
    for key, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        means = {}
        for name in (name for name in seeds[0] if name != "German to English"):
            counts = [np.array(metric._extract_corpus_statistics(seed[name], [test.target])) for seed in seeds]
            rows = [[metric._compute_score_from_stats([*row]).score for row in draws @ each] for each in counts]
            means[name] = np.mean(rows, axis=0)  # (1000,)
        for one, two in combinations(sorted(means), 2):
            error = round(float(np.std(means[one] - means[two], ddof=1)), 3)
            errors.setdefault(f"{one}, {two}", {})[key] = error
    return errors


def losses(translator: Translator, corpus: ParallelCorpus) -> list[float]:
    """The mean loss of a token, for each pair."""
    pairs, _ = encode_pairs(corpus, translator.tokenizer, max_len=512)
    order, found = sorted(range(len(pairs)), key=lambda n: max(map(len, pairs[n]))), [0.0] * len(pairs)
    model, pad_id = translator.model, translator.tokenizer.pad_id
    with evaluation(model):
        for start in range(0, len(order), 50):
            numbers = order[start : start + 50]
            sides = zip(*(pairs[n] for n in numbers))
            source, target = (pad_sequence([torch.tensor(row) for row in side], True, pad_id) for side in sides)
            logits, labels = model(source, target[:, :-1], is_causal=True), target[:, 1:]  # (50, m, V), (50, m)
            each = F.cross_entropy(logits.mT, labels, ignore_index=pad_id, reduction="none")  # (50, m)
            means = each.sum(dim=1) / (labels != pad_id).sum(dim=1)
            for number, loss in zip(numbers, means.tolist()):
                found[number] = loss
    return found


def by_length(corpus: ParallelCorpus) -> list[float]:
    """For each pair how far its ratio of lengths is from the usual one, as a number below 0."""
    ratios = [math.log(len(german) / len(english)) for english, german in zip(corpus.source, corpus.target)]
    usual = median(ratios)
    return [-abs(ratio - usual) for ratio in ratios]


def by_source(judge: Translator, corpus: ParallelCorpus) -> list[float]:
    """For each pair how much the translation's loss rises if its source is exchanged for that of the next pair."""
    exchanged = ParallelCorpus(corpus.source[1:] + corpus.source[:1], corpus.target)
    return [other - own for own, other in zip(losses(judge, corpus), losses(judge, exchanged))]


class Seed:
    """The data of a seed and what was trained with it: `runs`, a part of the record."""

    def __init__(self, seed: int, longer: bool = False) -> None:
        corpus, rng = short(load_multi30k("train")), random.Random(seed)
        numbers = rng.sample(range(len(corpus)), 2 * PAIRS)
        self.pairs, self.more = chosen(corpus, numbers[:PAIRS]), chosen(corpus, numbers[PAIRS:])
        self.bad = rng.sample(range(PAIRS), SPOILED)
        self.spoiled = spoil(self.pairs, self.bad)
        self.test = short(load_multi30k("test_2016_flickr"))
        self.tokenizer = Tokenizer.train(self.pairs.source + self.pairs.target, VOCABULARY)
        self.seed, self.longer = seed, longer
        self.runs = read(longer)["runs"].get(str(seed), {})

    def run(self, name: str, *corpora: ParallelCorpus, test: ParallelCorpus | None = None, **further) -> Translator:
        """Train on all these pairs, and keep the scores under a name, and what else is given."""
        start = time.process_time()
        translator = learn(list(corpora), self.tokenizer, self.seed, self.longer)
        test = test or self.test
        answers = translator.translate(test.source, beam_size=1)
        self.runs[name] = scores(translator, answers, test) | further
        self.runs[name]["minutes"] = round((time.process_time() - start) / 60, 2)
        print(self.seed, name, self.runs[name], flush=True)
        if self.longer:
            kept = kept_answers()
            kept.setdefault(str(self.seed), {})[name] = answers
            packed = gzip.compress(json.dumps(kept, ensure_ascii=False).encode(), mtime=0)
            path_of(True).with_suffix(".json.gz").write_bytes(packed)
        record = read(self.longer)
        record["made"].setdefault("test sentences", len(self.test))
        record["runs"].setdefault(str(self.seed), {}).update(self.runs)
        record["runs"] = dict(sorted(record["runs"].items()))
        atomic_write(path_of(self.longer), pretty_json(record, 3) + "\n")
        return translator

    def run_filtered(self, name: str, values: list[float]) -> None:
        """Train without the pairs of the lowest values, as many as are spoiled, and keep the share that was found."""
        order = sorted(range(PAIRS), key=lambda n: values[n])
        found = len(set(order[:SPOILED]) & set(self.bad)) / SPOILED
        self.run(name, chosen(self.spoiled, sorted(order[SPOILED:])), found=round(found, 3))

    def alone(self) -> None:
        """The pairs as they are."""
        self.run("alone", self.pairs)

    def back_translated(self) -> None:
        """And as many German sentences more, whose English a model has written that learned these pairs backwards."""
        back = self.run("German to English", backwards(self.pairs), test=backwards(self.test))
        made = ParallelCorpus(back.translate(self.more.target, beam_size=1), self.more.target)
        examples = list(zip(made.target[:3], made.source[:3], self.more.source[:3]))
        self.run("back-translated", self.pairs, made, examples=examples)

    def filtered_by_source(self) -> None:
        """The spoiled pairs, and those of them that the model thinks are translations."""
        judge = self.run("spoiled", self.spoiled)
        self.run_filtered("filtered by source", by_source(judge, self.spoiled))

    def filtered_by_length(self) -> None:
        """The spoiled pairs whose lengths are as usual."""
        self.run_filtered("filtered by length", by_length(self.spoiled))

    def filtered_at_random(self) -> None:
        """The spoiled pairs, and a random choice of them that is as large as a filter's."""
        rng = random.Random(f"{self.seed} at random")
        self.run_filtered("filtered at random", [rng.random() for _ in range(PAIRS)])

    def filtered_without_mistake(self) -> None:
        """The pairs that were not spoiled."""
        self.run_filtered("filtered without mistake", [-float(number in self.bad) for number in range(PAIRS)])

    def twice_as_many(self) -> None:
        """The pairs, and as many more that a person has translated."""
        self.run("twice as many", self.pairs, self.more)


def main() -> None:
    """Train what the record lacks."""
    tasks = {
        "filtered by source": Seed.filtered_by_source, "filtered by length": Seed.filtered_by_length,
        "alone": Seed.alone, "twice as many": Seed.twice_as_many, "back-translated": Seed.back_translated,
    }  # fmt: skip
    longer = [int(seed) for seed in sys.argv[1:]]
    if longer:
        tasks |= {"filtered at random": Seed.filtered_at_random}
        tasks |= {"filtered without mistake": Seed.filtered_without_mistake}
    seeds = [Seed(number, True) for number in longer] or [Seed(number) for number in SEEDS]
    for last, task in tasks.items():
        for seed in seeds:
            if last not in seed.runs:
                task(seed)
    if longer:
        made = environment() | {"seeds": [*kept_answers()], "deviations": sentence_errors(seeds[0].test)}
        record = read(True) | {"errors of the sentences": made}
        atomic_write(path_of(True), pretty_json(record, 3) + "\n")


if __name__ == "__main__":
    main()
