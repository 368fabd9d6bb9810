# Generated from chapters/E_suite.md: edit it there and `make export`, or here and `make sync`.

"""What padding may change: nothing that is real."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from transformer_lib.checks.report import NotApplicable, Outcome, Property, if_it_runs, register_property
from transformer_lib.checks.subject import Attention, ModelUnderTest, max_difference
from transformer_lib.checks.visibility import INVERTED, weighs_padding_only

PADDING: list[Property] = []


REACHED = "attention reaches padded source positions"
EMPTY_ROW = "a padded query sees nothing, and its row becomes NaN"
RIGHT_ONLY = "pad the target on the right only, or let a row that sees nothing be 0"
OPEN = "the target's padding mask is missing, or on the wrong axis"


@register_property(PADDING, REACHED, "source-padding", needs="whole", refusable=True)
def source_padding_on_the_right(model: ModelUnderTest) -> Outcome:
    """More padding at the end of the source changes no logits.

    Proves: padded keys have no weight, in the encoder and for the decoder. Cannot: tell which of the two has some.
    """
    source, *target = model.inputs()
    longer = torch.cat([source, model.padding(3, 4)], dim=1)
    given, real = ((longer, *target), (source, *target)), slice(7)  # of an encoder's answer, the rest is padding's
    moved = model.apart(model(longer, *target), model(source, *target), real, source=real)
    holds, evidence = model.at_most_rounding(moved, "four more padded source positions move the logits by")
    if holds:
        return holds, evidence
    with suppress(NotApplicable):
        if _moved_by_padding(model, (longer, *target), real) <= model.tolerance:
            evidence += "; what PAD contains does not matter, but the padded length does"
    cause = _padding_has_weight(model, lambda: max_difference(*(model(*x)[:, real] for x in given)), 11, real)
    return holds, evidence, cause or model.norm_over_positions(*given, real) * (not target)


def _padding_has_weight(model: ModelUnderTest, moved: Callable[[], float], length: int, real: slice) -> str:
    """In which attention the source's padding has weight, if nothing moves once it is hidden there; else empty."""
    padded = torch.ones(length, dtype=torch.bool)
    padded[real] = False
    own, cross = padded.expand(length, -1), padded.expand(6, -1)
    tried = {"attention in the encoder": [own], "cross-attention": [cross], "attention": [own, cross]}
    for where, hidden in tried.items() if model.has("both") else [("attention", [own])]:
        if model.heals(moved, *hidden):
            return f"{where} reaches padded source positions: the mask leaves them some weight"
    return ""


@register_property(PADDING, "", "reshape", needs="causal", refusable=True)
def target_padding_on_the_right(model: ModelUnderTest) -> Outcome:
    """More padding at the end of the target changes no logits of real positions.

    Proves: nothing mixes target positions apart from causal attention, such as a mean over the length. Cannot: show
    that the target's padding mask is used: padding on the right lies in everybody's future, hidden in any case.
    """
    *source, target = model.inputs()
    longer = torch.cat([target, model.padding(3, 4)], dim=1)
    moved = model.apart(model(*source, longer), model(*source, target), slice(6))
    return model.at_most_rounding(moved, "four more padded target positions move the real logits by")


def pad_tables(model: ModelUnderTest, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Those tables that look up all the padding of these sentences."""
    sizes = {side.vocab_size for side in model.sides}
    looked_up: dict[Tensor, int] = defaultdict(int)

    def count(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(module, nn.Embedding) and module.num_embeddings in sizes:
            looked_up[module.weight] += sum(int((tokens == model.pad_id).sum()) for tokens in inputs)

    with register_module_forward_pre_hook(count):
        model(*inputs)
    padding = sum(int((tokens == model.pad_id).sum()) for tokens in inputs)
    tables = [weight for weight, times in looked_up.items() if times >= padding]
    if not tables:
        raise NotApplicable("no nn.Embedding of the vocabulary's size looks up this padding")
    return tables


@contextmanager
def padding_looks_like(model: ModelUnderTest, tables: list[Tensor], vectors: list[Tensor]) -> Iterator[None]:
    """Inside the block the padding token has these vectors in the tables."""
    saved = [table[model.pad_id].clone() for table in tables]
    try:
        for table, vector in zip(tables, vectors):
            table[model.pad_id] = vector
        yield
    finally:
        for table, vector in zip(tables, saved):
            table[model.pad_id] = vector


def _moved_by_padding(
    model: ModelUnderTest, inputs: tuple[Tensor, ...], real: slice, word: int | None = None, old: Any = ()
) -> float:
    """How far the logits at real positions of the padded side move when the padding token has another vector.

    If a word and other inputs are given, it is that word's vector, and the move is from the logits for those inputs.
    """
    tables = [table.data for table in pad_tables(model, inputs)]
    kept = torch.arange(model.sides[-1].vocab_size) != model.pad_id  # tied, its own logit moves, and so does a softmax
    known, shape = model(*(old or inputs)), partial(torch.randn, generator=model.generator, dtype=torch.float64)
    new = [3 * shape(table.shape[1:]).to(table) if word is None else table[word] for table in tables]

    def call() -> Tensor:
        with padding_looks_like(model, tables, new):
            return model(*inputs)[..., kept].log_softmax(-1)

    model.again[after := call()] = model.module, call, inputs
    model.again[before := known[..., kept].log_softmax(-1)] = model.again[known]
    at = real if (inputs[-1] == model.pad_id).any() else slice(None)
    return max_difference(after[:, at], before[:, at]) if old else model.apart(after, before, at, source=real)


def _positions_count_it(model: ModelUnderTest, tokens: Tensor) -> Outcome | None:
    """A question, if a model of one side, which takes no mask, moves real logits for padding in front that it hides."""
    if model.has("mask") or len(model.sides) > 1:  # `padding_in_front` asks the former
        return None
    moved = max_difference(model(torch.cat([model.padding(3, 3), tokens], dim=1))[:, 3:], model(tokens))
    told = f"padding in front, though it is hidden, moves logits by {model.describe(moved)}: is that meant? if not, pad"
    told += " at the end, or number real tokens alone, (tokens != pad_id).cumsum(-1) - 1"
    return (None, told) if moved > max(model.tolerance, 1e-5) else None  # a rotation's table may be in float32


@register_property(PADDING, REACHED, "source-padding", needs="whole", refusable=True)
def source_padding_on_the_left(model: ModelUnderTest) -> Outcome:
    """What the embedding of PAD contains does not matter, with padding before the source.

    Proves: padded keys are not read. The logits may differ from those of the unpadded source, because positions
    shift; the content of PAD may not. Cannot: judge a model whose source embedding is no nn.Embedding, nor one with a
    recurrent network of torch that ignores padding behind the source only.
    """
    source, *target = model.inputs()
    padded, real = (torch.cat([model.padding(3, 3), source], dim=1), *target), slice(3, None)
    if not target and max_difference(model(*padded)[:, :7], model(source)) <= model.tolerance:
        return False, "behind padding, logits come out at the beginning, and not at the places of their tokens", ""
    moved = (again := partial(_moved_by_padding, model, padded, real))()
    recurrent = any(isinstance(module, nn.RNNBase) for module in model.module.modules())
    if moved > model.tolerance and recurrent and source_padding_on_the_right(model)[0]:
        raise NotApplicable("its recurrent network reads padding before the source, and ignores it behind")
    outcome = model.at_most_rounding(moved, "another PAD vector before the source moves the logits by")
    if outcome[0]:
        return _positions_count_it(model, source) or outcome
    cause = _padding_has_weight(model, again, 10, real)
    return *outcome, cause if math.isfinite(moved) or not cause else EMPTY_ROW


@register_property(PADDING, OPEN, "target-padding", needs="causal", refusable=True)
def target_padding_on_the_left(model: ModelUnderTest) -> Outcome:
    """What the embedding of PAD contains does not matter to real positions, with padding before the target.

    If a row that sees nothing becomes NaN, that is a note where padding on the right moves nothing.

    Proves: the decoder combines both masks. Cannot: judge a model whose target embedding is no nn.Embedding, nor one
    that reads padding in the target like any word: that is right as long as padding stands on the right.
    """
    *source, target = model.inputs()
    left = torch.cat([model.padding(3, 3), target], dim=1)
    word = int(model.other(model.padding(1, 1), side=-1))
    as_word = (*source, torch.where(left == model.pad_id, word, left))
    again = partial(_moved_by_padding, model, (*source, left), slice(3, None))
    outcome = model.at_most_rounding(moved := again(), "another PAD vector before the target moves the real logits by")
    if outcome[0]:
        return _positions_count_it(model, target) or outcome
    masked = "mask" in model.accepts(model.module)  # then it is no choice
    if not masked and _moved_by_padding(model, (*source, left), slice(3, None), word, as_word) <= model.tolerance:
        raise NotApplicable("in the target, padding is read like any word; it must stand on the right")
    if math.isfinite(moved) and model.heals(again, (torch.arange(9) < 1).expand(9, -1)):
        return None, f"{outcome[1]}; only its first position is never hidden", "is that meant, so that no row is empty?"
    if model.heals(again, (torch.arange(9) < 3).expand(9, -1)):
        if not math.isfinite(moved) and not masked and target_padding_on_the_right(model)[0]:
            return None, "with padding before the target, real logits are NaN", RIGHT_ONLY
        return outcome if math.isfinite(moved) else (*outcome, EMPTY_ROW)
    return *outcome, ""


@register_property(PADDING, INVERTED, needs="mask", refusable=True)
def a_mask_hides_what_it_should(model: ModelUnderTest) -> Outcome:
    """A mask of ones is no mask; and what stands where the mask is 0, in front or at the end, moves no real logits.

    Proves: so for these sentences. Cannot: judge a model that takes no mask.
    """
    *others, tokens = model.inputs(3, 7, 7)
    moved = model.apart(model(*others, tokens, mask=torch.ones_like(tokens)), model(*others, tokens))
    if moved > model.tolerance:
        return False, f"a mask of ones, and none, give logits that differ by {model.describe(moved)}", ""
    moves = []
    for real in (slice(3, None), slice(4)):
        mask = torch.zeros_like(tokens)
        mask[:, real] = 1
        told = {"mask": mask} | model.told_positions(mask)
        changed = torch.where(mask == 0, model.other(tokens, side=-1), tokens)
        moves.append(model.apart(model(*others, changed, **told), model(*others, tokens, **told), real))
    outcome = model.at_most_rounding(max(moves), "other tokens under the mask move the real logits by")
    return outcome if weighs_padding_only(model, real, *others, tokens, **told) else (*outcome, "")


@register_property(PADDING, "", needs="mask", refusable=True)
def padding_in_front(model: ModelUnderTest) -> Outcome:
    """With padding in front, a mask, and positions that do not count it, real tokens get the logits they get alone.

    Proves: batches that are padded in front, each sentence by another number, are right, if positions are given.
    Cannot: judge a model that takes no positions, for padding in front may move its tokens to other ones: it is asked.
    """
    *others, tokens = model.inputs(3, 7, 11)
    mask = (torch.arange(tokens.size(1)) >= torch.tensor([[4], [2], [0]])).long()
    told, moved = {"mask": mask} | model.told_positions(mask), 0.0
    together = model(*others, torch.where(mask == 1, tokens, model.pad_id), **told)
    for row, start in enumerate((4, 2, 0)):
        alone = model(*(side[row:][:1] for side in others), tokens[row:][:1, start:])
        moved = max(moved, model.apart(alone, together, old_at=slice(start, None), old_rows=[row]))
    if len(told) == 1 and moved > model.tolerance:
        mend = "give it the positions of real tokens, mask.cumsum(-1) - 1, and let `call` take `positions`"
        asked = "and its call takes no `positions`: is that meant?"
        return None, f"padding in front moves logits by {model.describe(moved)}, {asked}", mend
    return model.at_most_rounding(moved, "padded tokens in front move the real logits by")


@register_property(PADDING, "a fully masked row becomes NaN and poisons all gradients", "empty-row", refusable=True)
def empty_sentences(model: ModelUnderTest) -> Outcome:
    """A sentence of nothing but padding in the batch leaves the others' logits and all gradients as they were.

    Proves: such a row adds nothing but rounding, of a gradient's largest number, or of a thousandth of the largest of
    all. Cannot: say what the row itself should be.
    """
    inputs = model.inputs()
    more = [torch.cat([tokens, model.padding(1, tokens.size(1))]) for tokens in inputs]
    moved = model.apart(model(*inputs), model(*more), old_rows=slice(3))
    alone = together = dict[str, Tensor | None]()
    with suppress(NotApplicable):
        alone, together = model.gradients(*inputs), model.gradients(*more, rows=3)
    spoilt = sum(g is not None and not g.isfinite().all().item() for g in together.values())
    if spoilt:
        evidence = f"{spoilt} of {len(together)} parameters get a gradient that is not finite"
        with if_it_runs(), Attention():
            if all(g is None or g.isfinite().all() for g in model.gradients(*more, rows=3).values()):
                return False, evidence
        return False, evidence, ""
    known = {name: gradient for name, gradient in alone.items() if gradient is not None}
    largest = max((gradient.abs().max().item() for gradient in known.values()), default=0.0)
    for name, gradient in known.items():
        other = together[name]
        if other is not None and largest > 0:
            unit = max(gradient.abs().max().item(), largest / 1000)
            moved = max(moved, (other - gradient).abs().max().item() / unit)
    return *model.at_most_rounding(moved, "an empty sentence moves the others' logits and gradients by"), ""
