"""Decoders with caches, and encoders: right ones pass, wrong ones fail with the property about their mistake."""

import json

import pytest
from patched import RIGHT_DECODERS, WRONG_DECODERS, decoder
from small import ROOT

from transformer_lib.checks import check_transformer
from transformer_lib.checks.bugs import CASES
from transformer_lib.checks.properties import PROPERTIES


def check(factory, family="decoder", **options):
    return check_transformer(factory, family=family, pad_id=3, max_len=64, training=False, **options)


def family(name):
    return "encoder" if name.startswith("encoder") else "decoder"


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


def test_a_cache_has_to_run_in_every_dtype():
    """Not only the call without it."""
    floats = decoder("self.store(cache, number, k, v)", "self.store(cache, number, k.float(), v.float())")
    (finding,) = check(floats, only=["every dtype"]).findings
    assert finding.verdict == "fail"
    assert "float64 raises RuntimeError: expected scalar type" in finding.evidence


def test_a_map_of_keys_and_values_is_not_taken_for_one_of_values():
    """Those of two groups come from one map, which is as wide as the model."""
    one_map = decoder(
        "16, 4, 4, 2, 64, 0", "16, 4, 2, 2, 64, 0", '"k": nn.Linear(self.width, inner),', "",
        '"v": nn.Linear(self.width, inner)', '"kv": nn.Linear(self.width, 2 * inner)',
        'self.split(layer[name](x)) for name in "qkv"',
        'self.split(y) for y in (layer["q"](x), *layer["kv"](x).chunk(2, dim=-1))')  # fmt: skip
    (finding,) = check(one_map, only=["attention chooses among keys"]).findings
    assert finding.verdict == "not applicable"


@pytest.mark.parametrize(("own", "verdict"), [
    ("self.generate(tokens[:1], steps)[:, -steps:].expand(len(tokens), -1)", "fail"),
    ("(self.generate(tokens, steps)[:, -steps:], len([_ for (_,) in [tokens]]))[0]", "not applicable"),
])  # fmt: skip
def test_a_generator_without_a_mask_is_tried_with_several_prompts(own, verdict):
    """The first gives all of them the answer to the first; the second takes one prompt."""
    answers = decoder(
        "lambda model, tokens, steps, mask=None: model.generate(tokens, steps, mask)",
        f"lambda self, tokens, steps: torch.cat([tokens, {own}], dim=1)")  # fmt: skip
    (finding,) = check(answers, only=["generated in a batch as alone"]).findings
    assert finding.verdict == verdict, finding


def test_answers_stand_at_the_places_of_their_tokens():
    """With padding in front, these come out at the beginning."""
    early = decoder(
        "    return model(tokens, mask, positions)\n",
        "    order = (tokens == model.pad).long().argsort(dim=1, stable=True)\n"
        "    tokens = tokens.gather(1, order)\n    return model(tokens, (tokens != model.pad).long())\n",
        base="encoder with rotary positions")  # fmt: skip
    report = check(early, "encoder", only=["padding on the left"])
    assert "behind padding, logits come out at the beginning" in report.fault_lines[0]


@pytest.mark.parametrize(("bias", "asked"), [("back.abs()", True), ("back", False)])
def test_an_encoder_that_cannot_tell_left_from_right_is_asked_whether_that_is_meant(bias, asked):
    biased = decoder(
        "rotary(x, positions)\n", "x\n", "        return q @ k.transpose(-2, -1)",
        "        back = positions[:, None, :, None] - positions[:, None, None]\n"
        f"        return 0.3 * {bias} + q @ k.transpose(-2, -1)", base="encoder with rotary positions")  # fmt: skip
    (finding,) = check(biased, "encoder", only=["positions matter"]).findings
    assert finding.verdict == "pass"
    assert ("left from right" in finding.evidence) == asked


@pytest.mark.parametrize(("ahead", "asked"), [("tril(3)", True), ("abs()", False)])
def test_an_encoder_that_hears_one_side_farther_is_asked_whether_that_is_meant(ahead, asked):
    sided = decoder(
        "        q, k, v = ", f"        near = torch.ones(x.size(1), x.size(1), device=x.device).{ahead}.bool()\n"
        "        allowed = allowed & (near | (number > 0))\n        q, k, v = ",
        base="encoder with rotary positions")  # fmt: skip
    (finding,) = check(sided, "encoder", only=["source sensitivity"]).findings
    assert finding.evidence.endswith("10 tokens back and 3 ahead: is its window meant to be so?") == asked


def test_the_record_beside_other_suites_is_about_these_models():
    """Else run `make peers`."""
    found = json.loads((ROOT / "records/peers.json").read_text(encoding="utf-8"))["families"]
    sizes = [[family(name) for name in models].count("decoder") for models in (RIGHT_DECODERS, WRONG_DECODERS)]
    assert [found["decoder"]["right"], found["decoder"]["wrong"]] == sizes
    assert found["encoder-decoder"]["wrong"] == len(CASES)
