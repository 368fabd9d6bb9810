"""Decoders with caches, and encoders: right ones pass, wrong ones fail with the property about their mistake."""

import json

import pytest
from patched import RIGHT_DECODERS, WRONG_DECODERS, family
from small import ROOT

from transformer_lib.checks import check_transformer
from transformer_lib.checks.bugs import CASES
from transformer_lib.checks.properties import PROPERTIES


def check(factory, family="decoder", **options):
    return check_transformer(factory, family=family, pad_id=3, max_len=64, training=False, **options)


SWEPT = {"learned positions", "plain", "encoder with rotary positions"}  # the others are asked what they could break
ASKED = {
    "decoder": {entry.name for entry in PROPERTIES if entry.needs == "cache"}
    | {"causality", "the past is seen", "attention chooses among keys", "generated in a batch as alone"},
    "encoder": {"source sensitivity", "positions matter", "a mask hides what it should"},
}  # fmt: skip


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", RIGHT_DECODERS)
def test_right_decoders_and_encoders_pass(name, whole):
    asked = () if whole or name in SWEPT else ASKED[family(name)]
    report = check(RIGHT_DECODERS[name][0], family(name), only=asked)
    assert report.holds, report
    verdicts = {finding.name: finding.verdict for finding in report.findings}
    if family(name) == "decoder":
        assert verdicts["causality"] == verdicts["the past is seen"] == "pass"
    if name == "learned positions":
        assert {key for key, verdict in verdicts.items() if verdict != "pass"} == {"dropout in training"}


AGAIN = {about: name for name, (_, about, words) in WRONG_DECODERS.items() if words}  # one of each property


@pytest.mark.parametrize("name", [name for name, (_, about, _) in WRONG_DECODERS.items() if about])
def test_the_property_that_is_about_it_fails(name):
    """The finding says what differs, and how to see it again."""
    factory, about, words = WRONG_DECODERS[name]
    (finding,) = check(factory, family(name), only=[about]).findings
    assert finding.verdict == "fail"
    assert words in finding.evidence + finding.cause
    if name == AGAIN.get(about):
        line = finding.reproduction.replace("print(", "again = (")  # a line of Python that shows it
        exec(line, names := {"factory": factory})
        assert names["again"].findings == (finding,)


@pytest.mark.long
@pytest.mark.parametrize("name", WRONG_DECODERS)
def test_wrong_decoders_and_encoders_fail_in_the_whole_suite(name):
    """But for those that no property is about: a second layer fills the holes; a mean still hears the order."""
    report = check(WRONG_DECODERS[name][0], family(name))
    assert report.holds == (not WRONG_DECODERS[name][1]), report


def test_the_record_beside_other_suites_is_about_these_models():
    """Else run `make peers`."""
    found = json.loads((ROOT / "records/peers.json").read_text(encoding="utf-8"))["families"]
    sizes = [[family(name) for name in models].count("decoder") for models in (RIGHT_DECODERS, WRONG_DECODERS)]
    assert [found["decoder"]["right"], found["decoder"]["wrong"]] == sizes
    assert found["encoder-decoder"]["wrong"] == len(CASES)
