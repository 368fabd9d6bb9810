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


def test_every_case_has_a_place_in_the_chapter():
    labels = {}
    for page in ("13_gallery", "13a_cases"):
        text = (ROOT / "chapters" / f"{page}.md").read_text(encoding="utf-8")
        labels |= dict.fromkeys(re.findall(r"^\(room-([\w-]+)\)=$", text, re.MULTILINE), page)
    labels = {slug: page for slug, page in labels.items() if not slug.startswith("cache-")}
    assert labels.keys() == {*CASES, "accumulation", "averaged", "unshifted", "train-mode"}
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


@pytest.mark.long
@pytest.mark.parametrize("slug", CASES)
def test_the_suite_reports_exactly_what_is_recorded(slug):
    """Of all properties; the chapters try those that are to fail, and the reference model."""
    torch.manual_seed(0)  # one case draws its dropout from the global numbers
    findings = check_transformer(CASES[slug].factory, max_len=ReferenceModel.max_len, training=False).findings
    assert {f.name for f in findings if f.verdict in ("fail", "note")} == CASES[slug].failing


@pytest.mark.long
@pytest.mark.parametrize(("slugs", "holds"), [
    ("plain slices scale doubled overwritten one-layer twins softmax dropout-place", [True, True]),
    ("causal future unmasked", [False, False]), ("blind dead", [True, False]),
])  # fmt: skip
def test_what_training_shows(slugs, holds):
    """That the future is not to be predicted, and that a sentence can be copied."""
    for slug in slugs.split():
        factory = CASES[slug].factory if slug in CASES else ReferenceModel
        wide = type("Wide", (factory,), {"width": 32, "inner": 64})
        model = ModelUnderTest(wide, source_vocab_size=29, pad_id=0)
        assert [entry.function(model)[0] for entry in TRAINED_PROPERTIES] == holds, slug


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
