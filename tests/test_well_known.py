"""Other people's Transformers have the verdicts of the record that the book shows.

The packages are no dependencies; without one its test is skipped. tests/well_known.txt says how to install them, in a
folder that PYTHONPATH then names: PYTHONPATH=.:peers python -m pytest -m long tests/test_well_known.py
"""

import importlib.metadata
import json
import logging
import re
from pathlib import Path

import pytest
from well_known import MODELS, RECORD, examined

PINNED = dict(re.findall(r"^([\w-]+)==(\S+)$", Path(__file__).with_name("well_known.txt").read_text("utf-8"), re.M))


def told(findings):
    """The names of the properties that fail, and of those that do not apply.

    Left out are a table's length, which nobody gave, and weights of an attention whose values are made inside it.
    """
    inside = {"too long raises", "heads attend separately", "attention chooses among keys"}
    return [{name for name, verdict in findings if verdict == kind} - inside for kind in ("fail", "not applicable")]


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_well_known_model_has_the_recorded_verdicts(name):
    package, entry = MODELS[name][0], json.loads(RECORD.read_text(encoding="utf-8"))[name]
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed; tests/well_known.txt says how")
    if version != PINNED.get(package, version):
        pytest.skip(f"the verdicts are those of {package} {PINNED[package]}; installed is {version}")
    logging.disable(logging.WARNING)
    try:
        report = examined(name)
    finally:
        logging.disable(logging.NOTSET)
    found, recorded = (
        [(f.name, f.verdict) for f in report.findings],
        [(f["name"], f["verdict"]) for f in entry["findings"]],
    )
    assert told(found) == told(recorded)


@pytest.mark.parametrize("name", MODELS)
def test_the_record_is_of_the_pinned_version(name):
    entry = json.loads(RECORD.read_text(encoding="utf-8"))[name]
    assert entry["version"] == PINNED.get(entry["package"], entry["torch"])
