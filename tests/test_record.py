"""The record of the translator: nothing in it was written by hand, and its weights still give its scores.

What needs the dataset is skipped where TRANSFORMER_LIB_DATA does not name the folder that holds it.
"""

import hashlib
import json
import os
import re
import shlex
import subprocess
from functools import cache
from pathlib import Path

import pytest
import record as tool
import sacrebleu
import torch
from model_card import model_card
from safetensors.torch import load_file
from small import ROOT, call, write_texts
from test_translation import BOOK, translator

from transformer_lib.__main__ import _commands
from transformer_lib.cost import count_parameters
from transformer_lib.data import corpora, load_multi30k
from transformer_lib.recipes import PRESETS
from transformer_lib.scores import evaluate_bleu, papers_form
from transformer_lib.training import TrainingConfig
from transformer_lib.translation import Translator

FOLDER = ROOT / "records" / "multi30k-en-de"
TEST, VAL = tool.SPLITS
NO_DATA = "TRANSFORMER_LIB_DATA does not name a folder"  # as tests/skips.py expects it
with_data = pytest.mark.skipif("TRANSFORMER_LIB_DATA" not in os.environ, reason=NO_DATA)


@cache
def record():
    return json.loads((FOLDER / "record.json").read_text(encoding="utf-8"))


@cache
def data(split):
    return load_multi30k(split, source=record()["source"], target=record()["target"])


def require_recorded(found, said):
    """By whichever sacrebleu and Python: from 3.12 on, `sum` rounds differently. TER came later than the record."""
    for way, name in ((way, name) for way, scores in said.items() for name in scores):
        wanted = said[way][name]
        if isinstance(wanted, str):
            assert found[way][name] == re.sub("version:.*", f"version:{sacrebleu.__version__}", wanted)
        else:
            assert found[way][name] == pytest.approx(wanted, rel=1e-14, abs=0)


def lines(split):
    return (FOLDER / f"{split}.{record()['target']}").read_text(encoding="utf-8").removesuffix("\n").split("\n")


@with_data
@pytest.mark.parametrize("language", ["de", "en"])
def test_the_form_that_papers_score_is_that_of_the_dataset(language):
    theirs = Path(os.environ["TRANSFORMER_LIB_DATA"], "multi30k", f"{TEST}.lc.norm.tok.{language}")
    if not theirs.exists():
        pytest.skip(f"there is no {theirs.name}")
    raw = load_multi30k(TEST, source=language, target=language).source
    assert papers_form(raw, language) == theirs.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_a_dictionary_translates_word_by_word():
    corpus = tool.ParallelCorpus([f"{text}." for text in BOOK] * 3, [f"{text}." for text in BOOK.values()] * 3)
    assert tool.word_by_word(corpus, ["A cat runs.", "The Qux, dog"]) == ["Eine Katze läuft.", "Der qux, Hund"]


def test_scores_are_by_both_protocols_and_the_length_is_that_of_the_translations_by_that_of_the_references():
    hypotheses, references = ["Ein Hund läuft.", "Zwei."], ["Ein großer Hund läuft schnell.", "Zwei Katzen."]
    found = tool.scores(hypotheses, references, "de")
    assert found["papers"].pop("length") == (4 + 2) / (6 + 3)  # the full stops, too
    papers = evaluate_bleu(hypotheses, references, papers="de")
    assert found == {"cased": evaluate_bleu(hypotheses, references), "papers": papers}


def test_weights_are_shipped_in_half_and_loaded_in_single_precision(tmp_path):
    ours = translator(dtype=torch.float32, tie_embeddings="all")
    ours.save(tmp_path / "run")
    (tmp_path / "run" / "log.jsonl").write_text("{}\n")
    theirs = tool.copy_run(tmp_path / "run", tmp_path / "record")
    assert {value.dtype for value in load_file(tmp_path / "record" / "model.safetensors").values()} == {torch.float16}
    for name, value in theirs.model.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, ours.model.state_dict()[name].half().float())


def test_the_untrained_model_is_the_one_that_train_begins_with(tmp_path, monkeypatch):
    write_texts(tmp_path)
    monkeypatch.chdir(tmp_path)
    options = "--preset tiny --out run --steps 1 --seed 5 --learning-rate 1e-9"
    assert call(*f"train --source en --target de {options}".split())[0] == 0
    trained = Translator.from_pretrained(tmp_path / "run")
    begun, other = (tool.untrained(trained, seed).model.state_dict() for seed in (5, 6))
    torch.testing.assert_close(trained.model.state_dict(), begun, rtol=0, atol=1e-8)
    assert (other["source_embedding.weight"] - begun["source_embedding.weight"]).abs().max() > 0.01


def test_no_file_was_changed_added_or_lost():
    others = {path.name: path.read_bytes() for path in FOLDER.iterdir() if path.name != "record.json"}
    assert {name: hashlib.sha256(text).hexdigest() for name, text in others.items()} == record()["files"]
    listed = subprocess.run(["git", "ls-files", FOLDER], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if (ROOT / ".git").exists():
        assert sorted(Path(name).name for name in listed.splitlines()) == sorted([*others, "record.json"])


def test_the_record_says_what_the_other_files_say():
    said = record()
    given = {name: said[name] for name in ("source", "target", "seed")}
    assert f"seed {said['seed']}" in said["command"]
    where = {name: said[name] for name in tool.environment(said["commit"])}
    rebuilt = tool.metadata(FOLDER, said["command"], where, **given)
    kept = {name: value for name, value in rebuilt.items() if name not in ("torch", "python", "sacremoses")}
    assert {name: said[name] for name in kept} == kept
    assert re.fullmatch(r"[0-9a-f]{40}", said["commit"])
    assert (FOLDER / "README.md").read_text(encoding="utf-8") == model_card(said, FOLDER.name)
    assert said["decoding"] == tool.DECODING


def test_make_train_trains_what_is_recorded_and_stops_when_it_did():
    dry = subprocess.run(["make", "-n", "train", "PYTHON=python"], cwd=ROOT, capture_output=True, text=True, check=True)
    (ours,) = (shlex.split(line)[4] for line in dry.stdout.splitlines() if "experiments/record.py" in line)
    said, log, settings = record(), tool.log_of(FOLDER), PRESETS["small"]["training"]
    made = _commands.commands["train"].make_context("train", shlex.split(ours)[4:]).params
    free = ("out", "steps", "device", "precision")
    given = {name: value for name, value in made.items() if value and name not in free}
    assert given == {name: said[name] for name in ("source", "target", "seed")} | {"corpus": "multi30k"}
    config = TrainingConfig(**settings | {"steps": made["steps"]})
    assert [row["step"] for row in log] == [*range(60, said["steps"] + 1, config.evaluate_every)]
    assert all(row["learning_rate"] == config.learning_rate(row["step"]) for row in log)
    assert said["steps"] - said["best_step"] == config.patience * config.evaluate_every


def test_the_model_is_small():
    config, path = Translator.from_pretrained(FOLDER).model.config, FOLDER / "model.safetensors"
    assert record()["parameters"] == count_parameters(config) <= 7_000_000
    assert path.stat().st_size <= 15_000_000
    lines = (ROOT / ".gitattributes").read_text().splitlines()
    assert {"*.safetensors binary", "* text=auto eol=lf"} <= {*lines}  # with CRLF every page would count as changed


def skip_unless_here(split):
    if split not in record()["scores"] or not all(corpora.find_multi30k(split, side) for side in ("en", "de")):
        pytest.skip(f"{split} is not recorded, or not on this machine")


@with_data
@pytest.mark.parametrize("split", [TEST, *(pytest.param(s, marks=pytest.mark.long) for s in (VAL, *tool.FURTHER))])
def test_the_stored_translations_have_the_recorded_scores(split):
    skip_unless_here(split)
    found = tool.scores(lines(split), data(split).target, record()["target"])
    require_recorded(found, record()["scores"][split])


@with_data
@pytest.mark.bad_input  # the shapes are checked elsewhere; here it would take half of the time
def test_the_shipped_weights_give_the_stored_translations():
    answers = Translator.from_pretrained(FOLDER).translate(data(TEST).source[:150], **record()["decoding"])
    assert sum(map(str.__eq__, answers, lines(TEST))) >= 147


@with_data
@pytest.mark.long
@pytest.mark.bad_input
@pytest.mark.parametrize("split", [*tool.SPLITS, *tool.FURTHER])
def test_the_shipped_weights_give_the_recorded_scores(split):
    skip_unless_here(split)
    answers = Translator.from_pretrained(FOLDER).translate(data(split).source, **record()["decoding"])
    found, said = tool.scores(answers, data(split).target, record()["target"]), record()["scores"][split]
    for way in ("cased", "papers"):
        assert abs(found[way]["bleu"] - said[way]["bleu"]) <= 0.05
    assert sum(a == b for a, b in zip(answers, lines(split), strict=True)) >= 0.98 * len(answers)


@with_data
@pytest.mark.parametrize(("name", "answers"), [
    ("copy the source", lambda: data(TEST).source),
    pytest.param("word-by-word dictionary", lambda: tool.word_by_word(data("train"), data(TEST).source),
                 marks=pytest.mark.long),
])  # fmt: skip
def test_baselines_have_the_recorded_scores(name, answers):
    found = tool.scores(answers(), data(TEST).target, record()["target"])
    require_recorded(found, record()["baselines"][name])


def texts(value):
    if isinstance(value, str):
        return [value]
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in values for text in texts(part)]


def read(path):
    text = path.read_text(encoding="utf-8")
    return "\n".join(texts(json.loads(text))) if path.suffix == ".json" else text


def quoted(text, sentences):
    return {sentence for sentence in sentences if sentence in text}


@with_data
def test_at_most_ten_sentences_of_the_dataset():
    """A sentence that the model wrote itself, and that happens to be the reference, is the model's."""
    translated = record()["scores"]
    written = {f"{split}.{record()['target']}" for split in translated}
    files = {path.name: path for path in FOLDER.iterdir() if path.suffix not in (".safetensors",)}
    everything = "\n".join(read(path) for path in files.values())
    sources, targets = ({text for split in ("train", *tool.SPLITS) for text in getattr(data(split), side)}
                        for side in ("source", "target"))  # fmt: skip
    assert len(quoted(everything, sources)) <= 10
    said = "\n".join(read(path) for name, path in files.items() if name not in written)
    own = {line for split in translated for line in lines(split)}
    assert len(quoted(said, targets - own)) <= 10


@with_data
def test_at_most_ten_sentences_are_quoted_and_none_of_them_whole():
    text = (ROOT / "records" / "errors.json").read_text(encoding="utf-8")  # those that were classified by hand
    rows = json.loads(text)["sentences"]
    source = data(TEST).source
    parts = {number: row["english"] for number, row in rows.items() if "english" in row}
    assert len(parts) <= 10
    for number, part in parts.items():
        assert all(piece in source[int(number)] for piece in part.split(" … "))
        assert len(part.split()) < 0.7 * len(source[int(number)].split())
    page = (ROOT / "chapters" / "17f_errors.md").read_text(encoding="utf-8")
    assert quoted(page + text, set(source)) == set()
