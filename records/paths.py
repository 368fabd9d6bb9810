"""What page 17.c shows of one head's paths: head 4 of the decoder's layer 3, in the pairs of inside.json, both ways.

Kept as it made paths.json; no test runs it. With the data, and with PYTHONPATH=.:experiments: python records/paths.py
Numbers are logs of how much more probable the feminine forms of the article are than the others.
"""

import json
import re
import time
from contextlib import ExitStack
from pathlib import Path

import torch
from inside import page, rounded
from record import SPLITS, corpus, digest, environment, load, pretty_json

from transformer_lib.files import atomic_write, shipped
from transformer_lib.translation import cross_attention_weights

ROOT = Path(__file__).resolve().parent.parent
HEAD, NEXT = (2, 3), (3, 3)  # counted from 0: layer and head
DONORS = "boy", "dog", "girl", "lady", "person", "group"  # Junge, Hund, Mädchen; Dame, Person, Gruppe
names = page()
run, model, decoder, outputs = (names[name] for name in ("run", "model", "decoder", "outputs"))
last = decoder.norm  # what enters it is the state after the last layer


class Seen:
    """One run: what its heads and its last state are where the article is predicted, and what the head reads."""

    def __init__(self, source: list[int], target: list[int]) -> None:
        log_probs, (*heads, self.last, memory) = run(source, target, [*outputs, last, model.encoder.norm])
        self.gender = gender_of(log_probs[-1])
        self.heads = [entered[-1] for entered in heads]  # (d_model,) each
        memory = model.encoder.norm(memory)[None]
        self.values = decoder.layers[HEAD[0]].cross_attention.project(memory, memory, memory)[2][0]  # (n, d_model)
        self.values = self.values[:, names["channels"](HEAD[1])].detach()  # (n, d_k)
        weights = cross_attention_weights(model, torch.tensor([source]), torch.tensor([target]))
        self.weights = weights[(*HEAD, -1)].detach()  # (n,)
        assert torch.allclose(self.weights @ self.values, self.head(*HEAD), rtol=0, atol=1e-5)

    def head(self, layer: int, head: int) -> torch.Tensor:
        """What a head puts into the output projection, (d_k,)."""
        return self.heads[layer][names["channels"](head)]


def gender_of(log_probs: torch.Tensor) -> float:
    """The log of how much more probable feminine forms are, of log-probabilities (vocabulary,)."""
    return names["feminine"](log_probs).item()


def patched(source: list[int], target: list[int], put_in: dict) -> float:
    """The article's gender with these outputs of heads."""
    with ExitStack() as hooks:
        for (layer, head), value in put_in.items():
            place = 0, -1, names["channels"](head)
            hooks.enter_context(names["replaced"](outputs[layer], place, value))
        return gender_of(run(source, target)[0][-1])


def paths(clean: Seen, corrupted: Seen, source: list[int], target: list[int]) -> dict:
    """The gender after patches from the clean run into the corrupted one, whose source this is."""
    every = {place: clean.head(*place) for place in names["every_head"]}
    direct = []  # only the state after the last layer gets the difference of a head's output
    for (layer, head), value in every.items():
        columns = outputs[layer].weight[:, names["channels"](head)]  # (d_model, d_k)
        state = corrupted.last[-1] + columns @ (value - corrupted.head(layer, head))
        direct.append(gender_of(model.output_projection(last(state)).log_softmax(dim=-1)))
    put_in = {
        "head": {HEAD: every[HEAD]},
        "weights": {HEAD: clean.weights @ corrupted.values},
        "values": {HEAD: corrupted.weights @ clean.values},
        "two": {place: every[place] for place in (HEAD, NEXT)},
        "all": every,
    }
    found = {name: patched(source, target, heads) for name, heads in put_in.items()}
    return {name: rounded(value, 2) for name, value in ({"direct": direct} | found).items()}


@torch.no_grad()
def main() -> None:
    """Write paths.json: each pair of inside.json as it is, with *young* before the noun, and with other nouns."""
    start, tokenizer, folder = time.process_time(), names["tokenizer"], shipped("multi30k-en-de")
    inside = json.loads((ROOT / "records/inside.json").read_text(encoding="utf-8"))
    english = corpus(load(folder), SPLITS[0]).source
    ours = (folder / f"{SPLITS[0]}.de").read_text(encoding="utf-8").splitlines()
    made = {"command": "python records/paths.py"} | environment() | {"threads": torch.get_num_threads(), "seed": 0}
    pairs = {}
    for number, known in inside["patched"].items():
        before, own, after = re.split(r"\b(man|woman)\b", english[int(number)])
        other, at = "woman" if own == "man" else "man", known["row"]
        target = [tokenizer.bos_id, *tokenizer.encode(ours[int(number)])[:at]]
        row: dict = {"noun": known["noun"], "row": at}
        for name, adjective in (("plain", ""), ("young", "young ")):
            sources = [tokenizer.encode(before + adjective + noun + after) for noun in (own, other)]
            seen = [Seen(source, target) for source in sources]
            (noun,) = (n for n, (one, two) in enumerate(zip(*sources)) if one != two)
            found = paths(*seen, sources[1], target), paths(*seen[::-1], sources[0], target)
            row[name] = {
                "clean": round(seen[0].gender, 2), "corrupted": round(seen[1].gender, 2), "noun": noun,
                "weights": [rounded(run.weights[noun - 1 : noun + 1]) for run in seen],  # before the noun, on the noun
                "patched": found[0], "opposite": found[1],
            }  # fmt: skip
        assert abs(row["plain"]["clean"] - known["clean"]) < 0.02, "not the caption or the model of inside.json"
        row["donors"] = {}
        for noun in DONORS:
            donor, source = (tokenizer.encode(before + word + after) for word in (noun, own))
            seen = Seen(donor, target)
            row["donors"][noun] = rounded([seen.gender, patched(source, target, {HEAD: seen.head(*HEAD)})], 2)
        pairs[number] = row
    made |= {"minutes of one core": round((time.process_time() - start) / 60, 1)}
    value = {"made": made, "weights": digest(folder / "model.safetensors"), "split": SPLITS[0], "pairs": pairs}
    atomic_write(ROOT / "records/paths.json", pretty_json(value) + "\n")


if __name__ == "__main__":
    main()
