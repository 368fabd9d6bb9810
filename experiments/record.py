"""Make of a finished training run on Multi30k the record that the book ships: a model directory with its scores.

python experiments/record.py RUN RECORD COMMAND [--source en] [--target de] [--seed 0] [--commit HASH] [--device WORDS]

RUN is the directory that `train --out` wrote, RECORD the one to write, COMMAND how the training was called, which the
record quotes; the languages and the seed are those of that command. HASH names the commit that it ran at, if that is
not the present one; WORDS the device, if it is not that of this machine.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from aligner import dictionary, words
from model_card import model_card

from transformer_lib.cost import count_parameters
from transformer_lib.data import ParallelCorpus, load_multi30k
from transformer_lib.files import InputError, atomic_write
from transformer_lib.model import Transformer
from transformer_lib.scores import evaluate_bleu, papers_form
from transformer_lib.translation import Translator
from transformer_lib.weights import save_weights

SPLITS = ("test_2016_flickr", "val")
FURTHER = ("test_2017_flickr", "test_2017_mscoco")  # test sets of other photographs, not in every copy of the data
DECODING: dict[str, Any] = {"beam_size": 5, "length_penalty": 1.0}

# --- scores ------------------------------------------------------------------------------------------------------


def scores(hypotheses: Sequence[str], references: Sequence[str], language: str) -> dict[str, dict]:
    """The scores by both protocols, "cased" and "papers", as `evaluate_bleu` has them.

    "papers" has "length", too: the number of tokens for each token of the references.
    """
    papers: dict[str, Any] = evaluate_bleu(hypotheses, references, papers=language)
    ours, theirs = (" ".join(papers_form(side, language)).split() for side in (hypotheses, references))
    return {"cased": evaluate_bleu(hypotheses, references), "papers": papers | {"length": len(ours) / len(theirs)}}


def word_by_word(train: ParallelCorpus, sentences: Sequence[str]) -> list[str]:
    """Each word replaced by the one it is most often aligned with in `train`, if with any; the order stays."""
    learnt = dictionary([(words(source.lower()), words(target)) for source, target in zip(train.source, train.target)])
    answers = []
    for sentence in sentences:
        answer = "".join(
            word if word in ".,;:!?" else " " + learnt.get(word, word) for word in words(sentence.lower())
        ).strip()
        answers.append(answer[:1].upper() + answer[1:])
    return answers


def untrained(translator: Translator, seed: int) -> Translator:
    """The same translator before its first update: `train` sets the seed and makes the model."""
    torch.manual_seed(seed)
    return Translator(Transformer(translator.model.config), translator.tokenizer)


# --- the directory -----------------------------------------------------------------------------------------------


def copy_run(run: Path, folder: Path) -> Translator:
    """Copy a run, its weights in half precision, and return the translator as a reader loads it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "tokenizer.json", "log.jsonl"):
        shutil.copyfile(run / name, folder / name)
    save_weights(folder / "model.safetensors", Translator.from_pretrained(run).model.half())
    return Translator.from_pretrained(folder)


def log_of(folder: Path) -> list[dict]:
    """The rows of a run's log."""
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def load(folder: Path) -> dict:
    """The record of a directory."""
    return json.loads((folder / "record.json").read_text(encoding="utf-8"))


def corpus(record: dict, split: str) -> ParallelCorpus:
    """A part of Multi30k in the direction of a record."""
    return load_multi30k(split, source=record["source"], target=record["target"])


def further(record: dict) -> dict[str, ParallelCorpus]:
    """The further test sets, those that are on disk or can be downloaded."""
    found = {}
    for split in FURTHER:
        try:
            found[split] = corpus(record, split)
        except InputError as error:
            print(f"{split} is left out: {error}", file=sys.stderr)
    return found


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pretty_json(value: dict, depth: int = 2, indent: str = "") -> str:
    """JSON with a line for each entry down to a depth, and no further."""
    if not isinstance(value, dict) or not depth:
        return json.dumps(value, ensure_ascii=False)
    inner = f"{indent} "
    lines = (f"{inner}{json.dumps(name)}: {pretty_json(part, depth - 1, inner)}" for name, part in value.items())
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def save_table(path: Path, value: dict, depth: int = 2) -> None:
    """Write a file of a record's directory, a line for each entry down to a depth, and all checksums anew."""
    atomic_write(path, pretty_json(value, depth) + "\n")
    write_checksums(path.parent)


def environment(commit: str | None = None) -> dict[str, str]:
    """Where something is measured: the commit (None = the present one), the device, and the versions that matter."""
    git, cuda = ["git", "rev-parse", "HEAD"], torch.cuda.is_available()
    return {
        "commit": commit or subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip(),
        "device": torch.cuda.get_device_name() if cuda else f"CPU, {os.cpu_count()} cores",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def metadata(folder: Path, command: str, where: dict[str, str], *, source: str, target: str, seed: int) -> dict:
    """What was trained, how, where, and for how long."""
    log = log_of(folder)
    return {
        "command": command,
        **where,
        "sacremoses": version("sacremoses"),
        "seed": seed,
        "steps": log[-1]["step"],
        "best_step": min(log, key=lambda row: row["val_loss"])["step"],
        "target_tokens": log[-1]["tokens"],
        "seconds": log[-1]["seconds"],
        "source": source,
        "target": target,
    }


def write_checksums(folder: Path) -> None:
    """Write into record.json the SHA-256 of every other file of the directory."""
    path, record = folder / "record.json", load(folder)
    others = sorted(file for file in folder.iterdir() if file != path)
    record["files"] = {file.name: digest(file) for file in others}
    atomic_write(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def save_record(record: dict, folder: Path) -> None:
    """Write the record and its model card, and the checksums of the directory."""
    atomic_write(folder / "record.json", json.dumps(record))
    atomic_write(folder / "README.md", model_card(record, folder.name))
    write_checksums(folder)


def add_scores(record: dict, folder: Path, corpora: dict[str, ParallelCorpus]) -> None:
    """Translate parts of Multi30k with the shipped weights, on the CPU; keep the translations, and their scores."""
    translator, target = Translator.from_pretrained(folder), record["target"]
    for split, data in corpora.items():
        answers = translator.translate(data.source, **DECODING)
        atomic_write(folder / f"{split}.{target}", "".join(f"{answer}\n" for answer in answers))
        record["scores"][split] = scores(answers, data.target, target)


def make_record(
    run: Path, folder: Path, command: str, where: dict[str, str], *, source: str, target: str, seed: int
) -> None:
    """Write a whole record; every translation and score comes from the weights that are shipped, on the CPU."""
    translator = copy_run(run, folder)
    for name in ("analysis.json", *(f"{split}.{target}" for split in FURTHER)):  # they were of other weights
        (folder / name).unlink(missing_ok=True)
    record = metadata(folder, command, where, source=source, target=target, seed=seed)
    train, test, val = (corpus(record, split) for split in ("train", *SPLITS))
    record |= {"training_pairs": len(train), "parameters": count_parameters(translator.model.config)}
    record |= {"decoding": DECODING, "scores": {}}
    add_scores(record, folder, dict(zip(SPLITS, (test, val))) | further(record))
    easy = {
        "copy the source": test.source,
        "untrained model": untrained(translator, seed).translate(test.source, beam_size=1),
        "word-by-word dictionary": word_by_word(train, test.source),
    }
    record["baselines"] = {name: scores(answer, test.target, target) for name, answer in easy.items()}
    save_record(record, folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("run", "record", "command"):
        parser.add_argument(name)
    parser.add_argument("--source", default="en")
    parser.add_argument("--target", default="de")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commit")
    parser.add_argument("--device")
    given = parser.parse_args()
    where = environment(given.commit) | ({"device": given.device} if given.device else {})
    said = {"source": given.source, "target": given.target, "seed": given.seed}
    make_record(Path(given.run), Path(given.record), given.command, where, **said)
