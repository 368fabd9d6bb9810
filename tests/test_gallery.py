"""Every room of the gallery: the bug is there, exactly the recorded properties fail, and the mended model has all."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from transformer_lib.checks import (
    PROPERTIES,
    check_attention,
    check_encoder_layer,
    check_masks,
    check_positional_encoding,
    check_transformer,
    learning,
)
from transformer_lib.checks.adapters import Adapted
from transformer_lib.checks.components import ATTENTION, MULTI_HEAD
from transformer_lib.checks.gallery import ROOMS
from transformer_lib.checks.habits import (
    accumulate,
    accumulate_wrong,
    generate,
    generate_wrong,
    loss_over_padding,
    loss_unshifted,
    token_loss,
)
from transformer_lib.checks.layers import BOTH, DECODER
from transformer_lib.checks.plain import Plain
from transformer_lib.checks.subject import Subject
from transformer_lib.checks.tables import MASKS, POSITIONS

CHAPTER = Path(__file__).resolve().parent.parent / "chapters" / "08c_gallery.md"
SIZES = 29, 29, 0
UNSEEN = {"slices", "scale", "doubled", "overwritten", "twins", "dropout-place"}


def examine(factory, seed=0):
    """What the suite says, without the trainings."""
    torch.manual_seed(seed)  # one room draws its dropout from the global numbers
    return check_transformer(factory, max_len=Plain.max_len, training=False, seed=seed)


# --- models ------------------------------------------------------------------------------------------------------

BUGS = {  # a property that fails in this room; the least number of its evidence, or what the evidence says
    "causal": ("causality", 1.0),
    "future": ("causality", 0.4),
    "unmasked": ("causality", 0.7),
    "off-by-one": ("first token sees itself", "2 modules do nothing, such as decoder.0.own"),
    "blind": ("source padding on the right", 1.0),
    "source-padding": ("source padding on the left", 0.5),
    "wrong-axis": ("source padding on the left", 1.0),
    "reshape": ("causality", 1.0),
    "batch": ("batch independence", 1.0),
    "rank": ("batch independence", "must match the size of tensor b (3)"),
    "repeat": ("batch independence", 1.0),
    "stale": ("gradient reaches everything", "of 88 parameters get no gradient, such as decoder.0.own"),
    "dead": ("gradient reaches everything", "of 88 parameters get no gradient, such as source_table"),
    "positions": ("positions matter", ""),
    "one-layer": ("parameters shared on purpose", "42 parameters stand in several places"),
    "softmax": ("logits not probabilities", "sums to 1"),
    "eval": ("deterministic in evaluation", 1.0),
    "dropout": ("dropout in training", ""),
    "half": ("every dtype", "float16 does not run: RuntimeError: value cannot be converted to type"),
    "buffer": ("buffers move along", "plain tensors: positions"),
    "state": ("state dict is complete", 1.0),
    "target-padding": ("target padding on the left", 1.0),
    "empty-row": ("empty sentences", "78 of 88 parameters get a gradient that is not finite"),
    "too-long": ("too long raises", "33 source tokens are accepted, though max_len is 32"),
}


def test_every_room_has_a_test_and_a_place_in_the_chapter():
    assert set(BUGS) | UNSEEN == set(ROOMS)
    assert {slug for slug, room in ROOMS.items() if not room.failing} == UNSEEN
    text = CHAPTER.read_text(encoding="utf-8")
    labels = set(re.findall(r"^\(room-([\w-]+)\)=$", text, re.MULTILINE))
    assert labels == {*ROOMS, "accumulation", "averaged", "unshifted", "train-mode"}
    assert text.count(")=\n### ") == 25


def test_the_rooms_that_reports_name_exist():
    assert {entry.room for entry in [*PROPERTIES, *learning.PROPERTIES]} <= set(ROOMS)
    parts = [*ATTENTION, *MULTI_HEAD, *POSITIONS, *MASKS, *BOTH, *DECODER]
    assert {entry.room for entry in parts} <= {"", *ROOMS} - {"wrong-axis"}  # that one is about a mask on the queries


def test_the_names_of_properties_are_those_of_the_suite():
    assert set.union(*(set(room.failing) for room in ROOMS.values())) == {entry.name for entry in PROPERTIES}


@pytest.mark.parametrize("seed", range(3))
def test_the_mended_model_has_every_property(seed):
    report = examine(Plain, seed)
    assert report.holds
    assert all(finding.verdict == "pass" for finding in report.findings)


@pytest.mark.parametrize("slug", ROOMS)
def test_the_suite_reports_exactly_what_is_recorded(slug):
    report = examine(ROOMS[slug].factory)
    assert set(report.failed) == ROOMS[slug].failing
    if slug in BUGS:
        name, bug = BUGS[slug]
        evidence = next(finding.evidence for finding in report.findings if finding.name == name)
        if isinstance(bug, str):
            assert bug in evidence
        else:
            assert float(re.findall(r"\d+(?:\.\d+)?(?:e[+-]\d+)?", evidence)[-1]) > bug


@pytest.mark.parametrize("slug", ROOMS)
def test_no_room_fails_a_check_of_shapes(slug):
    torch.manual_seed(0)
    factory = ROOMS[slug].factory
    source, target = torch.randint(1, 29, (factory.heads, 7)), torch.randint(1, 29, (factory.heads, 6))
    assert factory(*SIZES)(source, target).shape == (factory.heads, 6, 29)


@torch.no_grad()
def test_what_does_not_move_in_three_rooms():
    torch.manual_seed(0)
    source, other, target = torch.randint(1, 29, (3, 4, 7))
    for slug, change, bound in (("blind", other, 0), ("positions", source.flip(1), 1e-4)):
        for factory, still in ((ROOMS[slug].factory, True), (Plain, False)):
            model = factory(*SIZES).eval()
            moved = (model(change, target) - model(source, target)).abs().max()
            assert moved <= bound if still else moved > 0.1
    for factory, still in ((ROOMS["dropout"].factory, True), (Plain, False)):
        model = factory(*SIZES).train()
        assert torch.equal(model(source, target), model(source, target)) == still


# --- what no property sees ---------------------------------------------------------------------------------------


def every(mask):
    return torch.ones(1, 1, 1, 1, dtype=torch.bool) if mask is None else mask


def failures(check, slug):
    """The findings that fail in a room; none may fail on Plain."""
    torch.manual_seed(0)
    assert check(Plain).holds
    return {finding.name: finding.evidence for finding in check(ROOMS[slug].factory).findings if finding.cause}


def test_scale_is_seen_by_the_check_of_attention():
    def check(factory):
        model = factory(*SIZES)
        return check_attention(lambda q, k, v, mask: model.weights(model.scores(q, k), every(mask)) @ v)

    found = failures(check, "scale")
    assert set(found) == {"scores are scaled", "agrees with the formula"}
    assert "0.250 at d_k = 4; 1/√d_k is 0.500" in found["scores are scaled"]


def test_dropout_after_the_norm_is_seen_by_the_check_of_a_layer():
    def check(factory):
        layer = Adapted(factory(*SIZES), lambda m, x, mask: m.encoder_layer(m.encoder[0], x, every(mask)))
        return check_encoder_layer(layer, 16)

    found = failures(check, "dropout-place")
    assert set(found) == {"dropout before the sum"}
    assert float(found["dropout before the sum"].split()[-1]) > 1


def test_an_embedding_twice_is_seen_by_the_check_of_positions():
    def check(factory):
        return check_positional_encoding(
            Adapted(factory(*SIZES), lambda model, x: model.embed(x, lambda tokens: tokens / 4)), 16
        )

    assert set(failures(check, "doubled")) == {"only positions are added"}


def test_an_early_mask_is_seen_by_the_check_of_masks():
    def check(factory):
        return check_masks(
            lambda tokens, pad: factory(29, 29, pad).source_mask(tokens),
            lambda length: factory(*SIZES).target_mask(torch.ones(1, length, dtype=torch.long)),
        )

    assert set(failures(check, "off-by-one")) == {"the future is hidden"}


@pytest.mark.parametrize(("size", "low", "high"), [(29, 0.7, 0.95), (2900, 0.08, 0.13)])
def test_an_overwritten_start_depends_on_the_vocabulary(size, low, high):
    torch.manual_seed(0)

    def rms(factory):
        return factory(size, 29, 0).source_table.weight.square().mean().sqrt().item() * Plain.width**0.5

    assert 0.9 < rms(Plain) < 1.1
    assert low < rms(ROOMS["overwritten"].factory) < high


def test_slices_are_few_weights_and_deaf():
    def heard(factory):
        torch.manual_seed(0)
        model = factory(*SIZES)
        x = torch.randn(1, 5, 16, requires_grad=True)
        model.split(model.encoder[0]["own"]["q"], x)[:, 0].sum().backward()
        weights = sum(model.encoder[0]["own"][name].weight.numel() for name in "qkv")
        return weights, int((x.grad[0, 0] != 0).sum())

    assert heard(Plain) == (3 * 16 * 16, 16)
    assert heard(ROOMS["slices"].factory) == (3 * 4 * 4, 4)


def test_copies_start_alike_and_one_layer_stays_so():
    def alike(factory):
        torch.manual_seed(0)
        first, second = (dict(layer.named_parameters()) for layer in factory(*SIZES).encoder)
        return [name for name in first if "norm" not in name and torch.equal(first[name], second[name])]

    assert alike(Plain) == []
    assert len(alike(ROOMS["twins"].factory)) == 6
    assert all(name.endswith("bias") for name in alike(ROOMS["twins"].factory))
    assert len(alike(ROOMS["one-layer"].factory)) == 12


def test_three_heads_and_three_sentences_hide_a_mask_of_three_dimensions():
    torch.manual_seed(0)
    model, source = ROOMS["rank"].factory(*SIZES).eval(), torch.randint(1, 29, (3, 7))
    source[0, -3:], target = 0, torch.randint(1, 29, (3, 6))
    assert (model(source, target)[0] - model(source[:1], target[:1])[0]).abs().max() > 0.1
    with pytest.raises(RuntimeError, match="must match the size"):
        model(source[:2], target[:2])


# --- around the model --------------------------------------------------------------------------------------------


def sentences(rows, length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    source, target = torch.randint(2, 29, (2, rows, length), generator=generator)
    return source, torch.cat([torch.ones(rows, 1, dtype=torch.long), target], dim=1)


def plain():
    torch.manual_seed(0)
    return Plain(*SIZES).eval().double()


def moved(function, parts, number):
    """How far descent by these parts moves the weights, one vector a step."""
    model = plain()
    before, steps = [torch.nn.utils.parameters_to_vector(model.parameters()).detach()], []

    class Recorder(torch.optim.SGD):
        def step(self):
            super().step()
            before.append(torch.nn.utils.parameters_to_vector(model.parameters()).detach())
            steps.append(before[-1] - before[-2])

    function(model, Recorder(model.parameters(), lr=1e-3), parts, number)
    return steps


def test_a_step_on_four_parts_is_the_step_on_the_whole():
    source, target = sentences(16, 5)
    target[:4, 3:] = 0  # the first part has fewer real tokens: a mean of means would be wrong
    parts = [(source[i : i + 4], target[i : i + 4]) for i in range(0, 16, 4)]
    (whole,) = moved(accumulate, [(source, target)], 1)
    (right,) = moved(accumulate, parts, 4)
    torch.testing.assert_close(right, whole, rtol=0, atol=1e-14)
    wrong = moved(accumulate_wrong, parts * 2, 4)
    assert len(moved(accumulate, parts * 2, 4)) == len(wrong) == 2
    assert 3.5 < wrong[1].norm() / whole.norm() < 4.5
    last = [(source, target)] * 3
    spoilt = moved(accumulate_wrong, parts + parts[:1] + last, 4)
    torch.testing.assert_close(wrong, spoilt, rtol=0, atol=1e-14)


def test_padding_does_not_move_the_loss():
    source, target = sentences(4, 5)
    longer, model = nn.functional.pad(target, (0, 20)), plain()
    torch.testing.assert_close(token_loss(model, source, longer), token_loss(model, source, target), rtol=0, atol=1e-12)
    assert loss_over_padding(model, source, target) == token_loss(model, source, target)
    assert abs(loss_over_padding(model, source, longer) - token_loss(model, source, target)) > 0.1


def test_a_target_that_is_not_shifted_falls_below_the_floor():
    floor = torch.tensor(27.0).log()

    def learnt(loss):
        model = plain().float().train()
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for step in range(150):
            optimizer.zero_grad()
            loss(model, *sentences(32, 8, seed=step)).backward()
            optimizer.step()
        return loss(model.eval(), *sentences(256, 8, seed=-1))

    assert learnt(token_loss) > floor - 0.05
    assert learnt(loss_unshifted) < floor / 2


@pytest.mark.parametrize("training", [True, False])
def test_generation_writes_the_same_twice(training):
    source, model = sentences(64, 6)[0], plain().train(training)
    assert torch.equal(generate(model, source, 8), generate(model, source, 8))
    assert model.training == training
    differ = (generate_wrong(model, source, 8) != generate_wrong(model, source, 8)).double().mean()
    assert differ > 0.2 if training else differ == 0


# --- the rooms that a training shows -----------------------------------------------------------------------------

FLOOR, COPY = (entry.function for entry in learning.PROPERTIES)
CHANCE = 3.33  # ln 28
NEVER = None
TRAINED = {  # loss on random targets after 200 steps; steps until a sentence is copied
    "plain": (3.35, 600),
    "causal": (0.74, NEVER),
    "future": (0.88, NEVER),
    "unmasked": (2.79, NEVER),
    "blind": (3.35, NEVER),
    "dead": (3.36, NEVER),
    "slices": (3.35, 800),
    "scale": (3.35, 400),
    "doubled": (3.35, 800),
    "overwritten": (3.35, 600),
    "one-layer": (3.36, 600),
    "twins": (3.35, 600),
    "softmax": (3.37, NEVER),
    "dropout-place": (3.36, 1000),
}


@pytest.mark.long
@pytest.mark.parametrize("slug", TRAINED)
def test_what_training_shows_is_as_recorded(slug):
    factory = ROOMS[slug].factory if slug in ROOMS else Plain
    wide = type("Wide", (factory,), {"width": 32, "inner": 64})
    recorded_loss, recorded_steps = TRAINED[slug]
    holds, evidence = FLOOR(Subject(wide))
    assert holds == (recorded_loss > CHANCE - 0.03)
    assert abs(float(re.findall(r"loss (\S+),", evidence)[0]) - recorded_loss) < 0.2
    holds, evidence = COPY(Subject(wide))
    assert holds == (recorded_steps is not NEVER)
    if holds:
        assert abs(int(re.findall(r"after (\d+) steps", evidence)[0]) - recorded_steps) <= 400
