"""What page 17.c shows of 200 captions: its own functions `lens`, `costs` and `patched`, run on the test set.

Kept as it made inside.json; no test runs it. With the data, and with PYTHONPATH=.:experiments: python records/inside.py
"""

import re
import time
from itertools import pairwise, takewhile
from pathlib import Path

import jupytext
import torch
from record import SPLITS, corpus, digest, environment, load, pretty_json

from transformer_lib.files import atomic_write, shipped
from transformer_lib.translation import cross_attention_weights

ROOT = Path(__file__).resolve().parent.parent
CAPTIONS = 200
TEST = SPLITS[0]
ARTICLE = re.compile(r"^ ?[Ee]in(e|en|em|er|es)?$")


def page() -> dict:
    """The names that the page's cells define, those before the one that reads inside.json."""
    text = (ROOT / "chapters/17c_heads.md").read_text(encoding="utf-8")
    cells = [cell.source for cell in jupytext.reads(text, fmt="md:myst").cells if cell.cell_type == "code"]
    names: dict = {}
    for source in takewhile(lambda source: 'shipped("inside.json")' not in source, cells):
        exec(source, names)
    return names


def before_nouns(pieces: list[str]) -> list[int]:
    """Where a form of *ein* stands with a noun directly behind it."""
    pairs = enumerate(pairwise(pieces))
    return [at for at, (piece, after) in pairs if ARTICLE.match(piece) and after[:1] == " " and after[1:2].isupper()]


def main() -> None:
    """Write inside.json: the log-probabilities of each caption, so that the page can draw captions again."""
    folder, start, names = shipped("multi30k-en-de"), time.process_time(), page()
    tokenizer, english = names["tokenizer"], corpus(load(folder), TEST).source
    ours = (folder / f"{TEST}.de").read_text(encoding="utf-8").splitlines()
    looked, changed, left_out = {}, {}, 0
    for number, (text, translation) in enumerate(zip(english, ours)):
        source, german = tokenizer.encode(text), tokenizer.encode(translation)
        target, pieces = [tokenizer.bos_id, *german], [tokenizer.decode([token]) for token in german]
        if len(looked) < CAPTIONS and (places := before_nouns(pieces)):
            at = places[-1]  # the last one, so seldom the first word
            seen = names["lens"](source, target[: at + 2])
            gender = names["feminine"](seen[:, at]) * (1 if german[at] in names["FEMININE"] else -1)
            looked[str(number)] = {
                "article": rounded(seen[:, at, german[at]].exp()),
                "gender": rounded(gender.sigmoid()),
                "noun": rounded(seen[:, at + 1, german[at + 1]].exp()),
                "article heads": rounded(names["costs"](source, target[: at + 2])),
                "noun heads": rounded(names["costs"](source, target[: at + 3])),
            }
        if len(changed) < CAPTIONS and re.findall(r"\b(?:man|woman)\b", text) and (pair := swapped(text)):
            other, noun = tokenizer.encode(pair[0]), pair[1]
            places = [at for at in before_nouns(pieces) if pieces[at + 1] == noun]
            if len(places) != 1 or len(other) != len(source):
                left_out += 1
                continue
            (at,) = (n for n, (one, two) in enumerate(zip(source, other)) if one != two)
            rest, target = [n for n in range(len(source)) if not at - 1 <= n <= at + 1], target[: places[0] + 1]
            where = target, [[at - 1], [at], [at + 1], rest]
            found = names["patched"](source, other, *where)
            found["opposite"] = names["patched"](other, source, *where)["heads"]
            weights = cross_attention_weights(names["model"], torch.tensor([source]), torch.tensor([target]))
            found |= {"weights": weights[:, :, -1, at].flatten().tolist(), "row": places[0]}  # weights on the noun
            changed[str(number)] = {"noun": noun.strip()} | {part: rounded(value, 2) for part, value in found.items()}
    made = {"command": "python records/inside.py"} | environment() | {"threads": torch.get_num_threads(), "seed": 0}
    made |= {"minutes of one core": round((time.process_time() - start) / 60, 1)}
    value = {"made": made, "weights": digest(folder / "model.safetensors"), "split": TEST, "left out": left_out}
    value |= {"looked": looked, "patched": changed}
    atomic_write(ROOT / "records/inside.json", pretty_json(value) + "\n")


def swapped(text: str) -> tuple[str, str] | None:
    """A caption of "a man" or "a woman" with the other one, and the German noun; None if there is not just one."""
    both = {"man": ("woman", " Mann"), "woman": ("man", " Frau")}
    (word, *others) = re.findall(r"\b(?:man|woman)\b", text)
    if others or not re.search(rf"\b[Aa] {word}\b", text):
        return None
    return re.sub(rf"\b{word}\b", both[word][0], text), both[word][1]


def rounded(value, digits: int = 3):
    """Numbers, in lists of any depth or in a tensor, with so many decimals."""
    value = value.tolist() if isinstance(value, torch.Tensor) else value
    return [rounded(part, digits) for part in value] if isinstance(value, list) else round(value, digits)


if __name__ == "__main__":
    main()
