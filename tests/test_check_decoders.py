"""Decoders with caches, and encoders: right ones pass, wrong ones fail with the property about their mistake."""

import json

import pytest
import torch
from decoders import (
    RIGHT,
    RIGHT_ENCODERS,
    WRONG,
    WRONG_ENCODERS,
    Decoder,
    OneMap,
    Unplaced,
    adapted,
    alibi,
    encoder,
    stored,
)
from small import ROOT

from transformer_lib.checks import check_transformer
from transformer_lib.checks.bugs import CASES

UNSEEN = {"holes", "positions end at 16"}  # a second layer fills the holes; who counts on a mean still hears the order


def check(factory, family="decoder", **options):
    return check_transformer(factory, family=family, pad_id=3, max_len=64, training=False, **options)


@pytest.mark.parametrize("name", RIGHT)
def test_right_decoders_pass(name):
    report = check(RIGHT[name])
    assert report.holds, report
    verdicts = {finding.name: finding.verdict for finding in report.findings}
    assert verdicts["causality"] == verdicts["the past is seen"] == "pass"
    if name == "learned positions":
        assert {key for key, verdict in verdicts.items() if verdict != "pass"} == {"dropout in training"}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_decoders_fail(name):
    """Also without the wrong decoder's kin: a property about another kind of mistake is not enough."""
    report = check(WRONG[name])
    assert report.holds == (name in UNSEEN), report


@pytest.mark.parametrize(("name", "property_name", "words"), [
    ("positions begin anew", "cache one by one", "from token 2 of 40 on; the first module that differs is model.place"),
    ("the last of a prompt is not stored", "cache after a prefill", "from token 6 of 40 on"),
    ("chunks: no mask", "cache in chunks", "in pieces of 4, 3, 1, 4"),
    ("one cache for all", "two caches in turns", ""),
    ("counts in the module", "two caches in turns", ""),
    ("reorders keys only", "cache reordered", "rows 2, 0, 0"),
    ("crops the end", "cache cropped", ""),
    ("the mask covers new tokens only", "cache with padding in front", ""),
    ("scores by length", "a prefix is enough", "the first module that differs is model.layers.0.o"),
    ("forgets the first after twelve", "the past is seen", "position 10 does not see position 0"),
    ("the mask is not used", "a mask hides what it should", "under the mask"),
    ("positions are not used", "padding in front", ""),
    ("generates with a mask that does not grow", "generated tokens are the most probable", "of 24"),
    ("generates, and counts padding", "generated in a batch as alone", "[0, "),
    ("beams go on from their neighbours", "beams are as probable as they say", "the log-probability of the answer"),
    ("beams are scored by their last token", "beams are as probable as they say", "the log-probability of the answer"),
    ("labels are shifted twice", "its loss is the cross entropy of its logits", "differs from the cross-entropy"),
])  # fmt: skip
def test_the_property_that_is_about_it_fails(name, property_name, words):
    """The finding says what differs, and how to see it again."""
    (finding,) = check(WRONG[name], only=[property_name]).findings
    assert finding.verdict == "fail"
    assert words in finding.evidence
    line = finding.reproduction.replace("print(", "again = (")  # a line of Python that shows it
    names = {"factory": WRONG[name]}
    exec(line, names)
    assert names["again"].findings == (finding,)


def test_a_cache_has_to_run_in_every_dtype():
    """Not only the call without it."""
    (finding,) = check(stored(lambda k, v: (k.float(), v.float())), only=["every dtype"]).findings
    assert finding.verdict == "fail"
    assert "float64 raises RuntimeError: expected scalar type" in finding.evidence


@pytest.mark.parametrize("name", RIGHT_ENCODERS)
def test_right_encoders_pass(name):
    report = check(RIGHT_ENCODERS[name], "encoder")
    assert report.holds, report


@pytest.mark.parametrize("name", WRONG_ENCODERS)
def test_wrong_encoders_fail(name):
    factory, property_name = WRONG_ENCODERS[name]
    (finding,) = check(factory, "encoder", only=[property_name]).findings
    assert finding.verdict == "fail"


def test_a_map_of_keys_and_values_is_not_taken_for_one_of_values():
    (finding,) = check(adapted(OneMap), only=["attention chooses among keys"]).findings
    assert finding.verdict == "not applicable"


def test_a_generator_without_a_mask_is_tried_with_several_prompts():
    def first_for_all(model, tokens, steps):
        return torch.cat([tokens, model.generate(tokens[:1], steps)[:, -steps:].expand(len(tokens), -1)], dim=1)

    def one_prompt(model, tokens, steps):
        (_,) = tokens
        return model.generate(tokens, steps)

    for generate, verdict in ((first_for_all, "fail"), (one_prompt, "not applicable")):
        (finding,) = check(adapted(Decoder, generate=generate), only=["generated in a batch as alone"]).findings
        assert finding.verdict == verdict, finding


def test_an_encoder_that_cannot_tell_left_from_right_is_asked_whether_that_is_meant():
    def symmetric(model, q, k, positions):
        return (
            Decoder.scores(model, q, k, positions)
            - 0.3 * (positions[:, None, :, None] - positions[:, None, None]).abs()
        )

    for scores, asked in ((symmetric, True), (alibi, False)):
        (finding,) = check(encoder(Unplaced, scores=scores), "encoder", only=["positions matter"]).findings
        assert finding.verdict == "pass"
        assert ("left from right" in finding.evidence) == asked


def test_the_record_beside_other_suites_is_about_these_models():
    """Else run `make peers`."""
    found = json.loads((ROOT / "records/peers.json").read_text(encoding="utf-8"))["families"]
    assert (found["decoder"]["right"], found["decoder"]["wrong"]) == (len(RIGHT), len(WRONG))
    assert found["encoder-decoder"]["wrong"] == len(CASES)
