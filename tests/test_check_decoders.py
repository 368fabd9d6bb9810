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
    Rotary,
    Unplaced,
    adapted,
    alibi,
    encoder,
    stored,
)
from small import ROOT

from transformer_lib.checks import check_transformer
from transformer_lib.checks.bugs import CASES
from transformer_lib.checks.properties import PROPERTIES
from transformer_lib.checks.subject import Adapted


def check(factory, family="decoder", **options):
    return check_transformer(factory, family=family, pad_id=3, max_len=64, training=False, **options)


WITH_ADAPTER = {entry.name for entry in PROPERTIES if entry.needs}  # what tries caches, masks, generation and a loss


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", RIGHT)
def test_right_decoders_pass(name, whole):
    asked = WITH_ADAPTER | {"causality", "the past is seen", "positions matter", "attention chooses among keys"}
    report = check(RIGHT[name], only=() if whole or name in ("learned positions", "plain") else asked)
    assert report.holds, report
    verdicts = {finding.name: finding.verdict for finding in report.findings}
    assert verdicts["causality"] == verdicts["the past is seen"] == "pass"
    if name == "learned positions":
        assert {key for key, verdict in verdicts.items() if verdict != "pass"} == {"dropout in training"}


@pytest.mark.parametrize("name", [name for name, (_, about, _) in WRONG.items() if about])
def test_the_property_that_is_about_it_fails(name):
    """The finding says what differs, and how to see it again."""
    factory, about, words = WRONG[name]
    (finding,) = check(factory, only=[about]).findings
    assert finding.verdict == "fail"
    assert words in finding.evidence + finding.cause
    if words:
        line = finding.reproduction.replace("print(", "again = (")  # a line of Python that shows it
        exec(line, names := {"factory": factory})
        assert names["again"].findings == (finding,)


@pytest.mark.long
@pytest.mark.parametrize("name", WRONG)
def test_wrong_decoders_fail_in_the_whole_suite(name):
    """But for those that no property is about: a second layer fills the holes; a mean still hears the order."""
    report = check(WRONG[name][0])
    assert report.holds == (not WRONG[name][1]), report


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


def test_answers_stand_at_the_places_of_their_tokens():
    def call(model, tokens):
        tokens = tokens.gather(1, (tokens == 3).long().argsort(dim=1, stable=True))
        return model(tokens, (tokens != 3).long())

    factory = encoder()
    report = check(lambda *sizes: Adapted(factory(*sizes).model, call), "encoder", only=["padding on the left"])
    assert "behind padding, logits come out at the beginning" in report.fault_lines[0]


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

    def one_sided(model, layer, x, allowed, positions, cache, number):
        near = torch.ones(x.size(1), x.size(1), device=x.device).tril(3).bool()
        return Decoder.attend(model, layer, x, allowed & (near | (number > 0)), positions, cache, number)

    for attend, asked in ((one_sided, True), (Decoder.attend, False)):
        (finding,) = check(encoder(Rotary, attend=attend), "encoder", only=["source sensitivity"]).findings
        assert finding.evidence.endswith("10 tokens back and 3 ahead: is its window meant to be so?") == asked


def test_the_record_beside_other_suites_is_about_these_models():
    """Else run `make peers`."""
    found = json.loads((ROOT / "records/peers.json").read_text(encoding="utf-8"))["families"]
    assert (found["decoder"]["right"], found["decoder"]["wrong"]) == (len(RIGHT), len(WRONG))
    assert found["encoder-decoder"]["wrong"] == len(CASES)
