# Generated from chapters/08_checks.md: edit the chapter, not this file, then run `make export`.


# chapters/08_checks.md: Two short trainings
"""Two short trainings: what must not be learnt, and what must."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.checks.report import Outcome, Property, holds_for
from transformer_lib.checks.subject import Subject

PROPERTIES: list[Property] = []  # in the order in which they are written


def _trained(
    subject: Subject, steps: int, batch: Callable[[], tuple[Tensor, Tensor, Tensor]]
) -> tuple[nn.Module, float]:
    """A model after some steps of Adam, and its mean loss over the last tenth."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(subject.seed)
        model = subject.build().float().train()
        optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-3, betas=(0.9, 0.98))
        losses = []
        for step in range(steps):
            for group in optimizer.param_groups:
                group["lr"] = 1e-3 * min(1, (step + 1) / 50)
            source, inputs, labels = batch()
            loss = F.cross_entropy(model(source, inputs).flatten(0, 1), labels.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
    return model.eval(), sum(losses[-steps // 10 :]) / (steps // 10)


@holds_for(PROPERTIES, "the model sees the tokens that it is asked to predict", "entropy")
def unpredictable_stays_unpredictable(subject: Subject) -> Outcome:
    """Trained on targets drawn at random, the model does not get below the entropy of the draw.

    Proves: no leak that 200 steps can find. Every batch is new, so nothing can be learnt by heart. Cannot: see a leak
    that is hard to learn to use.
    """
    bos = (subject.pad_id + 1) % subject.target_vocab_size

    def batch() -> tuple[Tensor, Tensor, Tensor]:
        source, labels = subject.pair(32, 8, 8)
        return source, torch.cat([torch.full((32, 1), bos), labels[:, :-1]], dim=1), labels

    _, loss = _trained(subject, 200, batch)
    floor = math.log(subject.target_vocab_size - 1)
    return loss > floor - 0.1, f"loss {loss:.2f}, chance is ln {subject.target_vocab_size - 1} = {floor:.2f}"


@holds_for(PROPERTIES, "the source does not reach the output, or learning is broken", "copy")
def copying_is_learnt(subject: Subject) -> Outcome:
    """Trained to repeat the source, the model does, also when it reads its own output.

    Proves: source, positions and gradient work together. Cannot: say anything about harder tasks. Steps and rate suit
    a small model; a large one may need more.
    """
    size = min(subject.source_vocab_size, subject.target_vocab_size)
    bos = (subject.pad_id + 1) % subject.target_vocab_size

    def batch(rows: int = 32) -> tuple[Tensor, Tensor, Tensor]:
        labels = torch.randint(size - 1, (rows, 6), generator=subject.generator)
        labels = labels + (labels >= subject.pad_id)
        return labels, torch.cat([torch.full((rows, 1), bos), labels[:, :-1]], dim=1), labels

    model, loss = _trained(subject, 600, batch)
    source, inputs, labels = batch(64)
    output = inputs[:, :1]
    for _ in range(labels.size(1)):
        output = torch.cat([output, subject.logits(model, source, output)[:, -1:].argmax(dim=-1)], dim=1)
    right = (output[:, 1:] == labels).double().mean().item()
    return right > 0.5, f"loss {loss:.2f}; read from its own output, {right:.0%} of the tokens are copied"
