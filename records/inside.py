"""What page 17.c shows of 200 captions: its own functions `lens`, `costs` and `patched`, run on the test set.

Kept as it made inside.json; no test runs it. With the data, and with PYTHONPATH=.:experiments: python records/inside.py

With `means` behind it, only this is added: what heads cost if not zeros stand in for their output but its mean over
training captions; and BLEU and chrF with zeros and with means, their differences by the paired bootstrap.
With `resampled` behind it, what heads cost if their output for another caption stands in for it.
With `positions` behind it, what they cost if their mean at that position over training captions does.
"""

import json
import re
import sys
import time
from contextlib import ExitStack
from itertools import pairwise, takewhile
from pathlib import Path

import jupytext
import numpy as np
import sacrebleu
import torch
from bleu import bleu, sentence_counts
from heads import BATCH_TOKENS, TOLERANCE, all_heads
from record import SPLITS, corpus, digest, environment, load, pretty_json
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data import encode_pairs
from transformer_lib.files import atomic_write, shipped
from transformer_lib.training.loss import validation_loss
from transformer_lib.translation import cross_attention_weights

ROOT = Path(__file__).resolve().parent.parent
CAPTIONS, TRAINING, SOME = 200, 500, 300
TEST = SPLITS[0]
ARTICLE = re.compile(r"^ ?[Ee]in(e|en|em|er|es)?$")


def page() -> dict:
    """The names that the page's cells define: those that do not need inside.json."""
    text = (ROOT / "chapters/17c_heads.md").read_text(encoding="utf-8")
    cells = [cell.source for cell in jupytext.reads(text, fmt="md:myst").cells if cell.cell_type == "code"]
    names: dict = {}
    for source in takewhile(lambda source: "import grade" not in source, cells):
        if not re.search(r"\binside\b|_of\b|\b(table|interval|heads_effect)\b", source):  # no cell of the record's
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


def means() -> None:
    """Add to inside.json what it costs to put the mean over training captions in the place of heads."""
    folder, start, names, path = shipped("multi30k-en-de"), time.process_time(), page(), ROOT / "records/inside.json"
    tokenizer, model, record = names["tokenizer"], names["model"], load(folder)
    pairs = {
        part: encode_pairs(corpus(record, part), tokenizer, max_len=model.config.max_len)[0]
        for part in ("train", "val")
    }
    outputs = {name: model.get_submodule(name).out_projection for name, _ in all_heads(model)}
    entered = [names["run"](source, target[:-1], outputs.values())[1] for source, target in pairs["train"][:TRAINING]]
    mean = {name: torch.cat(rows).mean(dim=0) for name, rows in zip(outputs, zip(*entered))}  # (d_model,) each

    def put_in(heads, by: str) -> ExitStack:
        """Within the block, zeros or means are in the place of these heads."""
        hooks = ExitStack()
        for name, head in heads:
            place = names["channels"](head)
            value = mean[name][place] if by == "means" else 0
            hooks.enter_context(names["replaced"](outputs[name], (..., place), value))
        return hooks

    def loss(*heads) -> float:
        with put_in(heads, "means"):
            return validation_loss(model, pairs["val"], BATCH_TOKENS)

    whole = loss()
    alone = {head: loss(head) - whole for head in all_heads(model)}
    order, together = sorted(alone, key=lambda head: alone[head]), []
    while not together or together[-1] <= TOLERANCE:
        together.append(loss(*order[: len(together) + 1]) - whole)
    value = json.loads(path.read_text(encoding="utf-8"))
    zeros = json.loads((folder / "analysis.json").read_text(encoding="utf-8"))["heads"]
    gone = {"cheap": [tuple(head) for head in zeros["order"][: zeros["free"]]]}
    gone["gender"] = [("decoder.layers.2.cross_attention", 3)]
    test = corpus(record, TEST)
    whole = names["translator"].translate(test.source, beam_size=1)
    scores = {}
    for name, heads in gone.items():
        for by in ("zeros", "means"):
            with put_in(heads, by):
                answers = names["translator"].translate(test.source, beam_size=1)
            changed = sum(one != other for one, other in zip(answers, whole))
            scores[f"{name}, {by}"] = {"changed": changed} | differences(whole, answers, test.target)
    layers = [mean[f"decoder.layers.{layer}.cross_attention"] for layer in range(model.config.num_decoder_layers)]
    ours = (folder / f"{TEST}.de").read_text(encoding="utf-8").splitlines()
    for number, row in value["looked"].items():
        source, german = tokenizer.encode(test.source[int(number)]), tokenizer.encode(ours[int(number)])
        at = before_nouns([tokenizer.decode([token]) for token in german])[-1]
        for word, end in (("article", at + 2), ("noun", at + 3)):
            row[f"{word} means"] = rounded(names["costs"](source, [tokenizer.bos_id, *german][:end], layers))
    made = {"command": "python records/inside.py means"} | environment()
    made |= {"training captions": TRAINING, "minutes of one core": round((time.process_time() - start) / 60, 1)}
    costs = {name: [round(alone[key], 4) for key in alone if key[0] == name] for name in outputs}
    value["means"] = {"made": made, "alone": costs, "order": order, "together": rounded(together, 4), "scores": scores}
    atomic_write(path, pretty_json(value) + "\n")


def resampled() -> None:
    """Add to inside.json what it costs to put a head's output for another caption in the place of its own.

    The other caption is the next one of the batch, of about the same length; behind its end, its last token counts.
    """
    folder, start, names, path = shipped("multi30k-en-de"), time.process_time(), page(), ROOT / "records/inside.json"
    model, value, lengths = names["model"], json.loads(path.read_text(encoding="utf-8")), {}
    pairs = encode_pairs(corpus(load(folder), "val"), names["tokenizer"], max_len=model.config.max_len)[0]

    def note(_, args) -> None:
        assert len(args[0]) > 1, "no other caption"
        for side, tokens in zip(("encoder", "decoder"), args):
            lengths[side] = (tokens != model.config.pad_id).sum(dim=1)  # (batch,)

    def loss(*heads) -> float:
        with ExitStack() as hooks:
            hooks.callback(model.register_forward_pre_hook(note).remove)
            for name, head in heads:
                side, place = name.split(".")[0], names["channels"](head)

                def change(_, args, side=side, place=place):
                    x, ends = args[0].clone(), lengths[side].roll(1)[:, None] - 1
                    rows = torch.arange(x.size(1)).minimum(ends)[..., None].expand_as(x)  # (batch, length, d_model)
                    x[..., place] = args[0].roll(1, 0).gather(1, rows)[..., place]
                    return (x,)

                hooks.enter_context(model.get_submodule(name).out_projection.register_forward_pre_hook(change))
            return validation_loss(model, pairs, BATCH_TOKENS)

    whole = loss()
    alone = {head: loss(head) - whole for head in all_heads(model)}
    costs = {name: [round(alone[key], 4) for key in alone if key[0] == name] for name, _ in alone}
    made = {"command": "python records/inside.py resampled"} | environment()
    made |= {"minutes of one core": round((time.process_time() - start) / 60, 1)}
    value["resampled"] = {"made": made, "alone": costs}
    atomic_write(path, pretty_json(value) + "\n")


def positions() -> None:
    """Add to inside.json what it costs to put a head's mean at each position in its place.

    Behind the longest of the training captions the mean of the last position counts. Of SOME validation captions.
    """
    folder, start, names, path = shipped("multi30k-en-de"), time.process_time(), page(), ROOT / "records/inside.json"
    model, value, record = names["model"], json.loads(path.read_text(encoding="utf-8")), load(folder)
    train, val = (
        encode_pairs(corpus(record, part), names["tokenizer"], max_len=model.config.max_len)[0]
        for part in ("train", "val")
    )
    outputs = {name: model.get_submodule(name).out_projection for name, _ in all_heads(model)}
    entered = [names["run"](source, target[:-1], outputs.values())[1] for source, target in train[:TRAINING]]
    mean = {name: pad_sequence(rows, padding_value=torch.nan).nanmean(1) for name, rows in zip(outputs, zip(*entered))}

    def loss(*heads) -> float:
        with ExitStack() as hooks:
            for name, head in heads:

                def change(_, args, name=name, head=head):
                    x, known, place = args[0].clone(), mean[name], names["channels"](head)  # (…, d_model)
                    x[..., place] = known[torch.arange(x.size(1)).clamp(max=len(known) - 1), place]
                    return (x,)

                hooks.enter_context(outputs[name].register_forward_pre_hook(change))
            return validation_loss(model, val[:SOME], BATCH_TOKENS)

    whole = loss()
    alone = {head: loss(head) - whole for head in all_heads(model)}
    costs = {name: [round(alone[key], 4) for key in alone if key[0] == name] for name in outputs}
    made = {"command": "python records/inside.py positions"} | environment()
    made |= {"training captions": TRAINING, "captions": SOME}
    made |= {"minutes of one core": round((time.process_time() - start) / 60, 1)}
    value["positions"] = {"made": made, "alone": costs}
    atomic_write(path, pretty_json(value) + "\n")


def differences(before: list[str], after: list[str], references: list[str]) -> dict:
    """By how much BLEU and chrF change, and the bounds of 95 of 100 draws of captions, the same for both systems."""
    metric = sacrebleu.CHRF()
    draws = [range(len(references)), *np.random.default_rng(0).integers(len(references), size=(1000, len(references)))]
    often = np.array([np.bincount(draw, minlength=len(references)) for draw in draws])  # (draws, captions)
    found = []
    for answers in (after, before):
        sums = often @ sentence_counts(answers, references)
        letters = often @ np.array(metric._extract_corpus_statistics(answers, [references]))
        found.append(
            [
                [bleu(row).score for row in sums],
                [metric._compute_score_from_stats(row.tolist()).score for row in letters],
            ]
        )
    change = np.subtract(*found)  # (scores, draws)
    bounds = np.quantile(change[:, 1:], [0.025, 0.975], axis=1).T
    return {
        name: rounded([first, *ends], 2)
        for name, first, ends in zip(("bleu", "chrf"), change[:, 0].tolist(), bounds.tolist())
    }


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
    {"means": means, "resampled": resampled, "positions": positions}.get("".join(sys.argv[1:]), main)()
