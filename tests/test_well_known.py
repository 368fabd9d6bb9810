"""Other people's Transformers: every property holds, but for those that are named here with the reason.

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

EMPTY = "softmax of nothing but -inf: NaN in the row, and through 0 · NaN in what reads its value and in all gradients"
LENGTHS = "it is given lengths, and they cannot say it"
UNMASKED = "the mask is not handed on, so padding is read"
DENOMINATOR = "masked values are zero, but their keys still count in the denominator"

FAILS = {
    "torch.nn.Transformer": {"target padding on the left": "a row of padding becomes NaN, and the next layer reads it"},
    "Switch Transformer": {},
    "BERT to BERT": {"gradient reaches everything": "the encoder's pooler is built, and a decoder has no use for it"},
    "ProphetNet": {
        "target padding on the right": "relative positions are reshaped from (position, stream, head) as from "
        "(stream, head, position), so which are added depends on the length",
        "every dtype": "0 times the lowest number of float64, which is -inf in a mask of float32, is NaN",
    },
    "XTransformer": {"every dtype": "a part of it puts out float32 where the weights are bfloat16"},
    "PerformerEncDec": {
        "causality": "the largest score of the whole sequence, which stabilises the exponentials, cancels but for an "
        "eps of 1e-4: the future moves it",
        "target padding on the right": "the same",
        "source padding on the right": DENOMINATOR,
        "source padding on the left": DENOMINATOR,
        "target padding on the left": DENOMINATOR,
        "gradient reaches everything": "the encoder has an output to its vocabulary that is not called",
    },
    "torchscale": {"source padding on the right": UNMASKED, "source padding on the left": UNMASKED},
    "torchscale, mask by mask": {"empty sentences": EMPTY, "target padding on the left": EMPTY},
    "Sockeye": {"every dtype": "it has lowest numbers for float32, float16 and bfloat16 only"},
    "JoeyNMT": {"empty sentences": EMPTY, "target padding on the left": EMPTY},
    "labml.ai": {"empty sentences": EMPTY, "target padding on the left": EMPTY},
}
NOT_APPLICABLE = {
    "XTransformer": {"dropout in training": "it has none unless asked for"},
    "PerformerEncDec": {"dropout in training": "it has none unless asked for"},
    "torchscale": {"target padding on the left": "its forward has no mask for the target's padding"},
    "Sockeye": {"source padding on the left": LENGTHS, "target padding on the left": LENGTHS},
    "OpenNMT-py": {"source padding on the left": LENGTHS},
}


def told(findings):
    """The names of the properties that fail, and of those that do not apply.

    Left out are a table's length, which nobody gave, and weights of an attention whose values are made inside it.
    """
    names = {"fail": set(), "not applicable": set(), "pass": set(), "note": set()}
    for name, verdict in findings:
        names[verdict].add(name)
    return names["fail"], names["not applicable"] - {
        "too long raises", "heads attend separately", "attention chooses among keys"
    }  # fmt: skip


def known(name):
    return set(FAILS.get(name, {})), set(NOT_APPLICABLE.get(name, {}))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_a_well_known_model_has_every_property_but_those_named(name):
    package = MODELS[name][0]
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
    assert told((f.name, f.verdict) for f in report.findings) == known(name)


@pytest.mark.parametrize("name", MODELS)
def test_the_record_that_the_book_shows_says_the_same(name):
    entry = json.loads(RECORD.read_text(encoding="utf-8"))[name]
    assert told((f["name"], f["verdict"]) for f in entry["findings"]) == known(name)
    assert entry["version"] == PINNED.get(entry["package"], entry["torch"])
