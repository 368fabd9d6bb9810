# Generated from chapters/E_suite.md: edit it there and `make export`, or here and `make sync`.

"""Who sees whom: what the logits at a position depend on."""

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from transformer_lib.checks.report import (
    NotApplicable,
    Outcome,
    Property,
    if_it_runs,
    is_refusal,
    raised_at,
    raised_place,
    register_property,
)
from transformer_lib.checks.subject import LONGEST, Attention, ModelUnderTest, every_output, max_difference
from transformer_lib.files import one_line

SIGHT: list[Property] = []


def _influence(
    model: ModelUnderTest, inputs: tuple[Tensor, ...], places: Iterable[int], *, side: int
) -> dict[int, list[float]]:
    """How far the logits at each position move when another token stands at a place of one side, by the place."""
    before, moves = model(*inputs), {}
    for place in places:
        after = model(*_changed(model, inputs, place, side=side))
        moves[place] = [max_difference(after[:, i], before[:, i]) for i in range(after.size(1))]
    return moves


def _changed(model: ModelUnderTest, inputs: tuple[Tensor, ...], place: int, *, side: int) -> list[Tensor]:
    """The inputs with other tokens at one place of one side."""
    changed = [tokens.clone() for tokens in inputs]
    changed[side][:, place] = model.other(inputs[side][:, place], side=side)
    return changed


def _few(length: int) -> Iterable[int]:
    """All places of a short sentence, some of a long one."""
    return range(length) if length <= LONGEST else (length // 2, length - 1)


LEAK = "attention reads later tokens: the causal mask is missing, inverted, shifted, not -inf or behind the softmax"
HIDDEN = "the mask hides the past"
INVERTED = "the padding mask is inverted: padding gets weight, and what is real gets none"
ONE_WAY = "positions hear the source up to their own place only, as with a causal mask on cross-attention"
BY_ROW = "a sentence is given positions along the batch axis, or slopes of heads"


@register_property(SIGHT, LEAK, "causal", needs="causal")
def causality(model: ModelUnderTest) -> Outcome:
    """Logits at position i do not change when a target token after i does, in evaluation and in training mode.

    Proves: for these weights and inputs, no information flows backwards, to rounding; training mode is tried with
    random numbers that repeat. Cannot: show a leak that only other weights open. The later token is replaced at
    random: a constant can vanish in a layer normalisation.
    """

    def leak(call: Callable[..., Tensor], lengths: Iterable[int]) -> float:
        worst = [0.0]
        for length in lengths:  # one sentence: what a batch mixes is another property's business
            before = call(*(inputs := model.inputs(1, 7, length)))
            for place in _few(length):
                worst.append(model.apart(call(*_changed(model, inputs, place, side=-1)), before, slice(place)))
        return max(worst)

    words = "changing later target tokens moves earlier logits by"
    worst, training, inputs = leak(model, model.lengths), 0.0, model.inputs(1)
    if max_difference(model.in_training(*inputs), model.in_training(*inputs)) == 0:
        training = leak(model.in_training, model.lengths)
    for mode, here, there in (("evaluation", worst, training), ("training", training, worst)):
        if here > model.tolerance >= there:
            cause = f"something, such as the mask, is wrong in {mode} mode only"
            return False, f"{words} {model.describe(here)}, in {mode} mode only", cause
    outcome: Outcome = model.at_most_rounding(worst, words)
    leaks = {n: leak(model, [n]) > model.tolerance for n in model.lengths if not outcome[0]}
    length = next((n for n in leaks if leaks[n]), 0)
    if length and (right := [n for n in leaks if not leaks[n]]):
        outcome = *outcome[:2], f"the mask is kept from another call or has a fixed size: {right[0]} tokens go well"
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    if outcome[0] or (length and model.heals(lambda: leak(model, [length]), later)):
        return outcome
    inputs = model.inputs(1, 7, 11)
    return *outcome[:2], model.norm_over_positions(_changed(model, inputs, 10, side=-1), inputs, slice(10))


@register_property(SIGHT, HIDDEN, "stale", needs="causal")
def present_seen(model: ModelUnderTest) -> Outcome:
    """Logits at position i change when target token i does, and when token i - 1 does.

    Proves: both reach position i. Cannot: show that they come through attention; the present has a residual
    connection as well.
    """
    table = _influence(model, model.inputs(), range(6), side=-1)
    moves = {(place, i): table[place][i] for i in range(6) for place in (i, i - 1) if place >= 0}
    weakest = "target token {} does not reach position {}".format(*min(moves, key=moves.__getitem__))
    words = "the least that a target token moves logits that may see it is"
    outcome = model.more_than_rounding(moves.values(), words, weakest)
    late = [next((i for i, move in enumerate(row) if move > 0), 6) - place for place, row in table.items()]
    shifted = "the target is shifted inside, too: it comes shifted already, and must not be shifted twice"
    own = model.weighed(6, *model.inputs())
    if min(late) > 0 and late[0] < 6 and all(seen.diagonal().all() for seen in own):
        return *outcome[:2], shifted
    return outcome if outcome[0] or (own and not any(seen.tril(-1).any() for seen in own)) else (*outcome, "")


@register_property(SIGHT, "something depends on the length of the sentence", needs="causal")
def a_prefix_is_enough(model: ModelUnderTest) -> Outcome:
    """The logits of the first tokens alone are those of the same tokens in a longer sentence.

    Proves: the length does not matter, which no change of a later token can show. Cannot: see beyond the lengths.
    """
    worst = 0.0
    for length in model.lengths:
        *source, target = model.inputs(2, 7, length)
        whole = model(*source, target)
        for part in sorted({model.shortest, 2, 5, length // 2, length - 1}):
            worst = max(worst, model.apart(model(*source, target[:, :part]), whole, slice(part)))
    return model.at_most_rounding(worst, "target tokens alone and with others behind them get logits apart by")


@register_property(SIGHT, "a mask has holes, or is cut at some length", needs="causal")
def the_past_is_seen(model: ModelUnderTest) -> Outcome:
    """Each position sees every target token before it, or a window of the last ones, at least the one before it.

    A place counts as seen if one of four sentences shows it, because some attention chooses the best keys only.

    Proves: the mask has no holes that no other layer fills. Cannot: say how wide a window should be; its width is told.
    """
    length = LONGEST if model.max_len is None else min(model.max_len, 2 * LONGEST)
    seen = torch.zeros(length, length, dtype=torch.bool)
    for _ in range(4):
        *source, target = model.inputs(1, 7, length)
        inputs = [*(x.expand(length + 1, -1) for x in source), model.each_changed(target, side=-1)]
        logits = model(*inputs)
        seen |= (logits[:length] - logits[length]).abs().amax(dim=-1).T > model.tolerance / 100
    ahead = seen.triu(1).any()
    seen = seen.tril()
    back = torch.arange(length)[:, None] - torch.arange(length)
    if seen.sum() == length * (length + 1) // 2:
        return True, f"each of {length} target positions sees all before it"
    reach, own = int(back[seen].max()) if seen.any() else 0, model.weighed(length, *inputs)
    if reach == 0:
        words = "but later ones" if ahead else "at most itself"
        hidden = own and not any(weighed.tril(-1).any() for weighed in own)
        return False, f"no target position sees an earlier one, {words}", HIDDEN if hidden else ""
    if torch.equal(seen, (back <= reach).tril()):
        return True, f"a window: target positions see {reach} tokens back"
    row, column = (~seen).tril().nonzero()[0].tolist()
    words = f"target position {row} does not see position {column}, and no window says so"
    return (False, words) if own and not any(weighed[row, column] for weighed in own) else (False, words, "")


def weighs_padding_only(model: ModelUnderTest, real: slice, *inputs: Tensor, **options: Tensor) -> bool:
    """Whether some attention gives weight to padding, and none to what is real."""
    found = [seen.any(dim=0) for seen in model.weighed(inputs[0].size(1), *inputs, **options)]
    return any(keys.any() and not keys[real].any() for keys in found)


@register_property(SIGHT, INVERTED, "blind", needs="whole")
def source_sensitivity(model: ModelUnderTest) -> Outcome:
    """Each real source token has an effect on each target position, in a batch with padding.

    In an encoder it need reach no farther than the farthest that any token does: that may be a window.

    Proves: the decoder hears every source position from every position of its own. Cannot: show that it hears the
    right thing.
    """
    rows, one_way = list[list[float]](), True
    for length in model.lengths:
        inputs = model.inputs(3, length, min(length, LONGEST))
        real = length - 2 if length <= LONGEST else length
        inputs[0][:, real:] = model.pad_id
        heard = _influence(model, inputs, [j for j in _few(length) if j < real], side=0)
        one_way &= all(max(row[:j], default=0) <= model.tolerance for j, row in heard.items())
        if len(model.sides) == 1:
            moved = [abs(i - j) for j, row in heard.items() for i in range(real) if row[i] > model.tolerance]
            reach = max([1, *moved])
            heard = {j: row[max(0, j - reach) : min(j + reach + 1, real)] for j, row in heard.items()}
        rows += heard.values()
    moves = [move for row in rows for move in row]
    words = "the least that one real source token moves the logits of a position is"
    outcome = model.more_than_rounding(moves, words, "some source token does not reach some position")
    if outcome[0]:
        back = torch.arange(11)[:, None] - torch.arange(11)
        for seen in (x for x in model.weighed(11, *model.inputs(1, 11, 11)) if len(x) == 11 and x.any()):
            left, right = int(back[seen].max()), -int(back[seen].min())
            if 0 < left != right > 0:
                asked = f"some attention reaches {left} tokens back and {right} ahead: is its window meant to be so?"
                return True, f"{outcome[1]}; {asked}"
        return outcome
    if one_way and max(moves) > model.tolerance:
        return *outcome, ONE_WAY if model.has("both") else ONE_WAY.removesuffix(" on cross-attention")
    whole, *others = model.inputs(3, 7, 7)
    whole[:, 5:] = model.pad_id
    return outcome if weighs_padding_only(model, slice(5), whole, *others) else (*outcome, "")


@register_property(SIGHT, ONE_WAY, needs="both")
def memory_is_whole(model: ModelUnderTest) -> Outcome:
    """The memory's vectors hear tokens on both sides; each is heard somewhere, and each target position hears some.

    Proves: the encoder reads in both directions, and cross-attention reaches every place. The memory is the last
    output of a module that has a vector for each source token, mixes them, matters, and does not depend on the target.
    Cannot: judge a model without such a module, or see further than the neighbours. It does not ask every place to hear
    every other: a sparse attention leaves some out.
    """
    places, source = torch.arange(7), model.each_changed(model.tokens(1, 7), side=0)
    targets = [model.tokens(1, 6, side=-1).expand(8, -1) for _ in range(2)]
    states, again = (model.states(7, source, target) for target in targets)
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
                drawn.append(model(source[7:].expand(8, -1), model.tokens(1, 6, side=-1).expand(8, -1)))
        logits = torch.stack(drawn, dim=2)  # (8, 6 positions, 6 targets, vocabulary)
        table = [[max_difference(logits[j, i], logits[7, i]) for i in range(6)] for j in range(7)]
        moves = [*map(max, table), *map(max, zip(*table))]
        if max(moves) > model.tolerance:
            words = "a source token moves the vectors of the memory on both sides of it by at least"
            if not (outcome := model.more_than_rounding(beside, words))[0]:
                return *outcome, "the encoder hears one side only, as with a causal mask in it"
            words = "each vector of the memory moves some logits, and each position's logits hear some, by at least"
            outcome = model.more_than_rounding(moves, words)
            one_way = all(max(table[j][:j], default=0) <= model.tolerance for j in range(7))
            return outcome if outcome[0] or one_way else (*outcome, "")
    raise NotApplicable("no module puts out one vector for each source token, of all tokens together")


@register_property(SIGHT, "ids are cut off or wrapped before a table")
def tokens_are_told_apart(model: ModelUnderTest) -> Outcome:
    """No two tokens of a vocabulary, of up to eighty, have the same effect, at the end of the source or of the target.

    Proves: every id has a vector of its own. Cannot: show that it is the right one.
    """
    gaps, fewer = [], list[bool]()
    for side in range(len(model.sides)):
        looked = list[Any]()
        tokens = model.every_token(side=side).unique()
        rows = [sentence.repeat(len(tokens), 1) for sentence in model.inputs(1)]
        rows[side][:, -1] = tokens
        with register_module_forward_pre_hook(lambda _, given, at=looked: at.append(given[0]) if given else None):
            logits = model(*rows).flatten(1).double()
        ids = [x for x in looked if isinstance(x, Tensor) and not x.is_nested and x.shape == rows[side].shape]
        fewer += [1 < len(x[:, -1].unique()) < len(tokens) for x in ids]
        gaps.append((F.pdist(logits, math.inf).min() / logits.std()).item() if logits.isfinite().all() else math.inf)
    words = "the least that the logits for two tokens differ by is"
    outcome = model.more_than_rounding(gaps, words, "two tokens get the same logits")
    return outcome if outcome[0] or any(fewer) else (*outcome, "")


@register_property(SIGHT, BY_ROW, "batch")
def batch_independence(model: ModelUnderTest) -> Outcome:
    """A sentence gets the same logits alone as in a batch, and a permuted batch gives permuted logits.

    Proves: for these sizes rows do not mix, and the model runs. Batch and length are chosen different and then equal,
    because some code mixes rows only when sizes coincide. Cannot: try every coincidence.
    """
    if told := runs_with_some_only(model, model.module):
        return False, told, UNSQUEEZED
    moves = []
    for rows, length, target_length in ((3, 7, 7), (4, 4, 4), (8, 8, 8), (2, 2, 2), (3, 4, 9), (5, 9, 1)):
        inputs = model.inputs(rows, length, max(target_length, model.shortest))
        inputs[0][0, 1:][-1:] = model.pad_id  # a sentence of one token keeps it
        together = model(*inputs)
        for order in (*torch.arange(rows)[:, None], torch.randperm(rows, generator=model.generator)):
            moves.append(model.apart(model(*(tokens[order] for tokens in inputs)), together, old_rows=order))
    outcome = model.at_most_rounding(max(moves), "alone and in a batch, logits differ by")
    if outcome[0] or _depends_on_the_row_only(model):
        return outcome
    return *outcome, BATCH_FOR_LENGTH if model.weighed(11, *model.inputs(11, 7, 7)) else ""


UNSQUEEZED = "a mask lacks the axis of the heads: it fits one sentence, or as many as there are heads"
BATCH_FOR_LENGTH = "the batch is taken for the length: batch_first=True, or a transpose, is missing"


def runs_with_some_only(model: ModelUnderTest, module: nn.Module) -> str:
    """With which numbers of sentences sizes fit, if not with all, and what the model raises; else empty."""
    errors: dict[int, str] = {}
    for rows in (1, 2, 3, 4, 5, 6, 8):
        try:
            model.logits(module, *model.inputs(rows))
        except Exception as error:
            if is_refusal(error) or "must match" not in str(error):  # as sizes that do not broadcast
                return ""
            errors[rows] = one_line(error) + raised_at(error)
            model.at = raised_place(error)
    runs = [str(rows) for rows in (1, 2, 3, 4, 5, 6, 8) if rows not in errors]
    if not errors or not runs:
        return ""
    return f"with {' or '.join(runs)} sentences it runs, and with {min(errors)} it raises {errors[min(errors)]}"


def _depends_on_the_row_only(model: ModelUnderTest) -> bool:
    """Whether a sentence's answer depends on the number of its row, and on no other sentence."""
    inputs, others = model.inputs(3), model.inputs(3)
    for tokens, other in zip(inputs, others):
        other[1] = tokens[1]
    one, beside_others, alone = model(*inputs)[1], model(*others)[1], model(*(tokens[1:2] for tokens in inputs))[0]
    return max_difference(beside_others, one) <= model.tolerance < max_difference(alone, one)


def _nearly_sinusoids(module: nn.Module) -> str:
    """What is odd about a constant table whose columns are sines and cosines of the positions; empty if nothing is."""
    kept = [(f"{name}.{key}".lstrip("."), x) for name, part in module.named_modules() for key, x in vars(part).items()]
    frozen = [(name, p.data) for name, p in module.named_parameters() if not p.requires_grad]
    for name, table in [*module.named_buffers(), *kept, *frozen]:
        shape = [n for n in table.shape if n > 1] if isinstance(table, Tensor) else []
        if len(shape) != 2 or min(shape) < 4 or not table.is_floating_point() or table.is_meta or shape[1] % 2:
            continue
        x = table.detach().double().reshape(shape)
        places = torch.arange(len(x)).double()[:, None]
        sines = [c for c in range(shape[1]) if abs(x[0, c]) < 1e-6 and 0 < x[1, c] < 1]
        frequencies = x[1, sines].asin()
        if len(sines) != shape[1] // 2 or (x[:, sines] - (places * frequencies).sin()).abs().max() > 1e-2:
            continue
        cosines = x[:, [c for c in range(shape[1]) if c not in sines]]
        if (cosines[0] - 1).abs().max() > 1e-6:
            continue
        shown = ", ".join(f"{w:.2g}" for w in frequencies[:3])
        if (cosines - (places * frequencies).cos()).abs().max() > 1e-2:
            return f"the columns of {name} are sines and cosines, but of other frequencies: sines of {shown} …"
        steps = (frequencies[1:] / frequencies[:-1]).log()
        if len(steps) > 1 and (steps - steps.mean()).abs().max() > 0.02 * steps.mean().abs():
            return f"the frequencies of {name} are no powers of one number: {shown} …"
    return ""


def _heard_otherwise(model: ModelUnderTest) -> tuple[str, str] | None:
    """What is odd, and its mend, if a sentence of one word is one to the first attention, which alone adds positions.

    Then scores should depend on distances, but for what each query adds or multiplies, and values should be all alike.
    """
    early, later, (*others, tokens) = list[Tensor](), list[Tensor](), model.inputs(1, 11, 11)

    def keep(_: int, module: nn.Module, output: Tensor) -> None:
        if output.shape[:2] == (1, 11) and output.dim() == 3 and output.size(2) != 11:  # 11: weights of one head
            (later if attention.given else early).append(output[0])

    with if_it_runs(), Attention() as attention, every_output(keep):
        model(*others, tokens[:, :1].expand(1, 11))
    if not (early and later and attention.given and attention.given[0].shape[-2:] == (11, 11)):
        return None
    if any(max_difference(x, x[:1].expand_as(x)) > 1e-4 for x in early):
        return None
    scores = attention.given[0].flatten(0, -3)
    seen = scores > -1e4
    both = seen[:, 1:, 1:] & seen[:, :-1, :-1]

    def off(x: Tensor) -> float:
        return ((x[:, 1:, 1:] - x[:, :-1, :-1])[both].abs().max() / x[seen].abs().max()).item()

    own = scores.diagonal(0, 1, 2)[..., None]  # a softmax does not feel what all scores of a query have in common
    if both.any() and min(off(scores - own), off(scores / own)) > 1e-4:
        odd = "of one word again and again, scores depend on more than the distance of query and key: is that meant?"
        return odd, "turn queries and keys in one way, in pairs of the same channels"
    if max_difference(later[0], later[0][:1].expand_as(later[0])) > 1e-4:
        odd = "of one word again and again, attention answers otherwise from place to place: is that meant?"
        return odd, "turn queries and keys, but no values"
    return None


def _swapped(model: ModelUnderTest, length: int, *, side: int) -> Tensor:
    """A sentence; the same with another first token; and with its last token but one in the place of earlier ones."""
    word, end = model.tokens(1, 1, side=side), length - 2
    row = model.other(word.expand(1, length), side=side)
    row[0, end] = word
    apart = [j for j in range(1, end) if length <= LONGEST or not j & (j - 1)]  # 1, 2, 4, 8 … in a long sentence
    rows = row.repeat(2 + len(apart), 1)
    rows[1, 0] = model.other(row[0, :1], side=side)
    for number, j in enumerate(apart, 2):
        rows[number, [end - j, end]] = row[0, [end, end - j]]
    return rows


def _never_heard(
    model: ModelUnderTest, length: int, places: list[int], at: Any, beside: Callable[..., list[list[Tensor]]]
) -> bool:
    """Whether in ten random sentences a swap of two places is not heard at the end, though in some each place is."""
    (one, other), both = places, []
    for _ in range(10):
        sentence = model.tokens(1, length, side=-1)
        sentence[:, other] = model.other(sentence[:, one], side=-1)
        rows = sentence.repeat(4, 1)  # as it is; swapped; another word in the one place; and in the other
        rows[1, [one, other]] = sentence[0, [other, one]]
        rows[2, one], rows[3, other] = model.other(sentence[0, [one, other]], side=-1)
        states = [model.states(length, *row).get(at) for row in beside(rows, side=-1)]
        found = [max_difference(x[0, -1], states[0][0, -1]) for x in states if x is not None and states[0] is not None]
        if len(found) < 4 or found[1] > model.tolerance:
            return False
        both.append(min(found[2:]))
    return max(both) > model.tolerance


REPEATED = "positions repeat or end too soon: wrapped, cut off, or equal rows of their table"


@register_property(SIGHT, "positions are missing, repeat or end too soon, or do not reach attention", "positions")
def positions_matter(model: ModelUnderTest) -> Outcome:
    """Swapping two source tokens moves the logits, swapping two target tokens what self-attention says after them.

    Of an encoder, the logits of the other tokens must move: those of the two would be swapped without positions, too.
    If a source in reverse order gets the same answers in reverse order, the evidence asks whether that is meant.
    A running mean, or a sparse attention, need not hear a swap. So it is enough if a target that repeats one word gets
    other logits at its end from place to place: without positions they would all be equal. A decoder without positions
    whose logits hear a swap all the same, as two causal layers do, is asked whether it is meant to have none.

    A constant table of sines and cosines whose frequencies are no pairs, or no powers of one number, is a note; so are
    rotations that turn queries and keys differently, or values, too.
    Each sentence is a call of its own: in a batch, its row could stand for its position.

    Proves: order is seen on both sides, also far apart and behind the end of a table. Cannot: show that positions are
    right; nor judge the target apart from the logits, where no module puts out a vector for each of its tokens.
    """
    moves, turned, deeper = [], [], 0

    def beside(rows: Tensor, *, side: int) -> list[list[Tensor]]:
        """For each row the row as one side, and one sentence for all of them as the other, if there is one."""
        inputs = [*model.inputs(1, 5)]
        return [[*inputs[:side], row[None], *inputs[side:][1:]] for row in rows]

    for length in model.lengths:
        if model.has("whole"):
            rows = _swapped(model, length, side=0)
            *logits, backwards = (model(*row)[0] for row in beside(torch.cat([rows, rows[:1].flip(1)]), side=0))
            alone = not model.has("causal")
            kept = rows == rows[0] if alone else torch.ones(len(rows), len(backwards), dtype=torch.bool)
            moves += [max_difference(logits[i][kept[i]], logits[0][kept[i]]) for i in range(2, len(rows))]
            turned.append(max_difference(backwards.flip(0) if alone else backwards, logits[0]))
        if not model.has("causal"):
            continue
        rows = _swapped(model, length, side=-1)
        calls = [model.states(length, *row) for row in beside(rows, side=-1)]
        common = [key for key in calls[0] if all(key in call for call in calls)]  # not every expert is always called
        mixed = (at for at in common if max_difference(*(call[at][0, 1:] for call in calls[:2])) > model.tolerance)
        if (at := next(mixed, None)) is not None:
            heard = [max_difference(call[at][0, -1], calls[0][at][0, -1]) for call in calls[2:]]
            if min(heard) <= model.tolerance < max(heard):
                places = (rows[2 + heard.index(min(heard))] != rows[0]).nonzero()[:, 0].tolist()
                if _never_heard(model, length, places, at, beside):
                    back = places[1] - places[0]
                    return False, f"swapping tokens {back} apart changes nothing, though both are heard", REPEATED
            repeated = model(*beside(model.tokens(1, 1, side=-1).expand(1, length), side=-1)[0])[0]
            moves.append(max(min(heard), *(max_difference(*both) for both in itertools.pairwise(repeated[-5:]))))
            if moves[-1] <= model.tolerance and not model.has("whole"):  # a causal mask tells further layers of order
                last = [model(*row)[0, -1] for row in beside(rows, side=-1)]
                moves[-1] = min(max_difference(swapped, last[0]) for swapped in last[2:])
                deeper += moves[-1] > model.tolerance
    if not moves:
        raise NotApplicable("no module mixes the tokens of one sentence")
    words = "swapping two tokens moves what should hear it by at least"
    outcome = model.more_than_rounding(moves, words, "swapping two tokens changes nothing")
    if outcome[0] and (told := _nearly_sinusoids(model.module)):
        return None, told, "one frequency for each pair, 10000^(-2i/d), as in Vaswani et al. 2017, section 3.5"
    if outcome[0] and len(model.sides) == 1 and (odd := _heard_otherwise(model)):
        return None, *odd
    if outcome[0] and deeper:
        one, other = model(*(tokens.repeat(2, 1) for tokens in model.inputs(1)))
        if max_difference(other, one) > model.tolerance:
            words = "a swap is not heard in the first attention, and one sentence in two rows gets two answers"
            return False, words, BY_ROW if _depends_on_the_row_only(model) else ""
        return True, f"{outcome[1]}, but not in the first attention: are positions left out on purpose?"
    if outcome[0] and turned and min(turned) <= model.tolerance:
        asked = "but a source read backwards means the same: is it meant not to tell left from right?"
        return True, f"{outcome[1]}; {asked}"
    return outcome
