# Generated from chapters/E_suite.md: edit it there and `make export`, or here and `make sync`.

"""What a model is made of: what is shared, what leads round a layer, heads, norms, and what stands at its end."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from transformer_lib.checks.report import NotApplicable, Outcome, Property, register_property
from transformer_lib.checks.subject import Attention, ModelUnderTest, every_output, max_difference

STRUCTURE: list[Property] = []


@register_property(STRUCTURE, "a softmax stands at the end of the model; cross-entropy applies another one", "softmax")
def logits_not_probabilities(model: ModelUnderTest) -> Outcome:
    """The answers are not probabilities, and nothing sets some of them to zero, in evaluation and in training mode.

    Proves: they do not lie between 0 and 1, are not as long at every place, as a norm makes them, and are exactly 0 for
    all places or for none. The log-softmax of what a module inside put out is a note. Cannot: see probabilities that
    were scaled. Logarithms of probabilities that the model has mixed pass, rightly: they have no logits.
    """
    inputs, made = model.inputs(), list[tuple[nn.Module, Tensor]]()
    with every_output(lambda _, module, output: made.append((module, output))):
        logits = model(*inputs)
    alike = [(m, y) for m, y in made if y.numel() == logits.numel() and y.size(-1) == logits.size(-1)]
    made = [(module, output.reshape(logits.shape)) for module, output in alike]  # also of flattened tokens
    probabilities = bool(logits.min() >= 0) and bool(logits.max() <= 1)
    rows, columns = ((logits.sum(dim=axis) - 1).abs().max() < 1e-3 for axis in (-1, 1))
    range_ = f"answers lie between {logits.min():.2g} and {logits.max():.2g}"
    norm = "a norm stands behind the output projection"
    for vectors in (logits, logits - logits.mean(dim=-1, keepdim=True)):
        least, most = vectors.norm(dim=-1).aminmax()
        if most < 1.001 * least and max_difference(logits, logits.roll(1, 0)) > 1e-3:
            return False, "the answers at all places have the same length", norm
    last = [module for module, output in made if torch.equal(output, logits) and not [*module.children()]]
    if any(type(module).__name__.endswith("Norm") for module in last):
        return False, "a norm puts out the answers", norm
    for _, raw in made:
        if max_difference(raw.log_softmax(-1), logits) <= model.tolerance < max_difference(raw, logits):
            mend = (
                "none for NLLLoss, which needs them; a cross-entropy takes the log-softmax again, which changes nothing"
            )
            return None, f"{range_}, and are logarithms of probabilities", mend
    if logits.logsumexp(dim=1).abs().max() <= model.tolerance:
        cause = "a log-softmax runs over the positions, in place of the vocabulary"
        return False, f"{range_}, and are logarithms of what adds up to 1 over the positions", cause
    for answers, mode in ((logits, "evaluation"), (model.in_training(*inputs, dropout=True), "training")):
        zero = (answers == 0).flatten(0, 1)
        if (zero.any(0) & ~zero.all(0)).any():
            words = f"in {mode}, {zero.double().mean():.0%} of the answers are exactly 0"
            relu = "a ReLU stands behind the output" if answers.min() >= 0 else ""
            return False, words, "dropout stands behind the output" if mode == "training" else relu
    holds = not probabilities and bool(logits.isfinite().all())
    range_ += ", and each row sums to 1" if rows else ", and each column sums to 1" if columns else ""
    return (holds, range_) if rows or columns else (holds, range_, "")


@register_property(
    STRUCTURE, "tied through .data: each optimiser step moves them twice, and a cast to another dtype unties them"
)
def parameters_shared_on_purpose(model: ModelUnderTest) -> Outcome:
    """No two parameters share their memory; which parameter is used under two names is told.

    Layers may share their parameters on purpose (Dehghani et al. 2019), or because one layer was repeated N times. A
    module that has two names, and is called once, is used under one. A table of a vocabulary's size may be tied.

    Proves: an optimiser moves each number once. Cannot: tell what was meant; see a module that `forward` calls twice
    under one name, nor copies that merely start out equal.
    """
    calls, names = Counter[nn.Module](), defaultdict[nn.Parameter, dict[nn.Module | str, str]](dict)
    model(*model.inputs())  # what is made at the first call is made
    with register_module_forward_pre_hook(lambda module, _: calls.update([module])):
        model(*model.inputs())
    for name, parameter in model.module.named_parameters(remove_duplicate=False):
        owner = model.module.get_submodule(name.rpartition(".")[0])
        names[parameter].setdefault(owner if calls[owner] == 1 else name, name)
    sizes = {side.vocab_size for side in model.sides}
    shared = [([*group.values()], parameter) for parameter, group in names.items() if len(group) > 1]
    layers = [group for group, parameter in shared if not (parameter.dim() and parameter.size(0) in sizes)]
    memory = defaultdict[int, list[str]](list)
    for name, parameter in model.build().named_parameters():  # as it was built: a cast unties them
        memory[parameter.data_ptr()].append(name)
    if twice := [group for at, group in memory.items() if at and len(group) > 1]:
        return False, f"two parameters lie in the same memory: {' and '.join(twice[0][:2])}"
    if layers:
        first = " = ".join(layers[0][:2])
        return True, f"{len(layers)} parameters stand in several places, such as {first}: is that meant?"
    tied = f"{len(shared)} {'table is' if len(shared) == 1 else 'tables are'} tied"
    return True, tied if shared else "no parameter stands in two places"


@register_property(STRUCTURE, "a residual connection is missing round attention or the feed-forward network")
def layers_have_residual_connections(model: ModelUnderTest) -> Outcome:
    """With any matrix in a stack of layers silenced, the source, or each position's own target token, is still heard.

    Nor may it be lost with all matrices of one layer silenced, as in a layer that returns its sub-layers' sum alone.

    Proves: something leads round each of them. Layers are members of a list of one class, with three matrices or
    more; those of the encoder are those that the target does not move. And no two parts, silenced in all layers, cut
    off both the source and earlier target tokens. Cannot: say that the input is carried unchanged.
    """
    lists = [module for module in model.module.modules() if isinstance(module, nn.ModuleList | nn.Sequential)]
    alike = [each for each in lists if len({type(layer) for layer in each}) == 1]
    members = [(layer, _matrix_modules(layer)) for each in alike for layer in each if layer is not None]
    layers = {layer: [m for m in inside if m is not layer] for layer, inside in members if len(inside) > 2}
    names = {module: name for name, module in model.module.named_modules()}
    rows = []  # the same sentences, and each side in turn with other tokens
    for side, tokens in enumerate(model.inputs(1)):
        rows.append(tokens.repeat(len(model.sides) + 1, 1))
        rows[side][side + 1] = model.other(tokens[0], side=side)

    def heard(*silent: nn.Module, told: float = 0) -> list[float]:
        """How far another source moves the logits, and how far each position's own token moves its own, by the side."""
        with every_output(lambda _, module, output: output * 0 + told if module in silent else None):
            logits = model(*rows)
        own = min(max_difference(*both) for both in zip(logits[-1], logits[0]))
        return [max_difference(logits[1], logits[0]), own] if len(rows) > 1 else [own]

    def outputs(row: int) -> dict[nn.Module, Tensor]:
        """What modules put out for one row of the last side."""
        found: dict[nn.Module, Tensor] = {}
        with every_output(lambda _, module, output: found.update({module: output})):
            model(*(tokens[:1] for tokens in rows[:-1]), rows[-1][row:][:1])
        return found

    first, second, whole = outputs(0), outputs(-1), heard()
    moves, multiplies = dict[str, float](), set[str]()
    for layer, inside in layers.items():
        called = [module for module in inside if module in first and module in second and not _has_parts(module, first)]
        in_last = any(max_difference(second[module], first[module]) > model.tolerance for module in called)
        if whole[-in_last] > model.tolerance:  # else another property fails
            moves |= {names[module]: heard(module)[-in_last] for module in called}
            multiplies |= {names[m] for m in called if moves[names[m]] <= model.tolerance < heard(m, told=1)[-in_last]}
            moves[f"all of {names[layer]}"] = heard(*called)[-in_last]
    if not moves:
        raise NotApplicable("no list of layers with modules inside that can be heard")
    weakest = min(moves, key=lambda name: moves[name])
    outcome = model.more_than_rounding(moves.values(), f"with {weakest} silenced, tokens move logits by")
    if not outcome[0] and weakest in multiplies:
        return *outcome, ""  # as a gate does
    if not outcome[0] and weakest.startswith("all of "):
        return *outcome, "a layer returns what its sub-layers add, and not what came in as well"
    if outcome[0] and model.has("both") and (part := _in_the_way(model, alike)):
        cause = "a residual connection adds what came before attention, not what came out of it"
        return False, f"with {part} silenced in every layer, neither the source nor an earlier token is heard", cause
    return outcome


def _has_parts(module: nn.Module, called: Iterable[nn.Module]) -> bool:
    """Whether modules with parameters are called inside it: then the residual connection may be in it, too."""
    inside = {*module.modules()} - {module}
    return any([*part.parameters(recurse=False)] for part in inside.intersection(called))


def _in_the_way(model: ModelUnderTest, lists: Iterable[Iterable[nn.Module]]) -> str:
    """A part of the layers that cuts off source and past if it is silent in all of them; empty if there are not two.

    Where no part cuts off only one of the two, attention to both may be one, and its parts cut off both, rightly.
    """
    source, target = (sentence.repeat(3, 1) for sentence in model.inputs(1))
    source[1], target[2, 0] = model.other(source[1]), model.other(target[2, :1], side=-1)

    def cut_off(silent: set[nn.Module]) -> tuple[bool, bool]:
        with every_output(lambda _, module, output: output * 0 if module in silent else None):
            logits = model(source, target)[:, 1:]
        first, second = (max_difference(logits[row], logits[0]) <= min(model.tolerance, 1e-5) for row in (1, 2))
        return first, second

    for layers in lists if not any(cut_off(set())) else ():  # else another property fails
        owners = [{*_matrix_modules(layer)} - {layer} for layer in layers if layer is not None]
        named = [{n: m for n, m in layer.named_modules() if m in inside} for layer, inside in zip(layers, owners)]
        if named and all(parts.keys() == named[0].keys() for parts in named):
            cut = {name: cut_off({parts[name] for parts in named}) for name in named[0]}
            both = [name for name, sides in cut.items() if all(sides)]
            if len(both) > 1 and any(one != other for one, other in cut.values()):
                return both[0]
    return ""


def _matrix_modules(module: nn.Module) -> list[nn.Module]:
    """The modules inside that own a matrix and are no tables."""
    owners = (each for each in module.modules() if any(p.dim() > 1 for p in each.parameters(recurse=False)))
    return [each for each in owners if not isinstance(each, nn.Embedding)]


@register_property(STRUCTURE, "the feed-forward network has no activation function")
def feed_forward_is_not_linear(model: ModelUnderTest) -> Outcome:
    """No map that widens hands its output, as it is, to one that goes back, if the two together are linear.

    Proves: the width in the middle serves for something (Vaswani et al. 2017, section 3.3). Cannot: judge maps that
    are no modules, nor a middle that is not wider.
    """
    names = {module: name for name, module in model.module.named_modules()}
    maps, given, made = {*_matrix_modules(model.module)}, dict[nn.Module, Tensor](), dict[nn.Module, Tensor]()
    pairs: list[tuple[nn.Module, nn.Module]] = []

    def watch(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if module not in maps or not (inputs and isinstance(inputs[0], Tensor) and isinstance(output, Tensor)):
            return
        for first, y in made.items():
            back = given[first].shape == output.shape and output.size(-1) < y.size(-1) and output.numel() > 0
            if back and max_difference(inputs[0], y) <= model.tolerance:
                pairs.append((first, module))
        given[module], made[module] = inputs[0], output

    with torch.no_grad(), register_module_forward_hook(watch):
        model(*model.inputs())
    for first, second in pairs:
        x, y = (torch.randn(given[first].shape, generator=model.generator).to(given[first]) for _ in range(2))
        with torch.no_grad():
            one, other, middle = (second(first(vectors)) for vectors in (x, y, (x + y) / 2))
        if max_difference((one + other) / 2, middle) <= model.tolerance:
            return False, f"nothing stands between {names[first]} and {names[second]}: the two are one linear map"
    return True, "no map that widens goes straight to one that goes back"


@register_property(STRUCTURE, "the heads' weights are averaged, or those of one head are used for all")
def heads_attend_separately(model: ModelUnderTest) -> Outcome:
    """Where a model says that it has several heads, not all of them give a token the same weight.

    Nor do the same small maps make queries and values of each head's slice of the channels: then exchanging the slices
    of two heads exchanges what they say.

    Proves: values are read with more than one set of weights (Vaswani et al. 2017, section 3.2.2). The values are the
    last channels of a map's output; what is 0 to 1 and differs between positions is taken for weights. Cannot: judge
    attention that is one module, or show that each head is a good one.
    """
    maps, gaps = _matrix_modules(model.module), list[float]()
    if told := _one_map_for_all_heads(model, maps):
        return False, told, "one small map serves all heads: none has weights of its own"
    several = [module for module in maps if _heads_said(model.module, module) > 1]
    for values in several:
        for weights in _with_one_value(model, maps, values, model.inputs(1, 6, 6)):
            if _are_weights(model, weights):
                gaps.append((weights - weights[:, :1]).abs().max().item())
    if not gaps:
        if not several:
            raise NotApplicable("no module says, as by num_heads or n_heads, that it has several heads")
        raise NotApplicable("no module makes values alone, or behind queries and keys; there is nothing to mend")
    return model.more_than_rounding(gaps, "the most that heads of an attention differ by, in a token's weight, is")


def _one_map_for_all_heads(model: ModelUnderTest, maps: list[nn.Module]) -> str:
    """Two maps that read the same tokens, a slice of the channels for each head, in words; empty if there are none."""
    names = {module: name for name, module in model.module.named_modules()}
    read: list[tuple[nn.Module, Tensor, torch.Size]] = []

    def watch(_: int, module: nn.Module, output: Tensor, x: Tensor | None) -> None:
        if module in maps and x is not None and x.dim() == 4 and x.shape[:2] == (1, 11) and x.size(2) > 1:
            read.append((module, x, output.shape))

    with every_output(watch, given=True):
        model(*model.inputs(1, 11, 11))
    for (first, x, one), (second, y, other) in itertools.combinations(read, 2):
        if first is not second and one == other and torch.equal(x, y):
            return f"{names[first]} and {names[second]} are maps of one head's slice, and serve all {x.size(2)} heads"
    return ""


@register_property(STRUCTURE, "a softmax runs over another axis than the keys, or over what a softmax gave")
def attention_chooses_among_keys(model: ModelUnderTest) -> Outcome:
    """Weights that do not add up to 1 over the keys do so over neither heads nor queries; and one may outweigh others.

    Proves: so for each attention whose map to values is found, as above. For the latter, the maps beside that one put
    out a thousand times as much: a softmax of weights still gives none more than e times another. Cannot: ask that
    weights add up to 1 over the keys, as those beside a sink need not; nor judge attention that is one module.
    """
    maps, inputs, found = _matrix_modules(model.module), model.inputs(1, 6, 6), 0
    for name, values in model.module.named_modules():
        first = _with_one_value(model, maps, values, inputs) if values in maps else []
        at = next((i for i, given in enumerate(first) if _are_weights(model, given)), -1)
        if at < 0 or _with_one_value(model, maps, values, inputs, -1)[at].any():  # without values there is no answer
            continue
        if max_difference(_with_one_value(model, maps, values, inputs, value=2.0)[at], 2 * first[at]) > model.tolerance:
            continue  # keys are in it, too
        found += 1
        owner = [each for each in model.module.modules() if each is not values and values in each.modules()][-1]
        (one, loud) = (
            torch.stack([_with_one_value(model, maps, values, inputs, j, louder)[at] for j in range(6)])
            for louder in ((), _matrix_modules(owner))
        )  # (6 keys, 6 queries, channels)
        seen = one > model.tolerance
        for axis, sums in (("heads", one.mean(dim=2)[seen.any(dim=2)]), ("queries", one.sum(dim=1))):
            if sums.max() - sums.min() <= model.tolerance < min(one[seen].std(), (one.sum(dim=0) - 1).abs().max()):
                return False, f"of {name}, weights add up to the same number over the {axis}, but not over the keys"
        least, most = loud.where(seen, math.inf).amin(dim=0), loud.amax(dim=0)
        moved = ((loud - one).abs().amax(dim=0) > 1e-3) & (seen.sum(dim=0) > 1) & (most > 0)
        if moved.any() and (most <= 2.719 * least)[moved].all():
            words = "however large queries and keys are, no weight is more than e times another"
            with Attention() as attention:
                model(*inputs)
            twice = any(x.min() >= 0 and (x.sum(-1) - 1).abs().max() < 1e-3 for x in attention.given)
            return False, f"of {name}, {words}", "a softmax runs over the weights that a softmax gave" * twice
    if not found:
        raise NotApplicable("no map to values was found in any attention")
    return True, f"weights choose among keys in each attention whose values are found ({found})"


def _are_weights(model: ModelUnderTest, given: Tensor) -> bool:
    """Are these numbers (6, channels) from 0 to 1, and different at places that have no value of their own?"""
    others = given[[0, 1, 3, 4, 5]]
    mixed = others.max() - others.min() > model.tolerance and given.size(1) > 1
    return bool(mixed and given.min() >= 0 and given.max() <= 1 + model.tolerance)


def _with_one_value(
    model: ModelUnderTest, maps: list[nn.Module], values: nn.Module, inputs: tuple[Tensor, ...],
    place: int = 2, loud: Iterable[nn.Module] = (), value: float = 1.0,
) -> list[Tensor]:  # fmt: skip
    """What the maps are given, (6, channels), if one of them puts out a value at one of six tokens, or none, else 0.

    The loud ones put out a thousand times as much as usual, if no value. A map to values stands alone or is the last
    third of one to queries and keys, too; in what lies between, as for grouped heads, values cannot be told from keys.
    """
    given: list[Tensor] = []

    def replace(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        if module not in {values, *loud} or not inputs or not isinstance(output, Tensor) or output[..., 0].numel() != 6:
            return None
        new, width = output.clone().view(6, -1) * (1e3 if module in loud else 1), inputs[0].size(-1)
        if module is values and not width < new.size(1) < 3 * width:
            new[:, -width:] = value * (torch.arange(6) == place)[:, None].to(new)
        return new.view(output.shape)

    def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if module in maps and inputs and isinstance(inputs[0], Tensor) and inputs[0][..., 0].numel() == 6:
            given.append(inputs[0].reshape(6, -1))

    with register_module_forward_hook(replace), register_module_forward_pre_hook(note):
        model(*inputs)
    return given


def _heads_said(module: nn.Module, part: nn.Module) -> int:
    """How many heads the innermost module round a part says that it has, by an attribute's name; 0 if none says so."""
    said = 0
    for owner in module.modules():  # from the outside to the inside
        if part in owner.modules():
            keys = [key for key in dir(owner) if key.endswith(("heads", "nhead", "n_head", "num_head", "heads_count"))]
            said = max((n for key in keys if isinstance(n := getattr(owner, key, None), int)), default=0) or said
    return said


@register_property(STRUCTURE, "what the layers add up reaches the logits without a norm: none stands behind the last")
def a_norm_stands_at_the_end(model: ModelUnderTest) -> Outcome:
    """If the maps inside do not feel how large the embeddings are, the logits do not feel it either.

    Proves: what layers add up is normalised before it becomes logits (Wang et al. 2019, section 2.2; Xiong et al. 2020,
    table 1). Cannot: judge the norm of the memory, a model without norms, or one that normalises its embeddings.
    """
    inputs = model.inputs()
    small, large = (_spreads(model, inputs, factor) for factor in (1e3, 1e6))
    logits = large.pop(None) / (small.pop(None) or 1.0)
    growth = sorted(large[each] / small[each] for each in small if 0 < small[each] != large.get(each, 0) > 0)
    if not math.isfinite(logits):
        return False, "if embeddings are large, logits are not finite"
    if not growth or (logits > 30 and growth[len(growth) // 2] > 30):
        raise NotApplicable("no nn.Embedding of words, or no maps that read normalised vectors")
    return logits < 30, f"if embeddings are a thousand times as large, logits are {logits:.2g} times as large"


def _spreads(model: ModelUnderTest, inputs: tuple[Tensor, ...], factor: float) -> dict[nn.Module | None, float]:
    """The spread of what each map puts out, and of the logits under None, if the words' vectors are multiplied."""
    maps, words = {*_matrix_modules(model.module)}, [tokens.flatten().sort().values for tokens in inputs]
    found: dict[nn.Module | None, float] = {}

    def change(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        if module in maps and isinstance(output, Tensor):
            found[module] = output.std().item()
        if not (isinstance(module, nn.Embedding) and inputs and isinstance(inputs[0], Tensor)):
            return None
        looked_up = inputs[0].flatten().sort().values  # a table of positions looks up other numbers
        return output * factor if any(torch.equal(looked_up, tokens) for tokens in words) else None

    with register_module_forward_hook(change):
        found[None] = model(*inputs).std().item()
    return found
