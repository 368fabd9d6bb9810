# Generated from chapters/08_checks.md: edit the chapter, not this file, then run `make export`.

"""Properties of a model's parameters, gradients, dtypes and modes."""

import math
from collections import defaultdict

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from transformer_lib.checks.report import NotApplicable, Outcome, Property, holds_for
from transformer_lib.checks.subject import Subject, change, heard_modules, indices_beside_table, plain_tensors
from transformer_lib.serialization import one_line

PROPERTIES: list[Property] = []  # in the order in which they are written


@holds_for(PROPERTIES, "dropout, or other randomness, runs in evaluation mode", "eval")
def deterministic_in_evaluation(subject: Subject) -> Outcome:
    """Two calls in evaluation mode give the same logits, bit for bit.

    Proves: no randomness after `eval()`. Cannot: show that somebody calls `eval()`.
    """
    source, target = subject.pair()
    moved = change(subject(source, target), subject(source, target))
    return moved == 0, f"two calls in evaluation mode differ by {subject.shown(moved) if moved else 0}"


@holds_for(PROPERTIES, "dropout modules exist but are never called, or are held in evaluation mode", "dropout")
def dropout_in_training(subject: Subject) -> Outcome:
    """Two calls in training mode differ, if the model has dropout.

    Proves: some dropout is active in training. Cannot: say whether it stands in the right places.
    """
    rates = [module.p for module in subject.model.modules() if isinstance(module, nn.Dropout)]
    source, target = subject.pair()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(subject.seed)
        subject.model.train()
        try:
            moved = change(subject(source, target), subject(source, target))
        finally:
            subject.model.eval()
    if moved == 0 and not any(rates):
        raise NotApplicable("the model has no dropout, so it cannot show any")
    return 0 < moved < math.inf, f"two calls in training mode differ by {subject.shown(moved)}"


def _gradients(subject: Subject, source: Tensor, target: Tensor, rows: int) -> dict[str, Tensor | None]:
    """The gradient of a loss over the first rows, by the name of the parameter."""
    model = subject.model
    model.zero_grad(set_to_none=True)
    logits = model(source, target)[:rows]
    labels = torch.arange(logits[..., 0].numel()) % subject.target_vocab_size
    F.cross_entropy(logits.flatten(0, 1), labels).backward()
    found = {name: p.grad for name, p in model.named_parameters() if p.requires_grad}
    model.zero_grad(set_to_none=True)
    return found


@holds_for(PROPERTIES, "a fully masked row becomes NaN and poisons the gradient of every sentence", "empty-row")
def empty_sentences(subject: Subject) -> Outcome:
    """A sentence of nothing but padding in the batch leaves the others' logits and all gradients as they were.

    Proves: such a row adds nothing but rounding. Gradients that are themselves rounding are not compared. Cannot: say
    what the row itself should be.
    """
    source, target = subject.pair()
    more_source = torch.cat([source, subject.padding(1, source.size(1))])
    more_target = torch.cat([target, subject.padding(1, target.size(1))])
    moved = change(subject(more_source, more_target)[:3], subject(source, target))
    alone, together = (_gradients(subject, s, t, 3) for s, t in ((source, target), (more_source, more_target)))
    spoilt = sum(g is not None and not g.isfinite().all().item() for g in together.values())
    if spoilt:
        return False, f"{spoilt} of {len(together)} parameters get a gradient that is not finite"
    for name, gradient in alone.items():
        other = together[name]
        if gradient is not None and other is not None and gradient.abs().max() > subject.tolerance:
            moved = max(moved, change(other, gradient))
    shown = subject.shown(moved)
    return moved <= subject.tolerance, f"an empty sentence moves the others' logits and gradients by {shown}"


@holds_for(PROPERTIES, "a softmax stands at the end of the model; cross-entropy applies another one", "softmax")
def logits_not_probabilities(subject: Subject) -> Outcome:
    """The answers are not probabilities.

    Proves: they are not non-negative with sum 1. Cannot: see probabilities that were scaled. Logarithms of
    probabilities pass, rightly: a softmax gives them back.
    """
    logits = subject(*subject.pair())
    total = logits.sum(dim=-1)
    probabilities = bool(logits.min() >= 0) and (total - 1).abs().max().item() < 1e-3
    range_ = f"answers lie between {logits.min():.2g} and {logits.max():.2g}"
    return not probabilities, range_ + (", and each row sums to 1" if probabilities else "")


@holds_for(PROPERTIES, "one module object stands in several places, such as one layer repeated N times", "one-layer")
def parameters_shared_on_purpose(subject: Subject) -> Outcome:
    """No parameter is used under two names, except a table tied to another table of a vocabulary's size.

    Proves: nothing else is shared as an object. Cannot: see a module that `forward` calls twice under one name, nor
    copies that merely start out equal.
    """
    names = defaultdict(list)
    for name, parameter in subject.model.named_parameters(remove_duplicate=False):
        names[parameter].append(name)
    sizes = {subject.source_vocab_size, subject.target_vocab_size}
    shared = [(group, parameter) for parameter, group in names.items() if len(group) > 1]
    wrong = [group for group, parameter in shared if not (parameter.dim() and parameter.size(0) in sizes)]
    if wrong:
        return False, f"{len(wrong)} parameters stand in several places, such as {' = '.join(wrong[0][:2])}"
    tied = len(shared)
    return (
        True,
        f"{tied} {'table is' if tied == 1 else 'tables are'} tied" if tied else "no parameter stands in two places",
    )


@holds_for(PROPERTIES, "a part of the model is built but not used, or cut off from the loss", "dead")
def gradient_reaches_everything(subject: Subject) -> Outcome:
    """Every parameter gets a gradient.

    Proves: nothing is cut off. Vectors whose gradient is 0 but for rounding are excused: the bias of the keys shifts
    all scores of a row, which softmax ignores. Cannot: say that a part does its work.
    """
    parameters = dict(subject.model.named_parameters())
    gradients = _gradients(subject, *subject.pair(), 3)
    sizes = {name: 0.0 if g is None else g.abs().max().item() for name, g in gradients.items()}
    typical = sorted(sizes.values())[len(sizes) // 2]
    silent = [name for name, size in sizes.items() if not size > 1e-10 * typical]
    dead = [name for name in silent if parameters[name].dim() > 1 or not sizes[name] > 0]
    if dead:
        return False, f"{len(dead)} of {len(sizes)} parameters get no gradient, such as {dead[0]}"
    excused = f"; for {len(silent)} of them, as for a key's bias, it is 0 but for rounding" if silent else ""
    return True, f"all {len(sizes)} parameters get a gradient{excused}"


@holds_for(
    PROPERTIES, "position i does not see its own input token: the causal mask excludes the diagonal", "off-by-one"
)
def first_token_sees_itself(subject: Subject) -> Outcome:
    """With a target of one token, the decoder's self-attention takes part.

    Proves: the first position attends to itself. A changed token cannot show it: the residual connection carries it
    past its own mask. So a module fails if a gradient arrives at its output, or at a part's, but no longer at its
    matrices, two or more; none arrives at queries and keys, rightly. Cannot: judge an empty row that is an average.
    """
    source, target = subject.pair()
    several = _gradients(subject, source, target, 3)
    with heard_modules() as heard:
        one = _gradients(subject, source, target[:, :1], 3)
    before, now = ({name for name, g in got.items() if g is not None and g.any()} for got in (several, one))
    found = []
    for name, module in subject.model.named_modules():
        matrices = {f"{name}.{key}" for key, parameter in module.named_parameters() if parameter.dim() > 1}
        if len(matrices) > 1 and matrices <= before - now and not heard.isdisjoint(module.modules()):
            found.append(name)
    which = f"{len(found)} modules do nothing, such as {found[0]}" if found else "every module still works"
    return not found, f"with a target of one token, {which}"


@holds_for(PROPERTIES, "a constant such as -1e9, or a table that is no buffer, does not fit the dtype", "half")
def every_dtype(subject: Subject) -> Outcome:
    """float64, bfloat16 and float16 run and agree with float32, to 2e-5, 0.3 and 0.05 of the logits' spread.

    Proves: no dtype is assumed in `forward`. Cannot: promise that training in float16 works.
    """
    source, target = subject.pair()
    source[0, -2:] = subject.pad_id
    reference = subject.logits(subject.build().float(), source, target)
    found = []
    for dtype, allowed in ((torch.float64, 2e-5), (torch.bfloat16, 0.3), (torch.float16, 0.05)):
        name = str(dtype).removeprefix("torch.")
        try:
            logits = subject.logits(subject.build().to(dtype), source, target)
        except Exception as error:
            return False, f"{name} does not run: {one_line(error)}"
        moved = change(logits.float(), reference)
        if moved > allowed:
            return False, f"{name} differs from float32 by {subject.shown(moved)}"
        found.append(f"{name} by less than {10.0 ** math.ceil(math.log10(max(moved, 1e-12))):g}")
    return True, "differs from float32: " + ", ".join(found)


@holds_for(PROPERTIES, "something that the output depends on is not in the state dict", "state")
def state_dict_is_complete(subject: Subject) -> Outcome:
    """A model of another seed gives the same logits once it has loaded the state dict.

    Proves: a checkpoint is enough. Cannot: see what differs neither between seeds nor between calls.
    """
    first, second = subject.build(subject.seed), subject.build(subject.seed + 1)
    source, target = subject.pair()
    second.load_state_dict(first.state_dict())
    moved = change(subject.logits(second, source, target), subject.logits(first, source, target))
    return moved == 0, f"after loading, logits differ by {subject.shown(moved) if moved else 0}"


@holds_for(PROPERTIES, "a tensor is a plain attribute, not a buffer, or is made in forward without device=", "buffer")
def buffers_move_along(subject: Subject) -> Outcome:
    """No module keeps a tensor that is neither a parameter nor a buffer, and the model runs on another device.

    Proves: what modules keep moves, and, on the device `meta`, that sums and embeddings in `forward` meet nothing made
    on the CPU. Cannot: see the latter in matrix products, which do not compare devices there, nor at all if the model
    looks at values, which `meta` has not.
    """
    plain = plain_tensors(subject.model)
    if plain:
        return False, f"plain tensors: {', '.join(plain[:3])}"
    moved = "the model runs on another device"
    try:
        with register_module_forward_pre_hook(indices_beside_table):
            subject.logits(subject.build().to("meta"), *(tokens.to("meta") for tokens in subject.pair()))
    except Exception as error:
        if "not on the expected device" in str(error):
            return False, f"moved to another device, it does not run: {one_line(error)}"
        moved = "no other device was tried, as the model looks at values"
    return True, f"every tensor is a parameter or a buffer; {moved}"


@holds_for(PROPERTIES, "a sequence beyond max_len is cut or wrapped without a word", "too-long")
def too_long_raises(subject: Subject) -> Outcome:
    """A sequence longer than `max_len` is refused.

    Proves: it is, with some error. Cannot: judge whether the message helps.
    """
    if subject.max_len is None:
        raise NotApplicable("no max_len was given")
    for source, target in ((subject.max_len + 1, 2), (2, subject.max_len + 1)):
        try:
            with torch.no_grad():
                subject.model(*subject.pair(1, source, target))  # a shape that is wrong is no refusal
        except Exception:
            continue
        where = "source" if source > target else "target"
        return False, f"{subject.max_len + 1} {where} tokens are accepted, though max_len is {subject.max_len}"
    return True, f"{subject.max_len + 1} tokens are refused"
