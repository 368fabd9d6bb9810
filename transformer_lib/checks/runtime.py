# Generated from chapters/E_suite.md: edit it there and `make export`, or here and `make sync`.

"""What is done with a model: calls in both modes, other sizes, dtypes, devices and checkpoints."""

import math
import random
from collections.abc import Iterable
from inspect import signature
from itertools import groupby, product
from operator import attrgetter
from pathlib import Path
from traceback import extract_tb
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from transformer_lib.checks.caches import logits_in_pieces
from transformer_lib.checks.gradients import gradient_reaches_everything
from transformer_lib.checks.padding import source_padding_on_the_right
from transformer_lib.checks.report import (
    KEEPS_A_GRAPH,
    NotApplicable,
    Outcome,
    Property,
    if_it_runs,
    raised_at,
    register_property,
)
from transformer_lib.checks.subject import (
    KEPT,
    LONGEST,
    InFloat32,
    LowerPrecision,
    ModelUnderTest,
    NoDropout,
    indices_beside_table,
    max_difference,
    plain_tensors,
    seeded,
)
from transformer_lib.checks.visibility import causality, present_seen, source_sensitivity, tokens_are_told_apart
from transformer_lib.files import one_line

USAGE: list[Property] = []


@register_property(USAGE, "the padding token is fixed in the code", "source-padding")
def sizes_and_padding_are_those_asked_for(model: ModelUnderTest) -> Outcome:
    """Built for padding at the other end and, if it can be, for more target tokens, the model is as right as before.

    A padding token that somebody asked for stays: it may be fixed in the code.

    Proves: neither number is fixed in the code. Cannot: judge a factory that builds for one choice only.
    """

    def built_for(source_size: int, target_size: int, pad_id: int) -> ModelUnderTest:
        sizes: Any = {"source_vocab_size": source_size, "target_vocab_size": target_size, "pad_id": pad_id}
        return ModelUnderTest(model.factory, **sizes, max_len=model.max_len, seed=model.seed, family=model.family)

    if model.has("whole") and not source_padding_on_the_right(model)[0]:
        padded_with_0 = built_for(model.sides[0].vocab_size, model.sides[-1].vocab_size, 0)
        if source_padding_on_the_right(padded_with_0)[0]:
            model.better_pad_id = 0
            return False, f"padding is hidden if it is 0, and not if it is {model.pad_id}"
    smaller, several = min(side.vocab_size for side in model.sides), len(model.sides) > 1
    pad_id = model.pad_id if model.pad_given else 0 if model.pad_id == smaller - 1 else smaller - 1
    refusal, right = "", ""
    for size, target_size in ((smaller, smaller + 2), (smaller + 2, smaller), (smaller, smaller)):
        model.start()  # where it fails with its own sizes, too, is another finding's place
        if right and (size == target_size or not several):
            break
        if pad_id == model.pad_id and [size, target_size][-len(model.sides) :] == [x.vocab_size for x in model.sides]:
            continue  # it is built so
        other = built_for(size, target_size, pad_id)
        other.lengths = sorted({7, LONGEST, model.lengths[-1]})  # those between have been tried
        told = f"{size} and {target_size} tokens" if several else f"{target_size} tokens"
        module = None
        try:
            module = other.build()
            other.logits(module, *other.with_the_last())
        except Exception as error:
            refusal, kept = one_line(error), module.parameters() if module is not None else ()
            if {side.vocab_size for side in other.sides} <= {n for p in kept for n in p.shape}:
                return False, f"built for {told} and padding {pad_id}, it raises {refusal}", ""
            continue  # it has one vocabulary
        whole, causal = (source_sensitivity, source_padding_on_the_right), (present_seen, causality)
        always = (tokens_are_told_apart, gradient_reaches_everything)
        for check in (*whole * model.has("whole"), *causal * model.has("causal"), *always):
            holds, evidence, *_ = check(other)
            if not holds and check(model)[0] and deterministic_in_evaluation(model)[0]:  # else it may be chance
                return False, f"for {told} and padding {pad_id}, {evidence}", ""
            model.start()
        right = right or f"for {told} and padding {pad_id}, the model is as right as before"
    if right:
        return True, right
    raise NotApplicable(f"the factory builds for no other padding and sizes: {refusal}")


@register_property(USAGE, "a random number is drawn in evaluation mode", "eval")
def deterministic_in_evaluation(model: ModelUnderTest) -> Outcome:
    """Two calls in evaluation mode, with another one between them, give the same logits, bit for bit.

    And a new model gives them for its second sentences as another one does for its first.

    Proves: no randomness after `eval()`, and no memory. Cannot: show that somebody calls `eval()`.
    """
    inputs, other = model.inputs(), model.inputs()
    state = torch.get_rng_state(), random.getstate()
    before, _ = model(*inputs), model(*other)
    drawn = not torch.equal(torch.get_rng_state(), state[0]) or random.getstate() != state[1]
    moved = max(max_difference(model(*inputs), before) for _ in range(20 if drawn else 1))
    if not moved and (late := model.remembers(inputs, other)):
        alike = max_difference(*(model.logits(model.build(), *inputs) for _ in range(2))) == 0
        told = f"a new model's first and second call differ, for the same sentences, by {late:.2g}"
        return False, told, KEPT if alike else "two models of the same seed differ: something is counted outside them"
    words = f"two calls in evaluation mode differ by {model.describe(moved) if moved else 0}"
    return (moved == 0, words) if drawn else (moved == 0, words, "")


@register_property(USAGE, "something is done in place, or a seed is set, in forward", refusable=True)
def calls_leave_no_trace(model: ModelUnderTest) -> Outcome:
    """A call changes neither the tokens that it is given nor, except by drawing, torch's random numbers, in both modes.

    To write the same number into a token counts: for another padding token it would be another number. Nor does a call
    for longer sentences, and for fewer, change what a new module then says of short ones.

    Proves: so for these calls. Cannot: see other things that a model may change outside itself.
    """
    inputs = model.inputs()
    if kept := None if model.only_read else model.kept_graph:
        return False, f"{KEEPS_A_GRAPH} ({kept}): a second backward raises", "detach them, or call under no_grad()"
    for tokens in inputs:
        tokens[1:, -2:] = model.pad_id
    for module, mode in ((model.module, "evaluation"), (model.training_module, "training")):
        after = []
        for seed in (1, 2):
            given = [tokens.clone() for tokens in inputs]
            with seeded(seed):
                model.logits(module, *given)
                after.append(torch.get_rng_state())
            if not all(map(torch.equal, given, inputs)) or any(tokens._version for tokens in given):
                return False, f"in {mode} mode a call writes into its tokens"
        if torch.equal(*after):
            return False, f"in {mode} mode a call sets the seed of torch's random numbers"
    longer = model.inputs(1, model.lengths[-1], model.lengths[-1])
    with if_it_runs():  # not each takes sentences of these lengths
        if moved := model.remembers(model.inputs(3, 4, 4), longer):
            told = f"a call keeps something: answers before and after longer sentences differ by {moved:.2g}"
            return False, told, KEPT
    labels, drawn = torch.full_like(inputs[-1], -100).index_fill(1, torch.tensor([0, 1]), 0), list[bool]()
    parts = ("loss", labels), ("generate", 3), ("beams", 3)
    for (part, last), adapter in product(parts, (model.module, model.training_module)):
        known, state = str(handed := [*inputs, last]), torch.get_rng_state()
        usual, training = {module: module.training for module in adapter.modules()}, adapter.training
        with if_it_runs():  # not each has these parts
            model.part(part, adapter)(*handed)
        drawn.append(not torch.equal(torch.get_rng_state(), state))
        if str(handed) != known:
            return False, f"`{part}` writes into what it is given, such as labels of -100", ""
        if any(module.training != usual.get(module, module.training) for module in adapter.modules()):
            adapter.train(training)
            modes = ("training", "evaluation mode, without dropout") if training else ("evaluation", "training mode")
            told = f"after `{part}` a model in {modes[0]} mode is in {modes[1]}"
            asked = training and model.only_read
            return (True, f"{told}: is it to be trained?") if asked else (False, told, "")
    words = "tokens are as they were, random numbers go on, and answers stay the same"
    if kept := model.kept_graph:
        return True, f"{words}; {KEEPS_A_GRAPH} ({kept}): a second backward raises: is it to be trained?"
    if drawn[2:4] == [False, True] and not model.only_read:
        words += "; in training mode `generate` draws numbers, as dropout does: is `eval()` called before?"
    return True, words


@register_property(USAGE, "something asks for training mode that is no dropout: a mask, a norm, another branch")
def training_without_dropout_is_evaluation(model: ModelUnderTest) -> Outcome:
    """With dropout at zero, a call in training mode gives the logits of a call in evaluation mode.

    Proves: nothing but dropout depends on the mode. Cannot: judge a model that draws other random numbers in training,
    or that drops by hand, at a rate without "drop" in its name.
    """
    inputs, answers = model.inputs(), []
    for seed in range(6):
        with seeded(seed):
            before = torch.get_rng_state()
            with NoDropout():
                answers.append(model.logits(model.without_dropout, *inputs))
            drawn = not torch.equal(torch.get_rng_state(), before)
        if drawn or not torch.equal(answers[-1], answers[0]):
            raise NotApplicable('in training mode it draws numbers, not by torch\'s dropout or a rate called "drop…"')
    with NoDropout():  # what drops in evaluation is not deterministic, which is another property
        evaluated = model(*inputs)
    moved = model.apart(model.in_training(*inputs), evaluated)
    return model.at_most_rounding(moved, "without dropout, logits in training and in evaluation mode differ by")


@register_property(USAGE, "dropout is not called, is held in evaluation mode, or what it gives is not used", "dropout")
def dropout_in_training(model: ModelUnderTest) -> Outcome:
    """Two calls in training mode differ, if the model has dropout; what is kept is scaled up, and is not too little.

    Proves: some dropout is active in training, and modules that drop keep the mean. Cannot: say whether it stands in
    the right places, nor judge the scale of dropout that is no module.
    """
    rates = [module.p for module in model.module.modules() if isinstance(module, nn.Dropout)]
    module, inputs = model.training_module, model.inputs()
    with seeded(model.seed):
        before = model.logits(module, *inputs)
        moved = max_difference(model.logits(module, *inputs), before)
        training, evaluation = (_factors(model, module.train(mode), inputs) for mode in (True, False))
    module.train()
    for part, (share, factor) in training.items():
        always, usual = evaluation.get(part, (0, 0))
        if share < always == 1 and factor <= usual * (1 + 1e-5):
            cause = "dropout without 1 / (1 - p): answers in training and in evaluation differ in scale"
            return False, f"of a module's input {share:.0%} are kept in training, and not scaled up", cause
        if share < 0.2 < always:
            cause = "the share to keep is given where the share to drop is expected"
            return False, f"of a module's input only {share:.0%} are kept in training", cause
    if moved == 0 and not any(rates):
        raise NotApplicable("the model has no dropout, so it cannot show any")
    if not math.isfinite(moved):
        return False, "in training mode logits are NaN or infinite", ""
    return moved > 0, f"two calls in training mode differ by {model.describe(moved)}"


def _factors(
    model: ModelUnderTest, module: nn.Module, inputs: tuple[Tensor, ...]
) -> dict[nn.Module, tuple[float, float]]:
    """Modules that multiply some numbers by a factor and the others by zero: the share of the former, the factor."""
    found: dict[nn.Module, tuple[float, float]] = {}

    def watch(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        x = inputs[0] if inputs and isinstance(inputs[0], Tensor) else torch.zeros(0)
        whole = isinstance(output, Tensor) and not (output.is_nested or x.is_nested)
        if whole and output.shape == x.shape and x.is_floating_point():
            x, y = x[x != 0], output[x != 0]
            kept = y != 0
            factors = (y / x)[kept]
            by_size = not kept.all() and (not kept.any() or x[~kept].max() <= x[kept].min())  # as a ReLU does
            if len(factors) and not by_size and factors.max() - factors.min() <= 1e-5 * factors.max():
                found.setdefault(module, (kept.double().mean().item(), factors.max().item()))

    with register_module_forward_hook(watch):
        model.logits(module, *inputs)
    return found


@register_property(USAGE, "", needs="loss")
def its_loss_is_the_cross_entropy_of_its_logits(model: ModelUnderTest) -> Outcome:
    """The loss that a model computes itself is the mean cross-entropy of its logits, where a label is asked for.

    Proves: so for labels of the same position, or, if the model is causal alone, of the next one; the evidence says
    which. Cannot: know whether whoever calls it shifts labels, nor judge what is added to the loss in training.
    """
    loss, inputs = model.part("loss"), model.inputs()
    labels = model.tokens(*inputs[-1].shape, side=-1)
    labels[0, 2:4] = labels[1, -1] = -100
    labels[2, 2:4] = 0 if model.pad_id else 1  # which many leave out, as if it were always padding
    with model.all_float64():
        logits, found = model(*inputs), loss(*inputs, labels.clone())

    def off(
        shift: int, reduction: str = "mean", parts: int = 1, logits: Tensor = logits, labels: Tensor = labels
    ) -> float:
        """How far the loss is off a part of the cross-entropy of labels so many places further on."""
        x, y = logits[:, : logits.size(1) - shift].flatten(0, 1), labels[:, shift:].flatten()
        return abs(found - F.cross_entropy(x, y, reduction=reduction) / parts).item()

    shifts = range(1 if model.has("whole") else 2)
    apart, shift = min((off(n), n) for n in shifts)
    asked = "do you shift them before you call it?" if len(shifts) > 1 > shift else ""
    read = f"with labels read as those of the {('same', 'next')[shift]} token"
    holds, evidence = model.at_most_rounding(apart, f"{read}, the loss differs from the cross-entropy by")
    if not holds and (more := model.only_its_loss_hears()):
        raise NotApplicable(f"it hears {min(more)}, too, which the logits do not, and what that adds is not known")
    if holds:
        inner: Any = model.module.model  # what it calls "labels" is often shifted inside
        loud = "labels" in signature(inner.forward).parameters
        return holds, evidence + (f"; {asked}" if loud else f" ({asked})") * bool(asked)
    everywhere = min(off(shift, "sum", labels[:, shift:].numel()) for shift in shifts)
    each = ([F.cross_entropy(x[: len(x) - n], y[n:]) for x, y in zip(logits, labels)] for n in shifts)
    others = {
        "a softmax stands before the cross-entropy": min(off(shift, logits=logits.softmax(-1)) for shift in shifts),
        "labels of -100 count, as token 0": min(off(shift, labels=labels.clamp(min=0)) for shift in shifts),
        "labels of token 0 do not count": min(off(n, labels=labels.masked_fill(labels == 0, -100)) for n in shifts),
        "labels are shifted once too often": off(len(shifts)),
        "logits are held against the label of the token before": off(0, logits=logits[:, 1:], labels=labels[:, :-1]),
        "labels are flattened in another order than logits": min(
            off(0, labels=labels.T.reshape(labels.shape)), off(0, logits=logits.transpose(0, 1).reshape(logits.shape))
        ),
        "the loss is a sum, and no mean": min(off(shift, "sum") for shift in shifts),
        "the mean is taken over all labels, those to be ignored, too": everywhere,
        "the mean is taken of each sentence, and then of these": min(abs(found - sum(x) / len(x)).item() for x in each),
    }
    cause = next((why for why, moved in others.items() if moved <= model.tolerance), "")
    return holds, evidence, cause


class InRange(TorchFunctionMode):
    """Inside the block a constant beyond the range of the numbers that it meets is their lowest or largest."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function with other constants."""
        kwargs = kwargs or {}
        dtypes = [x.dtype for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.is_floating_point()]
        most = min((torch.finfo(dtype).max for dtype in dtypes), default=math.inf)

        def clamp(x: float) -> float:
            return max(-most, min(x, most)) if math.isfinite(x) else x

        return function(*tree_map_only(float, clamp, args), **tree_map_only(float, clamp, kwargs))


@register_property(USAGE, "", "half")
def every_dtype(model: ModelUnderTest) -> Outcome:
    """float64, bfloat16 and float16 run and agree with float32, to 2e-5, 0.3 and 0.05 of the logits' spread.

    So does bfloat16 by `torch.autocast`, to 0.3, if it runs. A cache only has to run. If float16 fails only because a
    constant such as -1e9 is beyond its range, that is a note.

    Proves: no dtype is assumed in `forward`, and float32 is not narrowed. Cannot: promise that float16 can train.
    """
    batches, single, found, note = [model.inputs(1) for _ in range(4)], model.build().float(), [], ""

    def answers(dtype: torch.dtype | None) -> tuple[list[Tensor], dict[str, Exception | None]]:
        module = model.build().to(dtype or torch.float32)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is None):
            logits = [model.logits(module, *inputs).float() for inputs in batches]
            return logits, model.uses(module) if dtype else {}

    for tokens, *_ in batches:
        tokens[0, -2:] = model.pad_id
    with LowerPrecision() as lower:
        references = [model.logits(single, *inputs) for inputs in batches]
    usual = {part for part, error in model.uses(single).items() if error is None}
    if half := ", ".join(str(dtype) for dtype in lower.found if dtype.itemsize < 4):
        return False, f"in float32, some of it is computed in {half}", "a cast to half precision"
    for dtype, allowed in ((torch.float64, 2e-5), (torch.bfloat16, 0.3), (torch.float16, 0.05), (None, 0.3)):
        name = str(dtype or "autocast").removeprefix("torch.")
        try:
            logits, used = answers(dtype)
        except Exception as raised:
            words = f"{name} does not run: {one_line(raised)}{raised_at(raised)}"
            if dtype is None:
                found.append(words)  # who casts by hand need not run there
                continue
            try:
                if dtype is not torch.float16:
                    raise
                with InRange():
                    logits, used = answers(dtype)
            except Exception:
                model.where = "" if "dtype" in words or "type" in words.rpartition(", at")[0] else name
                model.shown = model.in_adapter(raised)
                return False, words
            note = words
        for part in ("extend", "generate") if dtype in (torch.float64, torch.bfloat16) else ("extend",):
            errors = [error for key, error in used.items() if part in key and key in usual and error is not None]
            for error in (error for error in errors if not isinstance(error, InFloat32)):
                why = f"{name} raises {one_line(error)}{raised_at(error)}"
                words = "its cache stays in float32, so the model runs in no other dtype"
                made = "a cache, or a mask beside it, is made without dtype=" if "type" in str(error) else ""
                cause = model.in_adapter(error) or made
                return False, f"{words}: {why}" if "type" in str(error) else f"with `{part}`, {why}", cause
        moves = [max_difference(*both) for both in zip(logits, references)]
        moved = min(moves) if math.isfinite(max(moves)) else math.inf  # in some, rounding chooses another expert
        if moved > allowed:
            model.where, turns = name, [key for key, x in single.named_buffers() if x.is_complex()]
            model.shown = f"`.to(dtype)` drops the imaginary part of {turns[0]}, a complex buffer" if turns else ""
            return False, f"{name} differs from float32 by {model.describe(moved)}"
        found.append(f"{name} by less than {10.0 ** math.ceil(math.log10(max(moved, 1e-12))):g}")
    if note:
        return None, note, "torch.finfo(scores.dtype).min in place of a constant such as -1e9; all else fits float16"
    return True, "differs from float32: " + ", ".join(found)


@register_property(USAGE, "something that the output depends on is not in the state dict", "state")
def state_dict_is_complete(model: ModelUnderTest) -> Outcome:
    """A model of another seed gives the same logits once it has loaded the state dict, with its cache, too.

    Proves: a checkpoint is enough. Cannot: see what differs neither between seeds nor between calls.
    """
    first, second = model.build(model.seed), model.build(model.seed + 1)
    inputs = model.inputs()
    model.uses(second)
    model.logits(second, *inputs)
    before, after = ({key: getattr(x, "shape", ()) for key, x in m.state_dict().items()} for m in (first, second))
    if made := {key for key, shape in after.items() if shape != before.get(key)}:
        done = f"change the size of {min(made)} in" if min(made) in before else f"add {min(made)} to"
        words = f"calls {done} the state dict: saved then, it does not load into a new model"
        return False, words, "a buffer that a call makes is not `persistent=False`"
    model.uses(first)  # as often as the other one: tables that grew in use may round differently
    model.logits(first, *inputs)
    second.load_state_dict(first.state_dict())
    moved = max_difference(model.logits(second, *inputs), model.logits(first, *inputs))
    words = f"after loading, logits differ by {model.describe(moved) if moved else 0}"
    if moved:
        kept = second.state_dict()
        changed = [name for name, x in first.state_dict().items() if not torch.equal(x, kept[name])]
        return (False, words, f"loading changes what it loads, such as {changed[0]}") if changed else (False, words)
    with if_it_runs():  # not each has a cache, or one that gives a logit for each token
        apart = max_difference(*(logits_in_pieces(model, [3, 1], module, *inputs) for module in (second, first)))
        if apart > 1e-5:
            return False, f"after loading, logits with a cache differ by {apart:.2g}", KEPT
    return True, words


def _left_behind(model: ModelUnderTest, names: Iterable[str], inputs: tuple[Tensor, ...]) -> list[str]:
    """Those of the plain tensors which, alone on the device `meta`, are neither made anew nor copied from there.

    Those of one module are tried together.
    """
    left = []
    for owner, group in groupby(names, lambda name: name.rpartition(".")[0]):
        module, members = model.build(), [*group]
        model.logits(module, *inputs)
        kept = vars(module.get_submodule(owner))
        for key in (name.rpartition(".")[2] for name in members):
            kept[key] = tree_map_only(Tensor, lambda tensor: tensor.to("meta"), kept[key])
        try:
            stays = model.logits(module, *inputs).is_meta
        except Exception as error:
            stays = "copy out of meta" not in str(error)
        left += members * stays
    return left


@register_property(USAGE, "a tensor is a plain attribute, or is made in forward without device=", "buffer")
def buffers_move_along(model: ModelUnderTest) -> Outcome:
    """What the output depends on is a parameter or a buffer, and the model runs on another device.

    A tensor that a call makes anew on the other device, or copies there, is no fault, such as a mask kept for each.

    Proves: what modules keep moves, and, on the device `meta`, that sums and embeddings in `forward` meet nothing made
    on the CPU. Cannot: see the latter in matrix products, which do not compare devices there, nor at all if the model
    looks at values, which `meta` has not.
    """
    inputs = model.inputs()
    plain, module = plain_tensors(model.module, lambda: model(*inputs)), model.build()
    model.logits(module, *inputs)
    moved, failure = "the model runs on another device", ""
    try:
        with register_module_forward_pre_hook(indices_beside_table):
            model.logits(module.to("meta"), *(tokens.to("meta") for tokens in inputs))
        kept = {name: tree_leaves(attrgetter(name)(module)) for name in plain}  # some was made anew
        plain = [name for name in plain if not any(isinstance(x, Tensor) and x.is_meta for x in kept[name])]
    except Exception as error:
        places = extract_tb(error.__traceback__)
        lines = [at.line for at in places if not {"torch", "checks"} & {*Path(at.filename).parts} and at.line]
        failure = one_line(error) + "".join(f", at `{line}`" for line in lines[-1:])  # the model's own line
        model.shown = model.in_adapter(error)
        moved = "no other device was tried, as the model looks at values"
    if plain := _left_behind(model, plain, inputs):
        model.shown = ""
        return False, f"plain tensors: {', '.join(plain[:3])}"
    if "not on the expected device" in failure:
        return False, f"moved to another device, it does not run: {failure}"
    return True, f"every tensor that matters is a parameter or a buffer; {moved}"


@register_property(USAGE, "", "too-long")
def too_long_raises(model: ModelUnderTest) -> Outcome:
    """A sequence longer than `max_len` is refused.

    Proves: it is, with some error. Cannot: judge whether the message helps.
    """
    if model.max_len is None:
        raise NotApplicable("no max_len was given (--max-len)")
    length = model.max_len + 1
    for side, sizes in (("source", (length, 2)), ("target", (2, length))):
        if not model.has("causal" if side == "target" else "whole"):
            continue
        try:
            with torch.no_grad():
                model.run(model.module, *model.inputs(1, *sizes))  # a shape that is wrong is no refusal
        except Exception:
            continue
        return False, f"{length} {side} tokens are accepted, though max_len is {model.max_len}"
    return True, f"{length} tokens are refused"
