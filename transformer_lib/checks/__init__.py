# Generated from chapters/E_suite.md: edit it there and `make export`, or here and `make sync`.

"""A test suite for anybody's Transformer: which properties hold, with evidence, likely cause and the gallery's case."""

import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from transformer_lib.checks.components import (
    check_attention,
    check_decoder_layer,
    check_encoder_layer,
    check_masks,
    check_multi_head_attention,
    check_positional_encoding,
)
from transformer_lib.checks.properties import FOLLOWS, PROPERTIES, TRAINED_PROPERTIES
from transformer_lib.checks.report import Finding, NotApplicable, Report, examine, is_refusal, raised_at, shown_once
from transformer_lib.checks.subject import LONGEST, Adapted, Attention, Factory, ModelUnderTest, seeded
from transformer_lib.checks.visibility import UNSQUEEZED, runs_with_some_only
from transformer_lib.files import one_line

__all__ = [
    "Adapted",
    "Finding",
    "NotApplicable",
    "Report",
    "assert_transformer",
    "check_attention",
    "check_decoder_layer",
    "check_encoder_layer",
    "check_masks",
    "check_multi_head_attention",
    "check_positional_encoding",
    "check_transformer",
]

NO_GRADIENTS = "gradients on a CPU"  # the only finding if there are none
LEFT = (
    "an earlier call left something behind, as in a global, or a default that is made once: def forward(cache=Cache())"
)
FORBIDDEN = "a mask that forbids everything, such as a padding mask in the opposite convention"


def check_transformer(
    factory: Factory, *, source_vocab_size: int | None = None, target_vocab_size: int | None = None,
    pad_id: int | None = None, max_len: int | None = None, training: bool = True, seed: int = 0,
    family: str = "encoder-decoder", only: Collection[str] = (),
    on_start: Callable[[str], object] = lambda name: None,
    on_finding: Callable[[Finding], object] = lambda finding: None,
) -> Report:  # fmt: skip
    """Hold a Transformer to the properties of its kind.

    Args:
        factory: called as factory(source_vocab_size, target_vocab_size, pad_id). It returns a module that is called as
            model(source_tokens, target_tokens), both (batch, length), and gives logits (batch, target length,
            target_vocab_size). Build it small: a few dozen channels show most bugs. It is examined on the CPU,
            and moved there if need be.
        source_vocab_size: number of source tokens, at least 8; by default 31, or 29 if the model needs equal numbers.
        target_vocab_size: number of target tokens, at least 8; by default 29.
        pad_id: the padding token; by default 3, or 0 if the model runs with no other. If given, no other is tried.
        max_len: the longest sequence that the model accepts, if it has one; at least 12.
        training: also run the two properties that train the model, for 5000 steps at most.
        seed: of weights, inputs and trainings.
        family: "encoder-decoder"; or "decoder" or "encoder", whose factory is called as factory(target_vocab_size,
            pad_id), and whose model as model(tokens).
        only: the names of the properties to try, if not all.
        on_start: called with the name of each property before it is tried.
        on_finding: called with each finding as soon as it is there.

    Returns:
        One finding for each property that was tried.

    Raises:
        TypeError: the factory gives no module, or the model no tensor.
        ValueError: the logits have another shape, a number is out of its range, two calls of the factory give the
            same parameters, a parameter is never set, or `only` names no property.
        Exception: whatever the factory raises, or the model itself on short sentences without padding.
    """
    if isinstance(factory, torch.nn.Module):
        name = type(factory).__name__
        raise TypeError(
            f"expected a function that builds a model; got a model: write def build(*sizes): return {name}(…)"
        )

    def alone(name: str, verdict: str, evidence: str, cause: str = "", place: str = "") -> Report:
        """A report of one finding, where no property would say more."""
        more = f"; {', '.join(sorted(others))} cannot be tried" if (others := {*only} - {name}) else ""
        on_finding(finding := Finding(name, verdict, evidence + more, cause, place=place))
        return Report((finding,))

    asked = source_vocab_size, target_vocab_size, pad_id
    threads = torch.get_num_threads()
    with warnings.catch_warnings(), shown_once():
        warnings.simplefilter("ignore")  # what the model's library has to say is not the question
        torch.set_num_threads(1)  # in models this small further threads only wait for each other
        try:
            options = {"pad_given": pad_id is not None, "max_len": max_len, "seed": seed, "family": family}
            model, logits = _first_call(factory, asked, **options)
            if isinstance(logits, tuple):
                return alone(*logits)
            first, second = model.build(), model.build()
            if first is second or {*map(id, first.parameters())} & {*map(id, second.parameters())}:
                raise ValueError("the factory must build anew at each call; got modules that share their parameters")
            if empty := model.uninitialised():
                raise ValueError(f"the factory must set all parameters; got memory as it was in {', '.join(empty[:3])}")
            properties = [*PROPERTIES, *TRAINED_PROPERTIES] if training else PROPERTIES
            names = {entry: {entry.name, model.words(entry.name)} for entry in properties}
            if unknown := {*only} - set().union(*names.values()):
                raise ValueError(f"expected names of properties in `only`; got {', '.join(sorted(unknown))}")
            properties = [entry for entry in properties if not only or not names[entry].isdisjoint(only)]
            unfit = [model.words(entry.name) for entry in properties if only and not model.has(entry.needs)]
            why = "it is about another kind of model, or of adapter"
            told = tuple(Finding(name, "not applicable", why, about_others=True) for name in unfit)
            properties = [entry for entry in properties if model.has(entry.needs)]
            own, called = {*model.module.modules()}, list[torch.nn.Module]()
            with suppress(Exception), register_module_forward_pre_hook(lambda part, _: called.append(part)):
                # a longer sentence may be refused
                logits = torch.cat([logits.flatten(), model(*model.inputs(1, LONGEST, LONGEST)).flatten()])
            if strange := [type(part).__name__ for part in called if part not in own and [*part.parameters()]]:
                evidence = f"it calls modules that are no part of it, such as {strange[0]}: parameters() lacks them"
                cause = "modules in a plain list, where nn.ModuleList would register them, or made in forward"
                return alone("state dict is complete", "fail", evidence, cause)
            if not logits.isfinite().all():
                evidence = "short sentences without any padding get logits that are NaN or infinite"
                with Attention():  # in which a row that sees nothing is 0
                    masked = model(*model.inputs()).isfinite().all()
                return alone("finite answers", "fail", evidence, FORBIDDEN if masked else "")
            if missing := _missing_on_a_cpu(model, first):
                evidence = f"most properties need gradients, and check runs on a CPU, which has none here: {missing}"
                return alone(NO_GRADIENTS, "not applicable", evidence)
            _ = model.lengths  # drawn before any property begins
            return Report(told + examine(model, properties, on_finding, FOLLOWS, on_start).findings)
        finally:
            torch.set_num_threads(threads)


def _first_call(
    factory: Factory, asked: tuple[int | None, ...], **options: Any
) -> tuple[ModelUnderTest, torch.Tensor | tuple[str, ...]]:
    """The model and its logits for short sentences, with the most telling sizes and padding that it runs with.

    In place of logits may stand a finding: it runs with some numbers of sentences only, a mask forbids everything, or
    something is handed on to other models. One that cannot run at all raises.
    """
    for usual in ((31, 29, 3), (29, 29, 3), (29, 29, 0)):  # unequal numbers, and padding that is not 0, show more
        source, target, pad = (own if own is not None else number for own, number in zip(asked, usual))
        model = ModelUnderTest(factory, source_vocab_size=source, target_vocab_size=target, pad_id=pad, **options)
        with suppress(Exception):
            first = model.build()
            with seeded(model.seed):
                logits = model.logits(first, *(inputs := model.with_the_last()))
            again = (model.moved_from(logits, module, inputs, model.logits) for module in (first, model.build()))
            if logits.isfinite().all() and min(again) > 1e-4:
                told = "the same sentences again, even given to a new model, get other answers: no more can be tried"
                return model, ("calls leave no trace", "fail", told, LEFT)
            return model, logits
    module = None
    try:
        module = model.build()
        return model, model.logits(module, *model.inputs())
    except Exception as error:
        if remedy := _called_wrongly(error, model.family, built=module is not None):
            error.add_note(remedy)
        if remedy or module is None:
            raise
        if told := runs_with_some_only(model, module):
            return model, ("batch independence", "fail", told, UNSQUEEZED)
        with suppress(Exception), Attention() as attention:  # it takes torch's kernels for padding out of use
            model.logits(module, *model.inputs())
            if not all(seen.any() for seen in attention.seen):
                evidence = f"short sentences without any padding raise {one_line(error)}{raised_at(error)}"
                return model, ("finite answers", "fail", evidence, FORBIDDEN, raised_at(error).removeprefix(", at "))
        for rows, words in ((3, "source and target are equally long"), (7, "there are as many sentences as tokens")):
            with suppress(Exception):
                model.logits(module, *model.inputs(rows, 7, 7))
                error.add_note(f"it runs if {words}: are its tokens (length, batch), and batch_first=True is missing?")
                break
        raise


def _called_wrongly(error: Exception, family: str, built: bool) -> str:
    """What to say if the suite itself calls a factory, or the model it built, with too many or too few arguments."""
    if not isinstance(error, TypeError) or raised_at(error) or "positional argument" not in str(error):
        return ""
    if family == "encoder-decoder" and " takes " in str(error):
        return "for a model that reads one sequence try --family decoder, or encoder"
    if family != "encoder-decoder" and " missing " in str(error):
        return "for one that reads a source and a target try --family encoder-decoder"
    return "" if built else "a factory is a function of the vocabulary's size, or of both sizes, and of the padding"


def _missing_on_a_cpu(model: ModelUnderTest, module: torch.nn.Module) -> str:
    """What torch says that a CPU cannot do, if it stops the gradient of a model that runs; "" if it does not."""
    state = model.generator.get_state()  # the properties draw what they drew before
    try:
        with seeded(model.seed):
            model.gradients(*model.inputs(), module=module)
    except NotApplicable:
        return ""
    except Exception as error:
        said = "CPU" in str(error) and (isinstance(error, NotImplementedError) or "support" in str(error))
        return one_line(error) + raised_at(error) if said and not is_refusal(error) else ""
    finally:
        model.generator.set_state(state)
    return ""


def assert_transformer(factory: Factory, **options: Any) -> None:
    """Raise an AssertionError that holds the report, unless every property holds.

    Args:
        factory: as for `check_transformer`.
        options: the other arguments of `check_transformer`.

    Raises:
        AssertionError: a property does not hold, or none could be tried on a CPU.
    """
    report = check_transformer(factory, **options)
    if [finding.name for finding in report.findings] == [NO_GRADIENTS]:
        raise AssertionError(f"no property could be tried\n{report}")
    if not report.holds:
        raise AssertionError(f"{len(report.failed)} properties do not hold\n{report}")
