# Generated from chapters/12b_properties.md: edit it there and `make export`, or here and `make sync`.

"""What padding may change: nothing that is real."""

import math
from collections import defaultdict
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from transformer_lib.checks.model_under_test import (
    ModelUnderTest,
    max_difference,
)
from transformer_lib.checks.report import NotApplicable, Outcome, Property, register_property

PADDING: list[Property] = []


@register_property(PADDING, "attention reaches padded source positions", "source-padding")
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


@register_property(PADDING, "something mixes target positions apart from causal attention", "reshape")
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


@register_property(PADDING, "the source's padding mask is missing, inverted or on the wrong axis", "source-padding")
def source_padding_on_the_left(model: ModelUnderTest) -> Outcome:
    """What the embedding of PAD contains does not matter, with padding before the source.

    Proves: padded keys are not read. The logits may differ from those of the unpadded source, because positions
    shift; the content of PAD may not. Cannot: judge a model whose source embedding is no nn.Embedding.
    """
    source, target = model.pair()
    moved = _moved_by_padding(model, torch.cat([model.padding(3, 3), source], dim=1), target, slice(None))
    return model.at_most_rounding(moved, "another PAD vector before the source moves the logits by")


@register_property(PADDING, "the target's padding mask is missing, or on the wrong axis", "target-padding")
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


@register_property(PADDING, "a fully masked row becomes NaN and poisons the gradient of every sentence", "empty-row")
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
