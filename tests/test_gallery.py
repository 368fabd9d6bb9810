"""Every case of the gallery: exactly the recorded properties fail, and the reference model has all of them."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import torch
from small import ROOT

from transformer_lib.checks import check_transformer
from transformer_lib.checks.bugs import CASES
from transformer_lib.checks.components import ATTENTION, DECODER_LAYER, LAYER, MASKS, MULTI_HEAD, POSITIONS
from transformer_lib.checks.properties import FOLLOWS, PROPERTIES, TRAINED_PROPERTIES
from transformer_lib.checks.reference_model import ReferenceModel
from transformer_lib.checks.report import Finding
from transformer_lib.checks.subject import ModelUnderTest

SIZES = 29, 29, 0
UNSEEN = {"one-layer", "scale", "doubled", "overwritten", "twins", "dropout-place", "target-padding"}


def examine(factory, seed=0):
    """What the suite says, without the trainings."""
    torch.manual_seed(seed)  # one case draws its dropout from the global numbers
    return check_transformer(factory, max_len=ReferenceModel.max_len, training=False, seed=seed)


def test_every_case_has_a_place_in_the_chapter():
    assert {slug for slug, entry in CASES.items() if not entry.failing} == UNSEEN
    labels, headings = {}, 0
    for page in ("13_gallery", "13a_cases"):
        text = (ROOT / "chapters" / f"{page}.md").read_text(encoding="utf-8")
        labels |= dict.fromkeys(re.findall(r"^\(room-([\w-]+)\)=$", text, re.MULTILINE), page)
        headings += len(re.findall(r"^\(room-.*\)=\n### ", text, re.MULTILINE))
    labels = {slug: page for slug, page in labels.items() if not slug.startswith("cache-")}
    assert labels.keys() == {*CASES, "accumulation", "averaged", "unshifted", "train-mode"}
    assert headings == 25
    for slug, page in labels.items():  # a report leads there
        assert Finding("", "fail", "", case=slug).page == f"{page}.html#room-{slug}"


def test_cases_and_properties_that_others_name_exist():
    """A property's name is its function's, so renaming one would part it from these."""
    entries = [*PROPERTIES, *TRAINED_PROPERTIES]
    cached = (ROOT / "chapters" / "13a_cases.md").read_text(encoding="utf-8")
    rooms = set(re.findall(r"^\(room-(cache-\w+)\)=$", cached, re.MULTILINE))
    assert rooms < {entry.case for entry in entries} <= {"", *CASES, *rooms}
    parts = [*ATTENTION, *MULTI_HEAD, *POSITIONS, *MASKS, *LAYER, *DECODER_LAYER]
    assert {entry.case for entry in parts} <= {"", *CASES} - {"wrong-axis"}  # that one is about a mask on the queries
    assert set.union(*(set(entry.failing) for entry in CASES.values())) <= {entry.name for entry in PROPERTIES}
    follows = set(FOLLOWS) | {name for others in FOLLOWS.values() for name in others.split(", ")}
    assert follows <= {entry.name for entry in entries}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_the_reference_model_has_every_property(seed):
    report = examine(ReferenceModel, seed)
    assert report.holds
    assert all(finding.verdict == "pass" for finding in report.findings), report


@pytest.mark.long
@pytest.mark.parametrize("slug", CASES)
def test_the_suite_reports_exactly_what_is_recorded(slug):
    """With logits of another shape a case would get no report."""
    findings = examine(CASES[slug].factory).findings
    assert {f.name for f in findings if f.verdict in ("fail", "note")} == CASES[slug].failing


FLOOR, COPY = (entry.function for entry in TRAINED_PROPERTIES)
CHANCE = 3.33  # ln 28
NEVER = None
TRAINED = {  # loss on random targets after 200 steps; steps until a sentence is copied
    "plain": (3.35, 600), "causal": (0.74, NEVER), "future": (0.88, NEVER), "unmasked": (2.79, NEVER),
    "blind": (3.35, NEVER), "dead": (3.36, NEVER), "slices": (3.35, 800), "scale": (3.35, 400),
    "doubled": (3.35, 800), "overwritten": (3.35, 600), "one-layer": (3.36, 600), "twins": (3.35, 600),
    "softmax": (3.37, 2800), "dropout-place": (3.36, 1000),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("slug", TRAINED)
def test_what_training_shows_is_as_recorded(slug):
    factory = CASES[slug].factory if slug in CASES else ReferenceModel
    wide = type("Wide", (factory,), {"width": 32, "inner": 64})
    model = ModelUnderTest(wide, source_vocab_size=29, pad_id=0)
    recorded_loss, recorded_steps = TRAINED[slug]
    holds, evidence = FLOOR(model)
    assert holds == (recorded_loss > CHANCE - 0.03)
    assert abs(float(re.findall(r"loss (\S+),", evidence)[0]) - recorded_loss) < 0.2
    holds, evidence = COPY(model)
    assert holds == (recorded_steps is not NEVER)
    if holds:
        assert abs(int(re.findall(r"after (\d+) steps", evidence)[0]) - recorded_steps) <= 400


def test_the_score_is_high_and_each_survivor_has_its_reason():
    """Of `make mutation`: all modules that it is to change, and at least 95 % of what is no equivalent is noticed."""
    record = json.loads((ROOT / "records" / "mutation.json").read_text(encoding="utf-8"))["modules"]
    rows = [row.split("\t") for row in (ROOT / "tests" / "survivors.tsv").read_text("utf-8").splitlines()[1:]]
    files = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mutmut"]["only_mutate"]
    assert set(record) == {".".join(Path(file).with_suffix("").parts[1:]) for file in files}
    for module, numbers in record.items():
        assert numbers["score"] == round(numbers["killed"] / (numbers["mutants"] - numbers["equivalent"]), 4) >= 0.95
        assert numbers["equivalent"] == sum(row[0] == module for row in rows)
    assert all(len(reason) > 10 for _, _, reason in rows)
