# Generated from chapters/08_checks.md: edit the chapter, not this file, then run `make export`.

"""Properties of the flow of information: who sees whom."""

import math
from collections import defaultdict

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from transformer_lib.checks.report import NotApplicable, Outcome, Property, holds_for
from transformer_lib.checks.subject import Subject, change

PROPERTIES: list[Property] = []  # in the order in which they are written


@holds_for(
    PROPERTIES,
    "the causal mask is missing, inverted, or shifted by one; or a softmax or norm runs over positions",
    "causal",
)
def causality(subject: Subject) -> Outcome:
    """Logits at position i do not change when the target tokens after i do.

    Proves: for these weights and inputs, no information flows backwards, to rounding. Cannot: show a leak that only
    other weights open. The later tokens are replaced at random, because a constant added to all channels can vanish
    in a layer normalisation.
    """
    source, target = subject.pair(1)  # one sentence: what a batch mixes is another property's business
    before, worst = subject(source, target), 0.0
    for i in range(target.size(1) - 1):
        future = torch.cat([target[:, : i + 1], subject.other(target[:, i + 1 :], target=True)], dim=1)
        worst = max(worst, change(subject(source, future)[:, : i + 1], before[:, : i + 1]))
    return worst <= subject.tolerance, f"changing later target tokens moves earlier logits by {subject.shown(worst)}"


@holds_for(PROPERTIES, "the mask hides the past, or what attention reads is overwritten", "stale")
def present_seen(subject: Subject) -> Outcome:
    """Logits at position i change when target token i does, and when token i - 1 does.

    Proves: both reach position i. Cannot: show that they come through attention; the present has a residual
    connection as well.
    """
    source, target = subject.pair()
    before, least = subject(source, target), math.inf
    for i in range(target.size(1)):
        for j in {i, max(i - 1, 0)}:
            changed = target.clone()
            changed[:, j] = subject.other(target[:, j], target=True)
            least = min(least, change(subject(source, changed)[:, i], before[:, i]))
    evidence = f"the least that a target token moves logits that may see it is {subject.shown(least)}"
    return least > subject.tolerance, evidence


@holds_for(PROPERTIES, "the padding mask is inverted, or cross-attention does not reach the memory", "blind")
def source_sensitivity(subject: Subject) -> Outcome:
    """Each real source token has an effect, in a batch with padding.

    Proves: the decoder hears every source position. Cannot: show that it hears the right thing.
    """
    source, target = subject.pair(3, 5, 6)
    source = torch.cat([source, subject.padding(3, 2)], dim=1)
    before, least = subject(source, target), math.inf
    for j in range(5):
        changed = source.clone()
        changed[:, j] = subject.other(source[:, j])
        least = min(least, change(subject(changed, target), before))
    return least > subject.tolerance, f"the least that one real source token moves the logits is {subject.shown(least)}"


@holds_for(PROPERTIES, "attention reaches padded source positions", "source-padding")
def source_padding_on_the_right(subject: Subject) -> Outcome:
    """More padding at the end of the source changes no logits.

    Proves: padded keys have no weight, in the encoder and for the decoder. Cannot: tell which of the two has some.
    """
    source, target = subject.pair()
    longer = torch.cat([source, subject.padding(3, 4)], dim=1)
    moved = change(subject(longer, target), subject(source, target))
    return moved <= subject.tolerance, f"four more padded source positions move the logits by {subject.shown(moved)}"


@holds_for(PROPERTIES, "something mixes target positions apart from causal attention", "target-padding")
def target_padding_on_the_right(subject: Subject) -> Outcome:
    """More padding at the end of the target changes no logits of real positions.

    Proves: nothing mixes target positions apart from causal attention, such as a mean over the length. Cannot: show
    that the target's padding mask is used. Under causality padding on the right lies in everybody's
    future, so it is invisible with the mask and without it.
    """
    source, target = subject.pair()
    longer = torch.cat([target, subject.padding(3, 4)], dim=1)
    moved = change(subject(source, longer)[:, : target.size(1)], subject(source, target))
    evidence = f"four more padded target positions move the real logits by {subject.shown(moved)}"
    return moved <= subject.tolerance, evidence


def _pad_rows(subject: Subject, source: Tensor, target: Tensor) -> list[Tensor]:
    """The rows of the padding token, in those tables that look up all the padding of these sentences."""
    sizes = {subject.source_vocab_size, subject.target_vocab_size}
    looked_up: dict[Tensor, int] = defaultdict(int)

    def count(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(module, nn.Embedding) and module.num_embeddings in sizes:
            looked_up[module.weight] += sum(int((tokens == subject.pad_id).sum()) for tokens in inputs)

    with register_module_forward_pre_hook(count):
        subject(source, target)
    padding = sum(int((tokens == subject.pad_id).sum()) for tokens in (source, target))
    rows = [weight[subject.pad_id] for weight, times in looked_up.items() if times >= padding]
    if not rows:
        raise NotApplicable("no nn.Embedding of the vocabulary's size looks up this padding")
    return rows


def _with_other_padding(subject: Subject, source: Tensor, target: Tensor, real: slice) -> float:
    """How far the logits at real positions move when the vector of the padding token is another one."""
    rows = _pad_rows(subject, source, target)
    before = subject(source, target)
    saved = [row.detach().clone() for row in rows]
    with torch.no_grad():
        for row in rows:
            row.copy_(torch.randn(row.shape, generator=subject.generator, dtype=torch.float64) * 3)
        try:
            after = subject(source, target)
        finally:
            for row, old in zip(rows, saved):
                row.copy_(old)
    keep = [token for token in range(subject.target_vocab_size) if token != subject.pad_id]  # tied: its own logit moves
    return change(after[:, real][..., keep], before[:, real][..., keep])


@holds_for(PROPERTIES, "the source's padding mask is missing, inverted or on the wrong axis", "source-padding")
def source_padding_on_the_left(subject: Subject) -> Outcome:
    """What the embedding of PAD contains does not matter, with padding before the source.

    Proves: padded keys are not read. The logits may differ from those of the unpadded source, because positions
    shift; the content of PAD may not. Cannot: judge a model whose source embedding is no nn.Embedding.
    """
    source, target = subject.pair()
    source = torch.cat([subject.padding(3, 3), source], dim=1)
    moved = _with_other_padding(subject, source, target, slice(None))
    return (
        moved <= subject.tolerance,
        f"another PAD vector before the source moves the logits by {subject.shown(moved)}",
    )


@holds_for(
    PROPERTIES,
    "the target's padding mask is not combined with the causal one, or an empty row is NaN",
    "target-padding",
)
def target_padding_on_the_left(subject: Subject) -> Outcome:
    """What the embedding of PAD contains does not matter to real positions, with padding before the target.

    Proves: the decoder combines both masks. Cannot: judge a model whose target embedding is no nn.Embedding.
    """
    source, target = subject.pair()
    target = torch.cat([subject.padding(3, 3), target], dim=1)
    moved = _with_other_padding(subject, source, target, slice(3, None))
    evidence = f"another PAD vector before the target moves the real logits by {subject.shown(moved)}"
    return moved <= subject.tolerance, evidence


@holds_for(PROPERTIES, "sentences are mixed: a wrong reshape, a mask of the wrong rank, a norm over the batch", "batch")
def batch_independence(subject: Subject) -> Outcome:
    """A sentence gets the same logits alone as in a batch, and a permuted batch gives permuted logits.

    Proves: for these sizes rows do not mix. Batch and length are chosen different and then equal, because some
    code mixes rows only when sizes coincide. Cannot: try every coincidence.
    """
    worst = 0.0
    for rows, length in ((3, 7), (4, 4), (8, 8), (2, 2)):
        source, target = subject.pair(rows, length, length)
        source[0, -1] = subject.pad_id
        together = subject(source, target)
        alone = torch.cat([subject(source[i : i + 1], target[i : i + 1]) for i in range(rows)])
        order = torch.randperm(rows, generator=subject.generator)
        worst = max(worst, change(alone, together), change(subject(source[order], target[order]), together[order]))
    return worst <= subject.tolerance, f"alone and in a batch, logits differ by {subject.shown(worst)}"


@holds_for(PROPERTIES, "positions are missing, or do not reach attention", "positions")
def positions_matter(subject: Subject) -> Outcome:
    """Swapping two source tokens, or two earlier target tokens, changes the logits.

    Proves: order is seen on both sides. Cannot: show that positions are right; and a causal decoder of two layers or
    more sees some order even without positions.
    """
    source, target = subject.pair()
    source[:, 1], target[:, 1] = subject.other(source[:, 0]), subject.other(target[:, 0], target=True)
    before, least = subject(source, target), math.inf
    for swapped_source, swapped_target, real in (
        (source[:, [1, 0, 2, 3, 4, 5, 6]], target, slice(None)),
        (source, target[:, [1, 0, 2, 3, 4, 5]], slice(5, 6)),
    ):
        least = min(least, change(subject(swapped_source, swapped_target)[:, real], before[:, real]))
    return least > subject.tolerance, f"the least that swapping two tokens moves the logits is {subject.shown(least)}"
