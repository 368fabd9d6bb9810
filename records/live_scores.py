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
from transformer_lib.scores import evaluate_bleu

RECORD = ROOT / "records" / "live.json"
SPLIT = "test_2016_flickr"
GUESSING = -0.6  # the page says below this score that the model guesses
OTHERS = """I love you.
The stock market fell today.
Ein Mann spielt auf der Straße Gitarre.
Zwei Hunde laufen am Strand.
Good morning, how are you?
What time is it?
The president signed a new law yesterday.
The theory of relativity changed physics.
Please send me the report by Friday.
We need to talk about the budget.
Attention is all you need.
My computer does not start anymore.
Can you help me?
To be or not to be, that is the question.
Once upon a time there was a king who had three daughters.
The company announced its quarterly results.
He said that he would come tomorrow.
I don't know.
Inflation is expected to rise next year.
Je t'aime.
Un homme joue de la guitare dans la rue.
asdf qwer zxcv
lorem ipsum dolor sit amet
犬が芝生を走る。
<b>A dog</b> <script>alert(1)</script>
1234567890
hello
Hello world!
The mitochondria is the powerhouse of the cell.
She had never been so disappointed in her life.
If it rains tomorrow, we will stay at home.
Parliament must decide on the directive before the end of the session.
The defendant was found guilty of all charges.
Your password has expired.
Turn left after the second traffic light.
Water boils at one hundred degrees.
very very very very very very very very very very
The gradient of the loss is computed by backpropagation.
My name is Anna and I am twenty years old.
Where is the nearest train station?
Thank you very much for your letter.
This product is not available in your country.
Der Hund schläft.
Die Regierung hat gestern ein neues Gesetz beschlossen.
There is no evidence for this claim.
Democracy is the worst form of government, except for all the others.
I think, therefore I am.
Love is blind.
Buy one, get one free!""".splitlines()  # sentences that are no captions, and what else a reader may type


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
    translator = rounded_translator()
    best = [translator.n_best(sentence)[0] for sentence in pairs.source]
    rounded = [translation for _, translation in best]
    guessed = [score < GUESSING for score, _ in best]

    def bleu_of(choice: bool) -> float:
        chosen = [number for number, low in enumerate(guessed) if low == choice]
        return evaluate_bleu([translations[n] for n in chosen], [pairs.target[n] for n in chosen])["bleu"]

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
        "guessing below": GUESSING,
        "guessed captions": sum(guessed),
        "bleu of guessed captions": bleu_of(True),
        "bleu of the others": bleu_of(False),
        "other sentences": len(OTHERS),
        "guessed other sentences": sum(translator.n_best(sentence)[0][0] < GUESSING for sentence in OTHERS),
        "milliseconds": mean(answer["milliseconds"] for answer in wide),
        "milliseconds, greedy": mean(answer["milliseconds"] for answer in greedy),
        "node": subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip(),
    }
    atomic_write(RECORD, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
