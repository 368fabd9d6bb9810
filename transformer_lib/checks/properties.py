# Generated from chapters/12b_properties.md: edit the chapter, not this file, then run `make export`.

"""The properties of a model: who sees whom, parameters and gradients, and two short trainings."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from transformer_lib.checks.model_under_test import (
    LONGEST,
    ModelUnderTest,
    indices_beside_table,
    max_difference,
    modules_with_gradient,
    plain_tensors,
    seeded,
)
from transformer_lib.checks.report import NotApplicable, Outcome, Property, register_property
from transformer_lib.serialization import one_line

PROPERTIES: list[Property] = []  # in the order in which they are written
TRAINED_PROPERTIES: list[Property] = []  # those that train the model


def _lengths(model: ModelUnderTest, short: int) -> list[int]:
    """Sizes of sentences to try: a short one, a longer one, and the longest that the model says it accepts."""
    return [short, LONGEST, *([] if model.max_len is None else [min(model.max_len, 256)])]


@register_property(PROPERTIES, "the causal mask is missing, inverted or shifted; a norm runs over positions", "causal")
def causality(model: ModelUnderTest) -> Outcome:
    """Logits at position i do not change when the target tokens after i do, in evaluation and in training mode.

    Proves: for these weights and inputs, no information flows backwards, to rounding; training mode is tried with
    random numbers that repeat. Cannot: show a leak that only other weights open. The later tokens are replaced at
    random: a constant can vanish in a layer normalisation.
    """

    def leak(call: Callable[[Tensor, Tensor], Tensor], length: int) -> float:
        source, target = model.pair(1, 7, length)  # one sentence: what a batch mixes is another property's business
        before, worst = call(source, target), 0.0
        for i in range(length - 1) if length <= LONGEST else (0, length // 2, length - 2):
            future = torch.cat([target[:, : i + 1], model.other(target[:, i + 1 :], target=True)], dim=1)
            worst = max(worst, max_difference(call(source, future)[:, : i + 1], before[:, : i + 1]))
        return worst

    words = "changing later target tokens moves earlier logits by"
    worst = max(leak(model, length) for length in _lengths(model, 6))
    training, pair = 0.0, model.pair(1)
    if max_difference(model.in_training(*pair), model.in_training(*pair)) == 0:
        training = max(leak(model.in_training, length) for length in _lengths(model, 6))
    if worst > model.tolerance >= training:
        return (
            False,
            f"{words} {model.describe(worst)}, in evaluation mode only",
            "the mask is used in training mode only",
        )
    if training > model.tolerance >= worst:
        cause = "in training mode a mask is missing, or statistics run over positions"
        return False, f"{words} {model.describe(training)}, in training mode only", cause
    return model.at_most_rounding(worst, words)


@register_property(PROPERTIES, "the mask hides the past, or what attention reads is overwritten", "stale")
def present_seen(model: ModelUnderTest) -> Outcome:
    """Logits at position i change when target token i does, and when token i - 1 does.

    Proves: both reach position i. Cannot: show that they come through attention; the present has a residual
    connection as well.
    """
    source, target = model.pair()
    before, least = model(source, target), math.inf
    for i in range(target.size(1)):
        for j in {i, max(i - 1, 0)}:
            changed = target.clone()
            changed[:, j] = model.other(target[:, j], target=True)
            least = min(least, max_difference(model(source, changed)[:, i], before[:, i]))
    return model.more_than_rounding(least, "the least that a target token moves logits that may see it is")


@register_property(PROPERTIES, "the padding mask is inverted, or cross-attention does not reach the memory", "blind")
def source_sensitivity(model: ModelUnderTest) -> Outcome:
    """Each real source token has an effect on each target position, in a batch with padding.

    Proves: the decoder hears every source position from every position of its own. Cannot: show that it hears the
    right thing.
    """
    least, somewhere = math.inf, math.inf
    for length in _lengths(model, 7):
        source, target = model.pair(3, length - 2, length)
        source = torch.cat([source, model.padding(3, 2)], dim=1)
        before = model(source, target)
        for j in range(length - 2) if length <= LONGEST else (0, length // 2, length - 3):
            changed = source.clone()
            changed[:, j] = model.other(source[:, j])
            after = model(changed, target)
            moves = [max_difference(after[:, i], before[:, i]) for i in range(length)]
            least, somewhere = min(least, *moves), min(somewhere, max(moves))
    outcome = model.more_than_rounding(least, "the least that one real source token moves the logits of a position is")
    deaf = "some target positions do not hear all of the source: a causal mask on cross-attention"
    return outcome if somewhere <= model.tolerance else (*outcome[:2], deaf)


@register_property(PROPERTIES, "attention reaches padded source positions", "source-padding")
def source_padding_on_the_right(model: ModelUnderTest) -> Outcome:
    """More padding at the end of the source changes no logits.

    Proves: padded keys have no weight, in the encoder and for the decoder. Cannot: tell which of the two has some.
    """
    source, target = model.pair()
    longer = torch.cat([source, model.padding(3, 4)], dim=1)
    moved = max_difference(model(longer, target), model(source, target))
    outcome = model.at_most_rounding(moved, "four more padded source positions move the logits by")
    with suppress(NotApplicable):
        if not outcome[0] and _moved_by_padding(model, longer, target, slice(None)) <= model.tolerance:
            return *outcome, "positions or a norm depend on the padded length: what PAD contains does not matter"
    return outcome


@register_property(PROPERTIES, "something mixes target positions apart from causal attention", "target-padding")
def target_padding_on_the_right(model: ModelUnderTest) -> Outcome:
    """More padding at the end of the target changes no logits of real positions.

    Proves: nothing mixes target positions apart from causal attention, such as a mean over the length. Cannot: show
    that the target's padding mask is used: padding on the right lies in everybody's future, hidden in any case.
    """
    source, target = model.pair()
    longer = torch.cat([target, model.padding(3, 4)], dim=1)
    moved = max_difference(model(source, longer)[:, : target.size(1)], model(source, target))
    return model.at_most_rounding(moved, "four more padded target positions move the real logits by")


def _pad_rows(model: ModelUnderTest, source: Tensor, target: Tensor) -> list[Tensor]:
    """The rows of the padding token, in those tables that look up all the padding of these sentences."""
    sizes = {model.source_vocab_size, model.target_vocab_size}
    looked_up: dict[Tensor, int] = defaultdict(int)

    def count(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(module, nn.Embedding) and module.num_embeddings in sizes:
            looked_up[module.weight] += sum(int((tokens == model.pad_id).sum()) for tokens in inputs)

    with register_module_forward_pre_hook(count):
        model(source, target)
    padding = sum(int((tokens == model.pad_id).sum()) for tokens in (source, target))
    rows = [weight[model.pad_id] for weight, times in looked_up.items() if times >= padding]
    if not rows:
        raise NotApplicable("no nn.Embedding of the vocabulary's size looks up this padding")
    return rows


def _moved_by_padding(model: ModelUnderTest, source: Tensor, target: Tensor, real: slice) -> float:
    """How far the logits at real positions move when the vector of the padding token is another one."""
    rows, before = _pad_rows(model, source, target), model(source, target)
    saved = [row.detach().clone() for row in rows]
    with torch.no_grad():
        for row in rows:
            row.copy_(torch.randn(row.shape, generator=model.generator, dtype=torch.float64) * 3)
        try:
            after = model(source, target)
        finally:
            for row, old in zip(rows, saved):
                row.copy_(old)
    keep = [token for token in range(model.target_vocab_size) if token != model.pad_id]  # tied: its own logit moves
    return max_difference(after[:, real][..., keep], before[:, real][..., keep])


@register_property(PROPERTIES, "the source's padding mask is missing, inverted or on the wrong axis", "source-padding")
def source_padding_on_the_left(model: ModelUnderTest) -> Outcome:
    """What the embedding of PAD contains does not matter, with padding before the source.

    Proves: padded keys are not read. The logits may differ from those of the unpadded source, because positions
    shift; the content of PAD may not. Cannot: judge a model whose source embedding is no nn.Embedding.
    """
    source, target = model.pair()
    moved = _moved_by_padding(model, torch.cat([model.padding(3, 3), source], dim=1), target, slice(None))
    return model.at_most_rounding(moved, "another PAD vector before the source moves the logits by")


@register_property(PROPERTIES, "the target's padding mask is missing, or on the wrong axis", "target-padding")
def target_padding_on_the_left(model: ModelUnderTest) -> Outcome:
    """What the embedding of PAD contains does not matter to real positions, with padding before the target.

    Proves: the decoder combines both masks. Cannot: judge a model whose target embedding is no nn.Embedding.
    """
    source, target = model.pair()
    moved = _moved_by_padding(model, source, torch.cat([model.padding(3, 3), target], dim=1), slice(3, None))
    outcome = model.at_most_rounding(moved, "another PAD vector before the target moves the real logits by")
    return outcome if math.isfinite(moved) else (*outcome, "a padded query may see nothing, and its row becomes NaN")


@register_property(PROPERTIES, "sentences are mixed: a wrong reshape, a mask of the wrong rank, a batch norm", "batch")
def batch_independence(model: ModelUnderTest) -> Outcome:
    """A sentence gets the same logits alone as in a batch, and a permuted batch gives permuted logits.

    Proves: for these sizes rows do not mix. Batch and length are chosen different and then equal, because some
    code mixes rows only when sizes coincide. Cannot: try every coincidence.
    """
    worst = 0.0
    for rows, length in ((3, 7), (4, 4), (8, 8), (2, 2)):
        source, target = model.pair(rows, length, length)
        source[0, -1] = model.pad_id
        together = model(source, target)
        alone = torch.cat([model(source[i : i + 1], target[i : i + 1]) for i in range(rows)])
        order = torch.randperm(rows, generator=model.generator)
        permuted = model(source[order], target[order])
        worst = max(worst, max_difference(alone, together), max_difference(permuted, together[order]))
    return model.at_most_rounding(worst, "alone and in a batch, logits differ by")


@register_property(
    PROPERTIES, "the padding token or a size is fixed in the code, or the two sizes are swapped", "source-padding"
)
def sizes_and_padding_are_those_asked_for(model: ModelUnderTest) -> Outcome:
    """Built for another padding token and, if it can be, for unequal vocabularies, the model runs and hides padding.

    Proves: neither number is fixed in the code. Cannot: judge a factory that builds for one choice only.
    """
    size, pad_id = model.source_vocab_size, 4 if model.pad_id == 3 else 3
    refusal = ""
    for target_size in (size + 2, size):
        sizes = {"source_vocab_size": size, "target_vocab_size": target_size}
        other = ModelUnderTest(model.factory, **sizes, pad_id=pad_id, max_len=model.max_len, seed=model.seed)
        try:
            module = other.build()
        except Exception as error:
            refusal = one_line(error)
            continue
        source, target = other.pair()
        source[0, 0], target[0, 0] = size - 1, target_size - 1
        try:
            other.logits(module, source, target)
        except Exception as error:
            refusal = one_line(error)
            if {size, target_size} <= {n for parameter in module.parameters() for n in parameter.shape}:
                return False, f"built for {size} and {target_size} tokens and padding {pad_id}, it raises {refusal}"
            continue  # it has one vocabulary
        moved = max_difference(other(torch.cat([source, other.padding(3, 2)], dim=1), target), other(source, target))
        return other.at_most_rounding(moved, f"where padding is {pad_id}, two more padded positions move the logits by")
    raise NotApplicable(f"the factory builds for no other padding and sizes: {refusal}")


@register_property(PROPERTIES, "positions are missing, or do not reach attention", "positions")
def positions_matter(model: ModelUnderTest) -> Outcome:
    """Swapping two source tokens, or two earlier target tokens, changes the logits.

    Proves: order is seen on both sides. Cannot: show that positions are right; and a causal decoder of two layers or
    more sees some order even without positions.
    """
    source, target = model.pair()
    source[:, 1], target[:, 1] = model.other(source[:, 0]), model.other(target[:, 0], target=True)
    before = model(source, target)
    by_source = max_difference(model(source[:, [1, 0, 2, 3, 4, 5, 6]], target), before)
    by_target = max_difference(model(source, target[:, [1, 0, 2, 3, 4, 5]])[:, 5], before[:, 5])
    return model.more_than_rounding(min(by_source, by_target), "the least that swapping two tokens moves the logits is")


@register_property(PROPERTIES, "dropout, or other randomness, runs in evaluation mode", "eval")
def deterministic_in_evaluation(model: ModelUnderTest) -> Outcome:
    """Two calls in evaluation mode give the same logits, bit for bit.

    Proves: no randomness after `eval()`. Cannot: show that somebody calls `eval()`.
    """
    source, target = model.pair()
    moved = max_difference(model(source, target), model(source, target))
    return moved == 0, f"two calls in evaluation mode differ by {model.describe(moved) if moved else 0}"


@register_property(PROPERTIES, "dropout modules exist but are never called, or are held in evaluation mode", "dropout")
def dropout_in_training(model: ModelUnderTest) -> Outcome:
    """Two calls in training mode differ, if the model has dropout.

    Proves: some dropout is active in training. Cannot: say whether it stands in the right places.
    """
    rates = [module.p for module in model.module.modules() if isinstance(module, nn.Dropout)]
    source, target = model.pair()
    with seeded(model.seed):
        before = model.logits(model.training_module, source, target)
        moved = max_difference(model.logits(model.training_module, source, target), before)
    if moved == 0 and not any(rates):
        raise NotApplicable("the model has no dropout, so it cannot show any")
    return 0 < moved < math.inf, f"two calls in training mode differ by {model.describe(moved)}"


@register_property(PROPERTIES, "a fully masked row becomes NaN and poisons the gradient of every sentence", "empty-row")
def empty_sentences(model: ModelUnderTest) -> Outcome:
    """A sentence of nothing but padding in the batch leaves the others' logits and all gradients as they were.

    Proves: such a row adds nothing but rounding. Gradients that are themselves rounding are not compared. Cannot: say
    what the row itself should be.
    """
    source, target = model.pair()
    more_source, more_target = (torch.cat([t, model.padding(1, t.size(1))]) for t in (source, target))
    moved = max_difference(model(more_source, more_target)[:3], model(source, target))
    alone, together = model.gradients(source, target), model.gradients(more_source, more_target, rows=3)
    spoilt = sum(g is not None and not g.isfinite().all().item() for g in together.values())
    if spoilt:
        return False, f"{spoilt} of {len(together)} parameters get a gradient that is not finite"
    for name, gradient in alone.items():
        other = together[name]
        if gradient is not None and other is not None and gradient.abs().max() > model.tolerance:
            moved = max(moved, max_difference(other, gradient))
    return model.at_most_rounding(moved, "an empty sentence moves the others' logits and gradients by")


@register_property(PROPERTIES, "a softmax stands at the end of the model; cross-entropy applies another one", "softmax")
def logits_not_probabilities(model: ModelUnderTest) -> Outcome:
    """The answers are not probabilities.

    Proves: they are not non-negative with sum 1. Cannot: see probabilities that were scaled. Logarithms of
    probabilities pass, rightly: a softmax gives them back.
    """
    logits = model(*model.pair())
    total = logits.sum(dim=-1)
    probabilities = bool(logits.min() >= 0) and (total - 1).abs().max().item() < 1e-3
    range_ = f"answers lie between {logits.min():.2g} and {logits.max():.2g}"
    return not probabilities, range_ + (", and each row sums to 1" if probabilities else "")


@register_property(PROPERTIES, "one module object stands in several places: one layer repeated N times", "one-layer")
def parameters_shared_on_purpose(model: ModelUnderTest) -> Outcome:
    """No parameter is used under two names, except a table tied to another table of a vocabulary's size.

    Proves: nothing else is shared as an object. Cannot: see a module that `forward` calls twice under one name, nor
    copies that merely start out equal.
    """
    names = defaultdict(list)
    for name, parameter in model.module.named_parameters(remove_duplicate=False):
        names[parameter].append(name)
    sizes = {model.source_vocab_size, model.target_vocab_size}
    shared = [(group, parameter) for parameter, group in names.items() if len(group) > 1]
    wrong = [group for group, parameter in shared if not (parameter.dim() and parameter.size(0) in sizes)]
    if wrong:
        return False, f"{len(wrong)} parameters stand in several places, such as {' = '.join(wrong[0][:2])}"
    tied = f"{len(shared)} {'table is' if len(shared) == 1 else 'tables are'} tied"
    return True, tied if shared else "no parameter stands in two places"


@register_property(PROPERTIES, "a part of the model is built but not used, or cut off from the loss", "dead")
def gradient_reaches_everything(model: ModelUnderTest) -> Outcome:
    """Every parameter gets a gradient, and in a table of words every row that is looked up.

    Proves: nothing is cut off. Vectors whose gradient is 0 but for rounding are excused: the bias of the keys shifts
    all scores of a row, which softmax ignores. What one batch does not reach, as an expert that nobody chose, gets
    more sentences and other seeds. Cannot: say that a part does its work.
    """
    parameters, sizes = dict(model.module.named_parameters()), defaultdict[str, float](float)
    for number, rows in enumerate((3, 16, 16, 16, 16)):
        module = model.module if number < 2 else model.build(model.seed + number)
        for name, gradient in model.gradients(*model.pair(rows), module=module).items():
            sizes[name] = max(sizes[name], 0.0 if gradient is None else gradient.abs().max().item())
        typical = sorted(sizes.values())[len(sizes) // 2]
        silent = [name for name, size in sizes.items() if not size > 1e-10 * typical]
        dead = [name for name in silent if parameters[name].dim() > 1 or not sizes[name] > 0]
        if not dead:
            break
    if dead:
        return False, f"{len(dead)} of {len(sizes)} parameters get no gradient, such as {dead[0]}"
    for name, words in _deaf_rows(model).items():
        cause = "padding_idx is another token than pad_id, or tokens are cut off before the table"
        return False, f"rows of {name} that are looked up get no gradient: {words[:5]}", cause
    excused = f"; for {len(silent)} of them, as for a key's bias, it is 0 but for rounding" if silent else ""
    return True, f"all {len(sizes)} parameters get a gradient{excused}"


def _deaf_rows(model: ModelUnderTest) -> dict[str, list[int]]:
    """The tables that look up all tokens of one side, and which of these tokens' rows get no gradient, if any."""
    sizes = {model.source_vocab_size, model.target_vocab_size}
    looked_up: dict[nn.Module, set[int]] = defaultdict(set)

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(module, nn.Embedding) and module.num_embeddings in sizes:
            looked_up[module].update(*(tokens.flatten().tolist() for tokens in inputs))

    source, target = model.every_token(), model.every_token(target=True)
    with register_module_forward_pre_hook(note):
        gradients = model.gradients(source, target)
    first, second = (set(side.flatten().tolist()) for side in (source, target))
    tokens, found = (first, second, first | second), {}
    for name, module in model.module.named_modules():
        gradient, words = gradients.get(f"{name}.weight"), looked_up[module] - {model.pad_id}
        if gradient is not None and words in tokens:
            if deaf := [word for word in sorted(words) if not gradient[word].any()]:
                found[name] = deaf
    return found


@register_property(PROPERTIES, "position i does not see its own token: the mask excludes the diagonal", "off-by-one")
def first_token_sees_itself(model: ModelUnderTest) -> Outcome:
    """With a target of one token, the decoder's self-attention takes part.

    Proves: the first position attends to itself. A changed token cannot show it: the residual connection carries it
    past its own mask. So a module fails if a gradient arrives at its output, or at a part's, but no longer at its
    matrices, two or more; none arrives at queries and keys, rightly. Cannot: judge an empty row that is an average.
    """
    source, target = model.pair()
    several = model.gradients(source, target)
    with modules_with_gradient() as heard:
        one = model.gradients(source, target[:, :1])
    before, now = ({name for name, g in got.items() if g is not None and g.any()} for got in (several, one))
    found = []
    for name, module in model.module.named_modules():
        matrices = {f"{name}.{key}" for key, parameter in module.named_parameters() if parameter.dim() > 1}
        parts = {part for part in module.modules() if any(p.dim() > 1 for p in part.parameters())}  # no activations
        if len(matrices) > 1 and matrices <= before - now and not heard.isdisjoint(parts):
            found.append(name)
    which = f"{len(found)} modules do nothing, such as {found[0]}" if found else "every module still works"
    return not found, f"with a target of one token, {which}"


@register_property(PROPERTIES, "a constant such as -1e9, or a table that is no buffer, does not fit the dtype", "half")
def every_dtype(model: ModelUnderTest) -> Outcome:
    """float64, bfloat16 and float16 run and agree with float32, to 2e-5, 0.3 and 0.05 of the logits' spread.

    Proves: no dtype is assumed in `forward`. Cannot: promise that training in float16 works.
    """
    pairs, single, found = [model.pair(1) for _ in range(4)], model.build().float(), []
    for source, _ in pairs:
        source[0, -2:] = model.pad_id
    references = [model.logits(single, *pair) for pair in pairs]
    for dtype, allowed in ((torch.float64, 2e-5), (torch.bfloat16, 0.3), (torch.float16, 0.05)):
        name = str(dtype).removeprefix("torch.")
        try:
            module = model.build().to(dtype)
            logits = [model.logits(module, *pair).float() for pair in pairs]
        except Exception as error:
            return False, f"{name} does not run: {one_line(error)}"
        moves = [max_difference(*both) for both in zip(logits, references)]
        moved = min(moves) if math.isfinite(max(moves)) else math.inf  # in some, rounding chooses another expert
        if moved > allowed:
            return False, f"{name} differs from float32 by {model.describe(moved)}"
        found.append(f"{name} by less than {10.0 ** math.ceil(math.log10(max(moved, 1e-12))):g}")
    return True, "differs from float32: " + ", ".join(found)


@register_property(PROPERTIES, "something that the output depends on is not in the state dict", "state")
def state_dict_is_complete(model: ModelUnderTest) -> Outcome:
    """A model of another seed gives the same logits once it has loaded the state dict.

    Proves: a checkpoint is enough. Cannot: see what differs neither between seeds nor between calls.
    """
    first, second = model.build(model.seed), model.build(model.seed + 1)
    pair = model.pair()
    second.load_state_dict(first.state_dict())
    moved = max_difference(model.logits(second, *pair), model.logits(first, *pair))
    return moved == 0, f"after loading, logits differ by {model.describe(moved) if moved else 0}"


@register_property(PROPERTIES, "a tensor is a plain attribute, or is made in forward without device=", "buffer")
def buffers_move_along(model: ModelUnderTest) -> Outcome:
    """What the output depends on is a parameter or a buffer, and the model runs on another device.

    Proves: what modules keep moves, and, on the device `meta`, that sums and embeddings in `forward` meet nothing made
    on the CPU. Cannot: see the latter in matrix products, which do not compare devices there, nor at all if the model
    looks at values, which `meta` has not.
    """
    source, target = model.pair()
    plain = plain_tensors(model.module, lambda: model(source, target))
    if plain:
        return False, f"plain tensors: {', '.join(plain[:3])}"
    moved = "the model runs on another device"
    try:
        with register_module_forward_pre_hook(indices_beside_table):
            model.logits(model.build().to("meta"), *(tokens.to("meta") for tokens in model.pair()))
    except Exception as error:
        if "not on the expected device" in str(error):
            return False, f"moved to another device, it does not run: {one_line(error)}"
        moved = "no other device was tried, as the model looks at values"
    return True, f"every tensor that matters is a parameter or a buffer; {moved}"


@register_property(PROPERTIES, "a sequence beyond max_len is cut or wrapped without a word", "too-long")
def too_long_raises(model: ModelUnderTest) -> Outcome:
    """A sequence longer than `max_len` is refused.

    Proves: it is, with some error. Cannot: judge whether the message helps.
    """
    if model.max_len is None:
        raise NotApplicable("no max_len was given")
    length = model.max_len + 1
    for side, sizes in (("source", (length, 2)), ("target", (2, length))):
        try:
            with torch.no_grad():
                model.module(*model.pair(1, *sizes))  # a shape that is wrong is no refusal
        except Exception:
            continue
        return False, f"{length} {side} tokens are accepted, though max_len is {model.max_len}"
    return True, f"{length} tokens are refused"


PEAK = 2e-3  # learning rate
Batch = Callable[[], tuple[Tensor, Tensor, Tensor]]  # source, decoder input, labels


def _shifted_right(model: ModelUnderTest, labels: Tensor) -> Tensor:
    """What a decoder is given to predict the labels (rows, length): a first token, then all labels but the last."""
    bos = (model.pad_id + 1) % model.target_vocab_size
    return torch.cat([torch.full_like(labels[:, :1], bos), labels[:, :-1]], dim=1)


def _training(model: ModelUnderTest, batch: Batch) -> Iterator[tuple[nn.Module, float]]:
    """Train a fresh module; after every 200 steps of Adam, the module and its mean loss over the last twenty."""
    module = model.build().float()
    optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=PEAK, betas=(0.9, 0.98))
    for block in itertools.count():
        losses = []
        with seeded(model.seed + block):
            module.train()
            for step in range(200 * block, 200 * (block + 1)):
                for group in optimizer.param_groups:
                    group["lr"] = PEAK * min(1, (step + 1) / 50)
                source, inputs, labels = batch()
                loss = F.cross_entropy(module(source, inputs).flatten(0, 1), labels.flatten())
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(module.parameters(), 1.0)
                optimizer.step()
                losses.append(loss.item())
        yield module.eval(), sum(losses[-20:]) / 20


@register_property(TRAINED_PROPERTIES, "the model sees the tokens that it is asked to predict", "unmasked")
def unpredictable_stays_unpredictable(model: ModelUnderTest) -> Outcome:
    """Trained on targets drawn at random, the model does not get below the entropy of the draw.

    Proves: no leak that 200 steps can find. Every batch is new, so nothing can be learnt by heart. Cannot: see a leak
    that is hard to learn to use.
    """

    def batch() -> tuple[Tensor, Tensor, Tensor]:
        source, labels = model.pair(32, 8, 8)
        return source, _shifted_right(model, labels), labels

    _, loss = next(_training(model, batch))
    floor = math.log(model.target_vocab_size - 1)
    return loss > floor - 0.03, f"loss {loss:.2f}, chance is ln {model.target_vocab_size - 1} = {floor:.2f}"


@register_property(TRAINED_PROPERTIES, "the source does not reach the output, or learning is broken", "dead")
def copying_is_learnt(model: ModelUnderTest) -> Outcome:
    """Trained to repeat the source, the model does, also when it reads its own output.

    Proves: source, positions and gradient work together. Cannot: say anything about harder tasks. At most 2400 steps,
    or 4800 where a third is right by then, at a rate that suits small models; a large one may need another.
    """
    fewer = model.target_vocab_size < model.source_vocab_size  # tokens that both vocabularies have

    def batch(rows: int = 32) -> tuple[Tensor, Tensor, Tensor]:
        labels = model.tokens(rows, 6, target=fewer)
        return labels, _shifted_right(model, labels), labels

    source, inputs, labels = batch(64)
    steps = 0
    for module, _ in itertools.islice(_training(model, batch), 24):
        steps, output = steps + 200, inputs[:, :1]
        for _ in range(labels.size(1)):
            output = torch.cat([output, model.logits(module, source, output)[:, -1:].argmax(dim=-1)], dim=1)
        right = (output[:, 1:] == labels).double().mean().item()
        if right > 0.8 or (steps >= 2400 and right < 1 / 3):
            break
    evidence = f"after {steps} steps, {right:.0%} of the tokens are copied, read from the model's own output"
    return right > 0.8, evidence


FOLLOWS = {  # a failure of the first may follow from a failure of one of the others
    "causality": "deterministic in evaluation",
    "source padding on the right": "deterministic in evaluation",
    "target padding on the right": "deterministic in evaluation, causality, batch independence",
    "source padding on the left": "deterministic in evaluation, source padding on the right, empty sentences",
    "target padding on the left": "deterministic in evaluation, causality, empty sentences",
    "batch independence": "deterministic in evaluation",
    "sizes and padding are those asked for": "deterministic in evaluation, source padding on the right",
    "positions matter": "source sensitivity, present seen",
    "empty sentences": "deterministic in evaluation, batch independence",
    "gradient reaches everything": "source sensitivity, present seen, batch independence",
    "first token sees itself": "causality",
    "every dtype": "deterministic in evaluation, buffers move along",
    "state dict is complete": "deterministic in evaluation",
    "unpredictable stays unpredictable": "causality",
    "copying is learnt": "causality, source sensitivity, positions matter, present seen, logits not probabilities",
}
