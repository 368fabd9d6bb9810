# Generated from chapters/12b_properties.md: edit it there and `make export`, or here and `make sync`.

"""The properties of a model: who sees whom, parameters and gradients, and two short trainings."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._pytree import tree_leaves

from transformer_lib.checks.model_under_test import (
    LONGEST,
    LowerPrecision,
    ModelUnderTest,
    constant_matrices,
    every_output,
    indices_beside_table,
    max_difference,
    modules_with_gradient,
    plain_tensors,
    seeded,
)
from transformer_lib.checks.report import NotApplicable, Outcome, Property, register_property
from transformer_lib.files import one_line

PROPERTIES: list[Property] = []  # in the order in which they are written
TRAINED_PROPERTIES: list[Property] = []  # those that train the model


def _influence(
    model: ModelUnderTest, pair: tuple[Tensor, Tensor], places: Iterable[int], *, target: bool, training: bool = False
) -> dict[int, list[float]]:
    """How far the logits at each position move when another token stands at a place of one side, by the place."""
    call = model.in_training if training else model
    before, moves = call(*pair), {}
    for place in places:
        changed = [tokens.clone() for tokens in pair]
        changed[target][:, place] = model.other(pair[target][:, place], target=target)
        after = call(*changed)
        moves[place] = [max_difference(after[:, i], before[:, i]) for i in range(after.size(1))]
    return moves


def _few(length: int) -> Iterable[int]:
    """All places of a short sentence, some of a long one."""
    return range(length) if length <= LONGEST else (length // 2, length - 1)


@register_property(PROPERTIES, "the causal mask is missing, inverted or shifted; a norm runs over positions", "causal")
def causality(model: ModelUnderTest) -> Outcome:
    """Logits at position i do not change when a target token after i does, in evaluation and in training mode.

    Proves: for these weights and inputs, no information flows backwards, to rounding; training mode is tried with
    random numbers that repeat. Cannot: show a leak that only other weights open. The later token is replaced at
    random: a constant can vanish in a layer normalisation.
    """

    def leak(*, training: bool) -> float:
        worst = [0.0]
        for length in model.lengths:  # one sentence: what a batch mixes is another property's business
            moves = _influence(model, model.pair(1, 7, length), _few(length), target=True, training=training)
            worst += [move for place, row in moves.items() for move in row[:place]]
        return max(worst)

    words = "changing later target tokens moves earlier logits by"
    worst, training, pair = leak(training=False), 0.0, model.pair(1)
    if max_difference(model.in_training(*pair), model.in_training(*pair)) == 0:
        training = leak(training=True)
    if worst > model.tolerance >= training:
        cause = "the mask is used in training mode only"
        return False, f"{words} {model.describe(worst)}, in evaluation mode only", cause
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
    table = _influence(model, model.pair(), range(6), target=True)
    moves = [move for place, row in table.items() for move in row[place : place + 2]]
    return model.more_than_rounding(moves, "the least that a target token moves logits that may see it is")


@register_property(PROPERTIES, "the padding mask is inverted, or cross-attention does not reach the memory", "blind")
def source_sensitivity(model: ModelUnderTest) -> Outcome:
    """Each real source token has an effect on each target position, in a batch with padding.

    Proves: the decoder hears every source position from every position of its own. Cannot: show that it hears the
    right thing.
    """
    rows: list[list[float]] = []
    for length in model.lengths:
        source, target = model.pair(3, length, min(length, LONGEST))
        real = length - 2 if length <= LONGEST else length
        source[:, real:] = model.pad_id
        rows += _influence(model, (source, target), [j for j in _few(length) if j < real], target=False).values()
    moves = [move for row in rows for move in row]
    outcome = model.more_than_rounding(moves, "the least that one real source token moves the logits of a position is")
    deaf = "some target positions do not hear all of the source: a causal mask on cross-attention"
    short = rows[:15]  # those of the first two lengths
    return outcome if min(map(max, short)) <= model.tolerance else (*outcome[:2], deaf)


@register_property(PROPERTIES, "a causal mask on cross-attention, or only a part of the memory is handed on")
def memory_is_whole(model: ModelUnderTest) -> Outcome:
    """The memory's vectors hear tokens on both sides; each is heard somewhere, and each target position hears some.

    Proves: the encoder reads in both directions, and cross-attention reaches every place. The memory is the last
    output of a module that has a vector for each source token, mixes them, matters, and does not depend on the target.
    Cannot: judge a model without such a module, or see further than the neighbours. It does not ask every place to hear
    every other: a sparse attention leaves some out.
    """
    places = torch.arange(7)
    source = model.tokens(1, 7).repeat(8, 1)
    source[places, places] = model.other(source[7])  # one other token in each row but the last
    targets = [model.tokens(1, 6, target=True).expand(8, -1) for _ in range(2)]
    states, again = (model.states(source, target, 7) for target in targets)
    for call, memory in reversed(states.items()):
        after = [max_difference(memory[i + 1, i], memory[7, i]) for i in range(6)]  # what the token to the right moves
        before = [max_difference(memory[i, i + 1], memory[7, i + 1]) for i in range(6)]
        beside = [max(after), max(before)]
        if max_difference(again.get(call, memory[:0]), memory) > 0 or max(beside) <= model.tolerance:
            continue

        def spoil(number: int, module: nn.Module, output: Tensor, call: Any = call) -> Tensor | None:
            if (module, number) != call:
                return None
            new = output.clone()
            vectors = new if len(new) == 8 else new.transpose(0, 1)
            vectors[places, places] = torch.randn(7, new.size(-1), generator=model.generator).to(new)
            return new

        drawn = []
        for _ in range(6):  # a sparse attention need not hear each vector for each target
            with every_output(spoil):
                drawn.append(model(source[7:].expand(8, -1), model.tokens(1, 6, target=True).expand(8, -1)))
        logits = torch.stack(drawn, dim=2)  # (8, 6 positions, 6 targets, vocabulary)
        table = [[max_difference(logits[j, i], logits[7, i]) for i in range(6)] for j in range(7)]
        moves = [*map(max, table), *map(max, zip(*table))]
        if max(moves) > model.tolerance:
            words = "the least that source tokens on one side move the vectors beside them is"
            if not (outcome := model.more_than_rounding(beside, words))[0]:
                return *outcome, "the encoder hears one side only: a causal mask in it"
            words = "the least that a vector of the memory moves logits, or that a position hears of any, is"
            return model.more_than_rounding(moves, words)
    raise NotApplicable("no module puts out one vector for each source token, of all tokens together")


@register_property(PROPERTIES, "ids are cut off or wrapped before a table, or looked up in the wrong one")
def tokens_are_told_apart(model: ModelUnderTest) -> Outcome:
    """No two tokens of a vocabulary, of up to eighty, have the same effect, at the end of the source or of the target.

    Proves: every id has a vector of its own. Cannot: show that it is the right one.
    """
    gaps = []
    for side in (False, True):
        tokens, pair = model.every_token(target=side).unique(), model.pair(1)
        rows = [sentence.repeat(len(tokens), 1) for sentence in pair]
        rows[side][:, -1] = tokens
        logits = model(*rows).flatten(1).double()
        gaps.append((F.pdist(logits, math.inf).min() / logits.std()).item() if logits.isfinite().all() else math.inf)
    return model.more_than_rounding(gaps, "the least that the logits for two tokens differ by is")


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


@register_property(PROPERTIES, "something mixes target positions apart from causal attention", "reshape")
def target_padding_on_the_right(model: ModelUnderTest) -> Outcome:
    """More padding at the end of the target changes no logits of real positions.

    Proves: nothing mixes target positions apart from causal attention, such as a mean over the length. Cannot: show
    that the target's padding mask is used: padding on the right lies in everybody's future, hidden in any case.
    """
    source, target = model.pair()
    longer = torch.cat([target, model.padding(3, 4)], dim=1)
    moved = max_difference(model(source, longer)[:, : target.size(1)], model(source, target))
    return model.at_most_rounding(moved, "four more padded target positions move the real logits by")


def _pad_tables(model: ModelUnderTest, source: Tensor, target: Tensor) -> list[Tensor]:
    """Those tables that look up all the padding of these sentences."""
    sizes = {model.source_vocab_size, model.target_vocab_size}
    looked_up: dict[Tensor, int] = defaultdict(int)

    def count(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(module, nn.Embedding) and module.num_embeddings in sizes:
            looked_up[module.weight] += sum(int((tokens == model.pad_id).sum()) for tokens in inputs)

    with register_module_forward_pre_hook(count):
        model(source, target)
    padding = sum(int((tokens == model.pad_id).sum()) for tokens in (source, target))
    tables = [weight for weight, times in looked_up.items() if times >= padding]
    if not tables:
        raise NotApplicable("no nn.Embedding of the vocabulary's size looks up this padding")
    return tables


def _moved_by_padding(
    model: ModelUnderTest,
    source: Tensor,
    target: Tensor,
    real: slice,
    word: int | None = None,
    old: Tensor | None = None,
) -> float:
    """How far the logits at real positions move when the vector of the padding token is another one.

    If a word and a target are given, it is that word's, and the move is from the logits for that target.
    """
    tables, before = _pad_tables(model, source, target), model(source, target if old is None else old)
    rows = [table[model.pad_id] for table in tables]
    saved = [row.detach().clone() for row in rows]
    with torch.no_grad():
        for table, row in zip(tables, rows):
            noise = torch.randn(row.shape, generator=model.generator, dtype=torch.float64) * 3
            row.copy_(noise if word is None else table[word])
        try:
            after = model(source, target)
        finally:
            for row, vector in zip(rows, saved):
                row.copy_(vector)
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

    Proves: the decoder combines both masks. Cannot: judge a model whose target embedding is no nn.Embedding, nor one
    that reads padding in the target like any word: that is right as long as padding stands on the right.
    """
    source, target = model.pair()
    left = torch.cat([model.padding(3, 3), target], dim=1)
    word = int(model.other(model.padding(1, 1), target=True))
    as_word = torch.where(left == model.pad_id, word, left)
    if _moved_by_padding(model, source, left, slice(3, None), word, as_word) <= model.tolerance:
        raise NotApplicable("in the target, padding is read like any word; it must stand on the right")
    moved = _moved_by_padding(model, source, left, slice(3, None))
    outcome = model.at_most_rounding(moved, "another PAD vector before the target moves the real logits by")
    return outcome if math.isfinite(moved) else (*outcome, "a padded query may see nothing, and its row becomes NaN")


@register_property(PROPERTIES, "sentences are mixed: a wrong reshape, a mask of the wrong rank, a batch norm", "batch")
def batch_independence(model: ModelUnderTest) -> Outcome:
    """A sentence gets the same logits alone as in a batch, and a permuted batch gives permuted logits.

    Proves: for these sizes rows do not mix. Batch and length are chosen different and then equal, because some
    code mixes rows only when sizes coincide. Cannot: try every coincidence.
    """
    worst = 0.0
    for rows, length, target_length in ((3, 7, 7), (4, 4, 4), (8, 8, 8), (2, 2, 2), (3, 4, 9), (5, 9, 1)):
        source, target = model.pair(rows, length, target_length)
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
    """Built for padding at the other end and, if it can be, for unequal vocabularies, the model is as right as before.

    Proves: neither number is fixed in the code. Cannot: judge a factory that builds for one choice only.
    """
    size = model.source_vocab_size
    pad_id = 0 if model.pad_id == size - 1 else size - 1
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
        source[0, 0], target[0, 0] = (n - 2 if pad_id == n - 1 else n - 1 for n in (size, target_size))
        try:
            other.logits(module, source, target)
        except Exception as error:
            refusal = one_line(error)
            if {size, target_size} <= {n for parameter in module.parameters() for n in parameter.shape}:
                return False, f"built for {size} and {target_size} tokens and padding {pad_id}, it raises {refusal}"
            continue  # it has one vocabulary
        for check in (
            source_sensitivity, source_padding_on_the_right, present_seen, causality, gradient_reaches_everything
        ):  # fmt: skip
            holds, evidence, *_ = check(other)
            if not holds and check(model)[0]:
                return False, f"for {size} and {target_size} tokens and padding {pad_id}, {evidence}"
        return True, f"for {size} and {target_size} tokens and padding {pad_id}, the model is as right as before"
    raise NotApplicable(f"the factory builds for no other padding and sizes: {refusal}")


def _swapped(model: ModelUnderTest, length: int, *, target: bool) -> Tensor:
    """A sentence; the same with another first token; and with its last token but one in the place of earlier ones."""
    word, end = model.tokens(1, 1, target=target), length - 2
    row = model.other(word.expand(1, length), target=target)
    row[0, end] = word
    apart = [j for j in range(1, end) if length <= LONGEST or not j & (j - 1)]  # 1, 2, 4, 8 … in a long sentence
    rows = row.repeat(2 + len(apart), 1)
    rows[1, 0] = model.other(row[0, :1], target=target)
    for number, j in enumerate(apart, 2):
        rows[number, [end - j, end]] = row[0, [end, end - j]]
    return rows


@register_property(PROPERTIES, "positions are missing, repeat or end too soon, or do not reach attention", "positions")
def positions_matter(model: ModelUnderTest) -> Outcome:
    """Swapping two source tokens changes the logits; swapping two target tokens, what self-attention says after them.

    A running mean, or a sparse attention, need not hear a swap. So it is enough if a target that repeats one word gets
    other logits at each place: without positions they would all be equal.

    Proves: order is seen on both sides, also far apart and behind the end of a table. Cannot: show that positions are
    right; nor judge the target apart from the logits, where no module puts out a vector for each of its tokens.
    """
    moves = []
    for length in model.lengths:
        rows = _swapped(model, length, target=False)
        logits = model(rows, model.tokens(1, 6, target=True).expand(len(rows), -1))
        moves += [max_difference(swapped, logits[0]) for swapped in logits[2:]]
        rows = _swapped(model, length, target=True)
        states = model.states(model.tokens(1, 5).expand(len(rows), -1), rows, length).values()
        mixed = (state for state in states if max_difference(state[1, 1:], state[0, 1:]) > model.tolerance)
        if (state := next(mixed, None)) is not None:
            heard = min(max_difference(swapped[-1], state[0, -1]) for swapped in state[2:])
            repeated = model(model.tokens(1, 5), model.tokens(1, 1, target=True).expand(1, length))[0]
            moves.append(max(heard, min(max_difference(*both) for both in itertools.pairwise(repeated))))
    return model.more_than_rounding(moves, "the least that swapping two tokens moves what should hear it is")


@register_property(PROPERTIES, "dropout, or other randomness, runs in evaluation mode", "eval")
def deterministic_in_evaluation(model: ModelUnderTest) -> Outcome:
    """Two calls in evaluation mode, with another one between them, give the same logits, bit for bit.

    Proves: no randomness after `eval()`, and no memory. Cannot: show that somebody calls `eval()`.
    """
    (source, target), other = model.pair(), model.pair()
    before, _ = model(source, target), model(*other)
    moved = max_difference(model(source, target), before)
    return moved == 0, f"two calls in evaluation mode differ by {model.describe(moved) if moved else 0}"


@register_property(PROPERTIES, "something is done in place, or a seed is set, in forward")
def calls_leave_no_trace(model: ModelUnderTest) -> Outcome:
    """A call changes neither the tokens that it is given nor, except by drawing, torch's random numbers, in both modes.

    Proves: so for these calls. Cannot: see other things that a model may change outside itself.
    """
    pair = model.pair()
    for module, mode in ((model.module, "evaluation"), (model.training_module, "training")):
        after = []
        for seed in (1, 2):
            given = [tokens.clone() for tokens in pair]
            with seeded(seed):
                model.logits(module, *given)
                after.append(torch.get_rng_state())
            if not all(map(torch.equal, given, pair)):
                return False, f"in {mode} mode a call writes into its tokens"
        if torch.equal(*after):
            return False, f"in {mode} mode a call sets the seed of torch's random numbers"
    return True, "tokens are as they were, and random numbers go on"


@register_property(PROPERTIES, "dropout modules exist but are never called, or are held in evaluation mode", "dropout")
def dropout_in_training(model: ModelUnderTest) -> Outcome:
    """Two calls in training mode differ, if the model has dropout; what is kept is scaled up, and is not too little.

    Proves: some dropout is active in training, and modules that drop keep the mean. Cannot: say whether it stands in
    the right places, nor judge the scale of dropout that is no module.
    """
    rates = [module.p for module in model.module.modules() if isinstance(module, nn.Dropout)]
    module, (source, target) = model.training_module, model.pair()
    with seeded(model.seed):
        before = model.logits(module, source, target)
        moved = max_difference(model.logits(module, source, target), before)
        training, evaluation = (_factors(module.train(mode), source, target) for mode in (True, False))
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
    return 0 < moved < math.inf, f"two calls in training mode differ by {model.describe(moved)}"


def _factors(model: nn.Module, source: Tensor, target: Tensor) -> dict[nn.Module, tuple[float, float]]:
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

    with torch.no_grad(), register_module_forward_hook(watch):
        model(source, target)
    return found


@register_property(PROPERTIES, "a fully masked row becomes NaN and poisons the gradient of every sentence", "empty-row")
def empty_sentences(model: ModelUnderTest) -> Outcome:
    """A sentence of nothing but padding in the batch leaves the others' logits and all gradients as they were.

    Proves: such a row adds nothing but rounding. Gradients that are themselves rounding are not compared. Cannot: say
    what the row itself should be.
    """
    source, target = model.pair()
    more_source, more_target = (torch.cat([t, model.padding(1, t.size(1))]) for t in (source, target))
    moved = max_difference(model(more_source, more_target)[:3], model(source, target))
    alone = together = dict[str, Tensor | None]()
    with suppress(NotApplicable):
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
    """The answers are not probabilities, and nothing sets some of them to zero, in evaluation and in training mode.

    Proves: they are not non-negative with sum 1, and are exactly 0 for all places or for none. Cannot: see
    probabilities that were scaled. Logarithms of probabilities pass, rightly: a softmax gives them back.
    """
    pair = model.pair()
    logits = model(*pair)
    total = logits.sum(dim=-1)
    probabilities = bool(logits.min() >= 0) and (total - 1).abs().max().item() < 1e-3
    range_ = f"answers lie between {logits.min():.2g} and {logits.max():.2g}"
    for answers, mode in ((logits, "evaluation"), (model.in_training(*pair, dropout=True), "training")):
        zero = (answers == 0).flatten(0, 1)
        if (zero.any(0) & ~zero.all(0)).any():
            words = f"in {mode}, {zero.double().mean():.0%} of the answers are exactly 0"
            return False, words, "a ReLU or dropout stands behind the output"
    holds = not probabilities and bool(logits.isfinite().all())
    return holds, range_ + (", and each row sums to 1" if probabilities else "")


@register_property(PROPERTIES, "one module object stands in several places: one layer repeated N times", "one-layer")
def parameters_shared_on_purpose(model: ModelUnderTest) -> Outcome:
    """No parameter is used under two names, except a table tied to another table of a vocabulary's size.

    Proves: nothing else is shared as an object, and no two objects share their memory. A module that has two names,
    and is called once, is used under one.
    Cannot: see a module that `forward` calls twice under one name, nor copies that merely start out equal.
    """
    calls, names = Counter[nn.Module](), defaultdict[nn.Parameter, dict[nn.Module | str, str]](dict)
    model(*model.pair())  # what is made at the first call is made
    with register_module_forward_pre_hook(lambda module, _: calls.update([module])):
        model(*model.pair())
    for name, parameter in model.module.named_parameters(remove_duplicate=False):
        owner = model.module.get_submodule(name.rpartition(".")[0])
        names[parameter].setdefault(owner if calls[owner] == 1 else name, name)
    sizes = {model.source_vocab_size, model.target_vocab_size}
    shared = [([*group.values()], parameter) for parameter, group in names.items() if len(group) > 1]
    wrong = [group for group, parameter in shared if not (parameter.dim() and parameter.size(0) in sizes)]
    if wrong:
        return False, f"{len(wrong)} parameters stand in several places, such as {' = '.join(wrong[0][:2])}"
    memory = defaultdict[int, list[str]](list)
    for name, parameter in model.build().named_parameters():  # as it was built: a cast unties them
        memory[parameter.data_ptr()].append(name)
    if twice := [group for at, group in memory.items() if at and len(group) > 1]:
        cause = "tied through .data: each optimiser step moves them twice, and a cast to another dtype unties them"
        return False, f"two parameters lie in the same memory: {' and '.join(twice[0][:2])}", cause
    tied = f"{len(shared)} {'table is' if len(shared) == 1 else 'tables are'} tied"
    return True, tied if shared else "no parameter stands in two places"


@register_property(PROPERTIES, "a residual connection is missing round attention or the feed-forward network")
def layers_have_residual_connections(model: ModelUnderTest) -> Outcome:
    """With any matrix in a stack of layers silenced, the source, or each position's own target token, is still heard.

    Proves: something leads round each of them. Layers are members of a list of one class, with three matrices or
    more; those of the encoder are those that the target does not move. And no two parts, silenced in all layers, cut
    off both the source and earlier target tokens. Cannot: say that the input is carried unchanged.
    """
    lists = [module for module in model.module.modules() if isinstance(module, nn.ModuleList | nn.Sequential)]
    alike = [each for each in lists if len({type(layer) for layer in each}) == 1]
    members = [(layer, _matrix_modules(layer)) for each in alike for layer in each if layer is not None]
    layers = [[module for module in inside if module is not layer] for layer, inside in members if len(inside) > 2]
    names = {module: name for name, module in model.module.named_modules()}
    source, target = model.pair(1)
    source = torch.cat([source, model.other(source), source])
    target = torch.cat([target, target, model.other(target, target=True)])

    def heard(silent: nn.Module | None) -> tuple[float, float]:
        with every_output(lambda _, module, output: output * 0 if module is silent else None):
            logits = model(source, target)
        return max_difference(logits[1], logits[0]), min(max_difference(logits[2, i], logits[0, i]) for i in range(6))

    def outputs(target: Tensor) -> dict[nn.Module, Tensor]:
        found: dict[nn.Module, Tensor] = {}
        with every_output(lambda _, module, output: found.update({module: output})):
            model(source[:1], target)
        return found

    first, second, whole = outputs(target[:1]), outputs(target[2:]), heard(None)
    moves: dict[str, float] = {}
    for layer in layers:
        called = [module for module in layer if module in first and module in second]
        in_decoder = any(max_difference(second[module], first[module]) > model.tolerance for module in called)
        if whole[in_decoder] > model.tolerance:  # else another property fails
            moves |= {names[module]: heard(module)[in_decoder] for module in called}
    if not moves:
        raise NotApplicable("no list of layers with modules inside that can be heard")
    weakest = min(moves, key=lambda name: moves[name])
    outcome = model.more_than_rounding(moves.values(), f"with {weakest} silenced, tokens move logits by")
    if outcome[0] and (part := _in_the_way(model, alike)):
        cause = "a residual connection adds what came before attention, not what came out of it"
        return False, f"with {part} silenced in every layer, neither the source nor an earlier token is heard", cause
    return outcome


def _in_the_way(model: ModelUnderTest, lists: Iterable[Iterable[nn.Module]]) -> str:
    """A part of the layers that cuts off source and past if it is silent in all of them; empty if there are not two.

    Where no part cuts off only one of the two, attention to both may be one, and its parts cut off both, rightly.
    """
    source, target = (sentence.repeat(3, 1) for sentence in model.pair(1))
    source[1], target[2, 0] = model.other(source[1]), model.other(target[2, :1], target=True)

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


@register_property(PROPERTIES, "the feed-forward network has no activation function")
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
        model(*model.pair())
    for first, second in pairs:
        x, y = (torch.randn(given[first].shape, generator=model.generator).to(given[first]) for _ in range(2))
        with torch.no_grad():
            one, other, middle = (second(first(vectors)) for vectors in (x, y, (x + y) / 2))
        if max_difference((one + other) / 2, middle) <= model.tolerance:
            return False, f"nothing stands between {names[first]} and {names[second]}: the two are one linear map"
    return True, "no map that widens goes straight to one that goes back"


@register_property(PROPERTIES, "the heads' weights are averaged, or those of one head are used for all")
def heads_attend_separately(model: ModelUnderTest) -> Outcome:
    """Where a model says that it has several heads, not all of them give a token the same weight.

    Proves: values are read with more than one set of weights (Vaswani et al. 2017, section 3.2.2). The values are the
    last channels of a map's output; what is 0 to 1 and differs between positions is taken for weights. Cannot: judge
    attention that is one module, or show that each head is a good one.
    """
    maps, gaps = _matrix_modules(model.module), []
    for values in (module for module in maps if _heads_said(model.module, module) > 1):
        for weights in _with_one_value(model, maps, values):
            others = weights[[0, 1, 3, 4, 5]]
            mixed = others.max() - others.min() > model.tolerance and weights.size(1) > 1
            if mixed and weights.min() >= 0 and weights.max() <= 1 + model.tolerance:
                gaps.append((weights - weights[:, :1]).abs().max().item())
    if not gaps:
        raise NotApplicable("no map to values was found in attention that says it has several heads")
    return model.more_than_rounding(gaps, "the most that heads of an attention differ by, in a token's weight, is")


def _with_one_value(model: ModelUnderTest, maps: list[nn.Module], values: nn.Module) -> list[Tensor]:
    """What the maps are given, (6, channels), if one of them puts out 1 at the third of six tokens and 0 elsewhere."""
    given: list[Tensor] = []

    def replace(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        if module is not values or not inputs or not isinstance(output, Tensor) or output[..., 0].numel() != 6:
            return None
        new = output.clone().view(6, -1)
        new[:, -inputs[0].size(-1) :] = (torch.arange(6) == 2)[:, None].to(new)
        return new.view(output.shape)

    def note(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if module in maps and inputs and isinstance(inputs[0], Tensor) and inputs[0][..., 0].numel() == 6:
            given.append(inputs[0].reshape(6, -1))

    with register_module_forward_hook(replace), register_module_forward_pre_hook(note):
        model(*model.pair(1, 6, 6))
    return given


def _heads_said(module: nn.Module, part: nn.Module) -> int:
    """How many heads the innermost module round a part says that it has, by an attribute's name; 0 if none says so."""
    said = 0
    for owner in module.modules():  # from the outside to the inside
        if part in owner.modules():
            keys = [key for key in dir(owner) if key.endswith(("heads", "nhead", "n_head", "num_head"))]
            said = max((n for key in keys if isinstance(n := getattr(owner, key, None), int)), default=0) or said
    return said


@register_property(PROPERTIES, "pre-norm layers without a norm behind the last of them: what they add up grows")
def a_norm_stands_at_the_end(model: ModelUnderTest) -> Outcome:
    """If the maps inside do not feel how large the embeddings are, the logits do not feel it either.

    Proves: what layers add up is normalised before it becomes logits (Wang et al. 2019, section 2.2; Xiong et al. 2020,
    table 1). Cannot: judge the norm of the memory, a model without norms, or one that normalises its embeddings.
    """
    pair = model.pair()
    small, large = (_spreads(model, pair, factor) for factor in (1e3, 1e6))
    logits = large.pop(None) / (small.pop(None) or 1.0)
    growth = sorted(large[each] / small[each] for each in small if 0 < small[each] != large.get(each, 0) > 0)
    if not math.isfinite(logits):
        return False, "if embeddings are large, logits are not finite"
    if not growth or (logits > 30 and growth[len(growth) // 2] > 30):
        raise NotApplicable("no nn.Embedding of words, or no maps that read normalised vectors")
    return logits < 30, f"if embeddings are a thousand times as large, logits are {logits:.2g} times as large"


def _spreads(model: ModelUnderTest, pair: tuple[Tensor, Tensor], factor: float) -> dict[nn.Module | None, float]:
    """The spread of what each map puts out, and of the logits under None, if the words' vectors are multiplied."""
    maps, words = {*_matrix_modules(model.module)}, [tokens.flatten().sort().values for tokens in pair]
    found: dict[nn.Module | None, float] = {}

    def change(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        if module in maps and isinstance(output, Tensor):
            found[module] = output.std().item()
        if not (isinstance(module, nn.Embedding) and inputs and isinstance(inputs[0], Tensor)):
            return None
        looked_up = inputs[0].flatten().sort().values  # a table of positions looks up other numbers
        return output * factor if any(torch.equal(looked_up, tokens) for tokens in words) else None

    with register_module_forward_hook(change):
        found[None] = model(*pair).std().item()
    return found


@register_property(PROPERTIES, "a part of the model is built but not used, or cut off from the loss", "dead")
def gradient_reaches_everything(model: ModelUnderTest) -> Outcome:
    """Every parameter gets a gradient: each quarter of a linear map, each row that is looked up in a table of words.

    Proves: nothing is cut off, and nothing random is frozen. Vectors whose gradient is 0 but for rounding are excused:
    the bias of the keys shifts all scores of a row, which softmax ignores. What one batch does not reach, as an expert
    that nobody chose or a far distance, gets more sentences, other seeds and a longer one. A matrix that is constant
    must get one as it was built, in the first steps. Cannot: say that a part does its work.
    """
    try:
        model.gradients(*model.pair())
    except NotApplicable as reason:
        return False, str(reason), "requires_grad is False, or forward runs under no_grad() or inference_mode()"
    if stuck := _stuck_at_the_start(model):
        cause = "matrices start at a constant and block each other's gradient"
        return False, f"{len(stuck)} constant matrices get no gradient in the first steps, such as {stuck[0]}", cause
    parameters, sizes = dict(model.module.named_parameters()), defaultdict[str, float](float)
    maps = {f"{name}.weight" for name, module in model.module.named_modules() if isinstance(module, nn.Linear)}
    seeds = [dict(model.build(seed).named_parameters()) for seed in (model.seed, model.seed + 1)]
    if frozen := [n for n, p in seeds[0].items() if not p.requires_grad and not torch.equal(p, seeds[1][n])]:
        return False, f"{len(frozen)} parameters are random and frozen, such as {frozen[0]}", "requires_grad is False"
    longest = max(model.lengths)
    for number, rows in enumerate((3, 16, 16, 16, 1)):
        module = model.module if number < 2 else model.build(model.seed + number)
        pair = model.pair(rows) if number < 4 else model.pair(rows, longest, longest)
        for name, gradient in model.gradients(*pair, module=module).items():
            parts = [] if gradient is None else [gradient]
            parts = [part for g in parts for i in (0, 1) for part in g.chunk(4, i)] if name in maps else parts
            sizes[name] = max(sizes[name], min((part.abs().max().item() for part in parts), default=0.0))
        typical = sorted(sizes.values())[len(sizes) // 2]
        silent = [name for name, size in sizes.items() if not size > 1e-10 * typical]
        dead = [name for name in silent if parameters[name].dim() > 1 or not sizes[name] > 0]
        if not dead:
            break
    if dead:
        return False, f"{len(dead)} of {len(sizes)} parameters get no gradient, at least in part, such as {dead[0]}"
    for name, words in _deaf_rows(model).items():
        cause = "padding_idx is not pad_id, tokens are cut off before the table, or its rows are multiplied by zeros"
        return False, f"rows of {name} that are looked up get no gradient, at least in part: {words[:5]}", cause
    excused = f"; for {len(silent)} of them, as for a key's bias, it is 0 but for rounding" if silent else ""
    return True, f"all {len(sizes)} parameters get a gradient{excused}"


def _stuck_at_the_start(model: ModelUnderTest) -> list[str]:
    """The matrices that start at a constant, such as 0, and get no gradient at all in the first five steps of Adam."""
    module = model.build()
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    constant = [*constant_matrices(module)]
    if not constant:
        return []
    optimizer = torch.optim.Adam(parameters.values())
    for _ in range(5):
        gradients = model.gradients(*model.pair(16), module=module)
        constant = [name for name in constant if (g := gradients[name]) is not None and not g.any()]
        for name, parameter in parameters.items():
            parameter.grad = gradients[name]
        optimizer.step()
    return constant


def _deaf_rows(model: ModelUnderTest) -> dict[str, list[int]]:
    """The tables that look up all tokens of one side, and which of these rows get no gradient, if only in part."""
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
            if deaf := [word for word in sorted(words) if not gradient[word].all()]:
                found[name] = deaf
    return found


@register_property(PROPERTIES, "part of the computation is cut off from its gradient: detach(), .data or no_grad()")
def gradient_is_the_derivative(model: ModelUnderTest) -> Outcome:
    """A small step along the gradient, and one against it, change the loss as the gradient says, in three batches.

    In each batch a step that is 100 times smaller will do as well: the larger one may meet a jump of the loss.

    Proves: it is the gradient of what the module computes, as far as it goes: what gets no gradient does not move.
    Cannot: see a cut that turns the gradient by less than 11 degrees, or makes it shorter by less than a fiftieth.
    """
    step, off = (model.tolerance / 1e4) ** 0.4, []  # the tolerance is 10,000 roundings; larger steps feel the curvature
    parameters = dict(model.module.named_parameters())
    for _ in range(3):
        pair, losses = model.pair(), []
        found = {name: g.to_dense() for name, g in model.gradients(*pair).items() if g is not None}
        length = torch.stack([g.norm() for g in found.values()]).norm()
        before = {name: parameters[name].detach().clone() for name in found}
        with torch.no_grad():  # in place: after `torch.func.functional_call` a module with two names is another one
            for by in (step, -step, step / 100, -step / 100):
                for name, g in found.items():
                    parameters[name].copy_(before[name] + by / length * g)
                losses.append(model.loss(model.module(*pair)))
            for name, parameter in before.items():
                parameters[name].copy_(parameter)
        large, small = (losses[0] - losses[1]) / step, 100 * (losses[2] - losses[3]) / step
        off.append(min(abs(change / (2 * length) - 1).item() for change in (large, small)))
    if all(share < 0.02 for share in off):
        return True, "a small step along the gradient moves the loss as the gradient says"
    return False, f"a small step along the gradient moves the loss by an amount that is {max(off):.0%} off"


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
    return not found, f"with a target of one token, {which}"


@register_property(PROPERTIES, "a constant such as -1e9, or a table that is no buffer, does not fit the dtype", "half")
def every_dtype(model: ModelUnderTest) -> Outcome:
    """float64, bfloat16 and float16 run and agree with float32, to 2e-5, 0.3 and 0.05 of the logits' spread.

    Proves: no dtype is assumed in `forward`, and float32 is not narrowed. Cannot: promise that float16 can train.
    """
    pairs, single, found = [model.pair(1) for _ in range(4)], model.build().float(), []
    for source, _ in pairs:
        source[0, -2:] = model.pad_id
    with LowerPrecision() as lower:
        references = [model.logits(single, *pair) for pair in pairs]
    if half := ", ".join(str(dtype) for dtype in lower.found if dtype.itemsize < 4):
        return False, f"in float32, some of it is computed in {half}", "a cast to half precision"
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


def _on_meta(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_meta


@register_property(PROPERTIES, "a tensor is a plain attribute, or is made in forward without device=", "buffer")
def buffers_move_along(model: ModelUnderTest) -> Outcome:
    """What the output depends on is a parameter or a buffer, and the model runs on another device.

    A tensor that a call makes anew on the other device is no fault, such as a mask kept for each device.

    Proves: what modules keep moves, and, on the device `meta`, that sums and embeddings in `forward` meet nothing made
    on the CPU. Cannot: see the latter in matrix products, which do not compare devices there, nor at all if the model
    looks at values, which `meta` has not.
    """
    source, target = model.pair()
    plain, module = plain_tensors(model.module, lambda: model(source, target)), model.build()
    model.logits(module, source, target)
    moved, failure = "the model runs on another device", ""
    try:
        with register_module_forward_pre_hook(indices_beside_table):
            model.logits(module.to("meta"), source.to("meta"), target.to("meta"))
        plain = [name for name in plain if not any(map(_on_meta, tree_leaves(attrgetter(name)(module))))]  # made anew
    except Exception as error:
        failure = one_line(error)
        moved = "no other device was tried, as the model looks at values"
    if plain:
        return False, f"plain tensors: {', '.join(plain[:3])}"
    if "not on the expected device" in failure:
        return False, f"moved to another device, it does not run: {failure}"
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
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise NotApplicable("nothing in the model gets a gradient")
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
    "memory is whole": "deterministic in evaluation, source sensitivity, batch independence",
    "tokens are told apart": "source sensitivity, present seen, batch independence",
    "batch independence": "deterministic in evaluation",
    "sizes and padding are those asked for": "deterministic in evaluation, batch independence",
    "positions matter": "causality, source sensitivity, present seen, tokens are told apart, batch independence",
    "layers have residual connections": "source sensitivity, present seen",
    "empty sentences": "deterministic in evaluation, batch independence",
    "gradient reaches everything": "deterministic in evaluation, source sensitivity, present seen, batch independence",
    "first token sees itself": "causality",
    "gradient is the derivative": "deterministic in evaluation, gradient reaches everything",
    "every dtype": "deterministic in evaluation, buffers move along",
    "state dict is complete": "deterministic in evaluation",
    "unpredictable stays unpredictable": "causality",
    "copying is learnt": "causality, source sensitivity, positions matter, present seen, logits not probabilities",
}
