# Generated from chapters/E_suite.md: edit it there and `make export`, or here and `make sync`.

"""Where the gradient goes."""

from collections import defaultdict

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from transformer_lib.checks.report import NotApplicable, Outcome, Property, if_it_runs, register_property
from transformer_lib.checks.subject import Attention, ModelUnderTest, constant_parameters, every_output, max_difference

GRADIENTS: list[Property] = []
NO_EFFECT = "a part of the model has no effect: it is not used, or what it gives does not matter"


@register_property(GRADIENTS, NO_EFFECT, "dead")
def gradient_reaches_everything(model: ModelUnderTest) -> Outcome:
    """Every parameter gets a gradient: each quarter of a linear map, each row that is looked up in a table of words.

    Proves: nothing is cut off, and nothing random is frozen, but for what the logits do not need. Vectors whose
    gradient is 0 but for rounding are excused: the bias of the keys shifts all scores of a row, which softmax ignores.
    What one batch does not reach, as an expert that nobody chose or a far distance, gets more sentences, other seeds
    and a longer one. A matrix that is constant must get one as it was built, in the first steps. Cannot: say that a
    part does its work.
    """
    try:
        model.gradients(*model.inputs())
    except NotApplicable as reason:
        return False, str(reason), "requires_grad is False, forward runs under no_grad(), or its answer is detached"
    if stuck := _stuck_at_the_start(model):
        cause = "matrices start at a constant and block each other's gradient"
        some = "1 constant matrix gets" if len(stuck) == 1 else f"{len(stuck)} constant matrices get"
        return False, f"{some} no gradient in the first steps, such as {stuck[0]}", cause
    parameters, sizes, typical = dict(model.module.named_parameters()), defaultdict[str, float](float), 0.0
    maps = {f"{name}.weight" for name, module in model.module.named_modules() if isinstance(module, nn.Linear)}
    longest = max(model.lengths)
    if frozen := _random_and_frozen(model, longest):
        some = "1 parameter is" if len(frozen) == 1 else f"{len(frozen)} parameters are"
        return False, f"{some} random and frozen, such as {frozen[0]}", "requires_grad is False"
    vocab = max(side.vocab_size for side in model.sides)
    tables = {m.num_embeddings for m in model.module.modules() if isinstance(m, nn.Embedding)} - {*range(vocab)}
    for number, rows in enumerate((3, 16, 16, 16, 1)):
        module = model.module if number < 2 else model.build(model.seed + number)
        inputs = model.inputs(rows) if number < 4 else model.inputs(rows, longest, longest)
        for name, gradient in model.gradients(*inputs, module=module).items():
            parts = [] if gradient is None else [gradient]
            if name in maps and parameters[name].size(0) in tables:  # rows behind the vocabulary make its size round
                parts = [g[:vocab] for g in parts]
            parts = [part for g in parts for i in (0, 1) for part in g.chunk(4, i)] if name in maps else parts
            size = min((part.abs().max().item() for part in parts), default=0.0)
            sizes[name] = max(sizes[name], size * (number < 2 or size > 1e-5 * typical))  # another seed is in float32
        typical = sorted(sizes.values())[len(sizes) // 2]
        silent = [name for name, size in sizes.items() if not size > 1e-10 * typical]
        dead = [name for name in silent if parameters[name].dim() > 1 or not sizes[name] > 0]
        if not dead:
            break
    excused = model.only_its_loss_hears() if dead else set()
    dead = [name for name in dead if name not in excused]
    some = f"{len(dead)} of {len(sizes)} parameters {'gets' if len(dead) == 1 else 'get'} no gradient"
    none = f"{some}, at least in part, such as {dead[0]}" if dead else ""
    named = {f"{name}.weight": module for name, module in model.module.named_modules()}
    for table, words in _deaf_rows(model).items():
        padding = getattr(named[f"{table}.weight"], "padding_idx", None)
        if none and (f"{table}.weight" in dead or words != [padding]):
            continue  # one is why the other is
        cause, model.better_pad_id = _other_padding(model) if words == [padding] else ("", None)
        deaf = f"rows of {table} that are looked up get no gradient, at least in part: {words[:5]}"
        return False, f"{none}; and {deaf}" if none else deaf, f"a part is not used; and {cause}" if none else cause
    if none:  # what does not hear the sentences gets no gradient, and then no word does
        heard = not any(isinstance(named.get(name), nn.Embedding) for name in dead)
        model.where = dead[0] if heard else ""
        return False, none, _why_no_gradient(model, dead[0])
    rounding = f"; for {len(silent)} of them, as for a key's bias, it is 0 but for rounding" if silent else ""
    return True, f"all {len(sizes)} parameters get a gradient{rounding}"


def _why_no_gradient(model: ModelUnderTest, name: str) -> str:
    """Whether a parameter, where it gets no gradient, is without effect, or cut off from the loss."""
    parameter, inputs = dict(model.module.named_parameters())[name], model.inputs(16)
    before, kept, gradient = model(*inputs), parameter.data, model.gradients(*inputs)[name]
    silent, moves = torch.ones_like(kept) if gradient is None else (gradient.abs() < 1e-15), []
    for size in (1e-3, 1):
        parameter.data = kept + size * silent * torch.randn(kept.shape, generator=model.generator).to(kept)
        moves.append(max_difference(model(*inputs), before) > model.tolerance)
        parameter.data = kept
    if moves[0]:
        return "it moves the logits, but is cut off from the loss, as by detach(), .data or no_grad()"
    return "" if moves[1] or not silent.any() else NO_EFFECT


def _random_and_frozen(model: ModelUnderTest, longest: int) -> list[str]:
    """The frozen parameters that another seed draws otherwise, if it matters; not a table of which all read one row."""
    module, other, found = model.build(), dict(model.build(model.seed + 1).named_parameters()), list[str]()
    frozen = {name: p for name, p in module.named_parameters() if not (p.requires_grad or torch.equal(p, other[name]))}
    inputs, alike = model.inputs(16, longest, longest) if frozen else (), set[Tensor]()
    with register_module_forward_pre_hook(
        lambda m, x: alike.update({m.weight} if isinstance(m, nn.Embedding) and len(x[0].unique()) == 1 else ())
    ):
        before = model.logits(module, *inputs) if frozen else torch.empty(0)
    for name, parameter in ((name, p) for name, p in frozen.items() if p not in alike):
        parameter.data, last = other[name].data, before
        before = model.logits(module, *inputs)
        found += [name] * (not torch.equal(before, last))
    return found


def _stuck_at_the_start(model: ModelUnderTest) -> list[str]:
    """The matrices that start at a constant, such as 0, and get no gradient at all in the first five steps of Adam."""
    module = model.build()
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    constant = [name for name, matrix in constant_parameters(module).items() if matrix.dim() > 1]
    if not constant:
        return []
    used = model.gradients(*model.inputs(16))  # where no matrix is constant
    constant = [name for name in constant if (g := used[name]) is not None and g.any()]
    optimizer = torch.optim.Adam(parameters.values())
    for _ in range(5):
        gradients = model.gradients(*model.inputs(16), module=module)
        constant = [name for name in constant if (g := gradients[name]) is not None and not g.any()]
        for name, parameter in parameters.items():
            parameter.grad = gradients.get(name)
        optimizer.step()
    return constant


def _other_padding(model: ModelUnderTest) -> tuple[str, int | None]:
    """A table of words whose `padding_idx` is not the padding token, in words, and that number; empty if none is."""
    sizes = {side.vocab_size for side in model.sides}
    for name, table in model.module.named_modules():
        if isinstance(table, nn.Embedding) and table.num_embeddings in sizes:
            if table.padding_idx not in (None, model.pad_id):
                told = f"padding_idx={table.padding_idx} of {name} is not the padding {model.pad_id}"
                return f"{told}: if it is fixed on purpose, give --pad-id {table.padding_idx}", table.padding_idx
    return "", None


def _deaf_rows(model: ModelUnderTest) -> dict[str, list[int]]:
    """The tables that look up all tokens of one side, and which of these rows get no gradient, if only in part."""
    sizes = {side.vocab_size for side in model.sides}
    looked_up: dict[nn.Module, set[int]] = defaultdict(set)

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(module, nn.Embedding) and module.num_embeddings in sizes:
            looked_up[module].update(*(tokens.flatten().tolist() for tokens in inputs))

    inputs = [model.every_token(side=side) for side in range(len(model.sides))]
    with register_module_forward_pre_hook(note):
        gradients = model.gradients(*inputs)
    words_of = [set(tokens.flatten().tolist()) for tokens in inputs]
    tokens, found = (*words_of, set.union(*words_of)), {}
    for name, module in model.module.named_modules():
        gradient, words = gradients.get(f"{name}.weight"), looked_up[module] - {model.pad_id}
        if gradient is not None and words in tokens:
            if deaf := [word for word in sorted(words) if not gradient[word].all()]:
                found[name] = deaf
    return found


@register_property(
    GRADIENTS,
    "is the gradient changed on purpose, as by a straight-through estimate, a hook or scale_grad_by_freq? if not, part "
    "of the computation is cut off from it: detach(), .data or no_grad()",
)
def gradient_is_the_derivative(model: ModelUnderTest) -> Outcome:
    """A small step in a direction drawn at random, and one against it, change the loss as the gradient says.

    So in three batches. In each a step that is 100 times smaller will do as well: the larger one may meet a jump of the
    loss. A table that a call itself rewrites, as `max_norm` does, stays where it is.

    Proves: it is the gradient of what the module computes, as far as it goes: what gets no gradient does not move.
    Cannot: see a cut that changes the gradient by less than a thousandth of its length, or a fiftieth in float32.
    """
    allowed = 1e-3 if model.tolerance < 1e-9 else 0.02
    off = _off_the_derivative(model)
    if all(share < allowed for share in off):
        return True, "a small step moves the loss as the gradient says"
    words = f"a small step moves the loss by an amount that is {max(off):.1%} of the gradient off"
    cause, padding = _other_padding(model)
    if cause:
        tables = [m for m in model.module.modules() if isinstance(m, nn.Embedding)]
        kept = [table.padding_idx for table in tables]
        try:
            for table in tables:
                table.padding_idx = None
            if all(share < allowed for share in _off_the_derivative(model)):  # then that was it
                model.better_pad_id = padding
                return False, words, cause
        finally:
            for table, index in zip(tables, kept):
                table.padding_idx = index
    with if_it_runs(), Attention() as attention:
        model(*model.inputs())
    if any((scores.amax(dim=-1) < -1e4).any() for scores in attention.given):
        return False, words, "attention hides all keys of a row: its scores are lost, and their gradient is not"
    return False, words


def _off_the_derivative(model: ModelUnderTest) -> list[float]:
    """In three batches, how far the loss moves off what the gradient says, as a part of its length."""
    step = (model.tolerance / 1e4) ** 0.4  # the tolerance is 10,000 roundings; larger steps feel the curvature
    off = list[float]()
    parameters, rewritten = dict(model.module.named_parameters()), set[str]()
    for _ in range(3):
        inputs, losses = model.inputs(), []
        found = {name: g for name, g in model.gradients(*inputs).items() if g is not None}
        before = {name: parameters[name].detach().clone() for name in found}
        drawn = {name: torch.randn(g.shape, generator=model.generator).to(g) for name, g in found.items()}
        with torch.no_grad():  # in place: after `torch.func.functional_call` a module with two names is another one
            for by in (step, step, -step, step / 100, -step / 100):
                there = {name: before[name] + by * drawn[name] * (name not in rewritten) for name in found}
                for name, place in there.items():
                    parameters[name].copy_(place)
                losses.append(model.loss(model.run(model.module, *inputs)))
                rewritten |= {name for name, place in there.items() if not torch.equal(parameters[name], place)}
            for name, parameter in before.items():
                parameters[name].copy_(parameter)
        said = sum((g * drawn[name]).sum() for name, g in found.items() if name not in rewritten)
        length = torch.stack([g.norm() for g in found.values()]).norm()
        large, small = (losses[1] - losses[2]) / step, 100 * (losses[3] - losses[4]) / step
        off.append(min(abs((change / 2 - said) / length).item() for change in (large, small)))
    return off


@register_property(GRADIENTS, "the mask excludes the diagonal", "off-by-one", needs="causal")
def first_token_sees_itself(model: ModelUnderTest) -> Outcome:
    """With a target of one token, the decoder's self-attention takes part.

    Proves: the first position attends to itself. A changed token cannot show it: the residual connection carries it
    past its own mask. So a module fails if a gradient arrives at its output, or at a part's, but no longer at its
    matrices, two or more; none arrives at queries and keys, rightly. Cannot: judge an empty row that is an average.
    """
    if model.shortest > 1:
        raise NotApplicable(f"it refuses a sentence of one token: {model.refused}")
    *source, target = model.inputs()
    several, heard = model.gradients(*source, target), set[nn.Module]()  # where a gradient arrives

    def watch(_: int, module: nn.Module, output: Tensor) -> None:
        if output.requires_grad:
            output.register_hook(lambda gradient: heard.add(module) if gradient.any() else None)

    with every_output(watch):
        one = model.gradients(*source, target[:, :1])
    if not all(g.isfinite().all() for g in one.values() if g is not None):
        return False, "with a target of one token, gradients are not finite"
    before, now = ({name for name, g in got.items() if g is not None and g.any()} for got in (several, one))
    found = []
    for name, module in model.module.named_modules():
        matrices = {f"{name}.{key}" for key, parameter in module.named_parameters() if parameter.dim() > 1}
        parts = {part for part in module.modules() if any(p.dim() > 1 for p in part.parameters())}  # no activations
        if len(matrices) > 1 and matrices <= before - now and not heard.isdisjoint(parts):
            found.append(name)
    which = f"{len(found)} modules do nothing, such as {found[0]}" if found else "every module still works"
    excluded = any(not seen.diagonal()[1:].any() for seen in model.weighed(6, *source, target))
    words = f"with a target of one token, {which}"
    return (not found, words) if excluded else (not found, words, "")
