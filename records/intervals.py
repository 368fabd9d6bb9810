"""How near BLEU and chrF probably lie to those of many more captions: of translations that chapter 17 compares.

Kept as it made intervals.json; no test runs it. With the data: PYTHONPATH=.:experiments python records/intervals.py
Each entry is the score, and half the width of the middle 95 % of sacreBLEU's thousand draws of the sentences.
"""

import json
from pathlib import Path

import sacrebleu
from analysis import TEST, interval, stored
from record import corpus, digest, environment, load, pretty_json, word_by_word

from transformer_lib.files import atomic_write

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    folder = HERE / "multi30k-en-de"
    record = load(folder)
    train, test = (corpus(record, split) for split in ("train", TEST))
    translations = {
        "copy the source": list(test.source),
        "word by word": word_by_word(train, test.source),
        "the course's": stored(folder, record, TEST),
    }
    rows = {}
    for name, answers in translations.items():
        metrics = {"bleu": sacrebleu.BLEU(), "chrf": sacrebleu.CHRF()}
        rows[name] = {}
        for key, metric in metrics.items():
            score = metric.corpus_score(answers, [test.target]).score
            rows[name][key] = [round(score, 2), interval(metric, answers, test.target)[1]]
    made = {"command": f"python records/{Path(__file__).name}"} | environment() | {"seed": 12345}
    value = {"made": made, "weights": digest(folder / "model.safetensors"), "split": TEST, "translations": rows}
    atomic_write(HERE / "intervals.json", pretty_json(value) + "\n")
    print(json.dumps(rows, indent=1))
