"""Measure the translator of the reader's browser beside the library's, and write live.json.

PYTHONPATH=.:tools python records/live_scores.py     It needs Node and Multi30k, and takes some ten minutes.

The page's weights are rounded to 8 bits. So its program translates twice: with the shipped weights, and with the
rounded ones, which the library gets, too. The shipped translations are those of the library with the shipped weights.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from live import ROOT, RUN, SCRIPT, ask, rounded_translator, write

from transformer_lib.data import load_multi30k
from transformer_lib.files import atomic_write
from transformer_lib.translation import evaluate_bleu

RECORD = ROOT / "records" / "live.json"
SPLIT = "test_2016_flickr"


def main() -> None:
    """Translate the test set in three ways, print what they have in common, and store it."""
    if not shutil.which("node"):
        sys.exit("this needs Node, and there is no `node`")
    pairs = load_multi30k(SPLIT)
    stored = (RUN / f"{SPLIT}.de").read_text(encoding="utf-8").splitlines()
    write(SCRIPT)

    def page(sentences: list[str], beam_size: int, weights: Path = SCRIPT) -> list[dict[str, Any]]:
        options = {"beamSize": beam_size}
        return list(ask([{"what": "translate", "text": text, "options": options} for text in sentences], weights))

    wide, greedy = page(pairs.source, 5), page(pairs.source[:100], 1)
    with tempfile.TemporaryDirectory() as place:
        exact_script = Path(place) / "exact.js"
        write(exact_script, exact=True)
        exact = [answer["translation"] for answer in page(pairs.source, 5, exact_script)]
    translations = [answer["translation"] for answer in wide]
    rounded = rounded_translator().translate(pairs.source)
    scores = evaluate_bleu(translations, pairs.target)
    record = {
        "split": SPLIT,
        "weights": hashlib.sha256((RUN / "model.safetensors").read_bytes()).hexdigest(),
        "bytes": SCRIPT.stat().st_size,
        "sentences": len(translations),
        "same, shipped weights": sum(map(str.__eq__, exact, stored)),
        "same, rounded weights": sum(map(str.__eq__, translations, rounded)),
        "rounded weights and shipped translations agree": sum(map(str.__eq__, translations, stored)),
        "bleu": scores["bleu"],
        "bleu of the shipped translations": evaluate_bleu(stored, pairs.target)["bleu"],
        "signature": scores["signature"],
        "milliseconds": mean(answer["milliseconds"] for answer in wide),
        "milliseconds, greedy": mean(answer["milliseconds"] for answer in greedy),
        "node": subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip(),
    }
    atomic_write(RECORD, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
