# Generated from chapters/08_checks.md: edit the chapter, not this file, then run `make export`.

"""Two short trainings: what must not be learnt, and what must."""

import itertools
import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.checks.report import Outcome, Property, holds_for
from transformer_lib.checks.subject import Subject

PROPERTIES: list[Property] = []  # in the order in which they are written
PEAK = 2e-3  # learning rate
Batch = Callable[[], tuple[Tensor, Tensor, Tensor]]  # source, decoder input, labels


def _shifted_right(subject: Subject, labels: Tensor) -> Tensor:
    """What a decoder is given to predict the labels (rows, length): a first token, then all labels but the last."""
    bos = (subject.pad_id + 1) % subject.target_vocab_size
    return torch.cat([torch.full_like(labels[:, :1], bos), labels[:, :-1]], dim=1)


def _training(subject: Subject, batch: Batch) -> Iterator[tuple[nn.Module, float]]:
    """Train a fresh model; after every 200 steps of Adam, the model and its mean loss over the last twenty."""
    model = subject.build().float()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=PEAK, betas=(0.9, 0.98))
    for block in itertools.count():
        losses = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(subject.seed + block)
            model.train()
            for step in range(200 * block, 200 * (block + 1)):
                for group in optimizer.param_groups:
                    group["lr"] = PEAK * min(1, (step + 1) / 50)
                source, inputs, labels = batch()
                loss = F.cross_entropy(model(source, inputs).flatten(0, 1), labels.flatten())
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                losses.append(loss.item())
        yield model.eval(), sum(losses[-20:]) / 20


@holds_for(PROPERTIES, "the model sees the tokens that it is asked to predict", "unmasked")
def unpredictable_stays_unpredictable(subject: Subject) -> Outcome:
    """Trained on targets drawn at random, the model does not get below the entropy of the draw.

    Proves: no leak that 200 steps can find. Every batch is new, so nothing can be learnt by heart. Cannot: see a leak
    that is hard to learn to use.
    """

    def batch() -> tuple[Tensor, Tensor, Tensor]:
        source, labels = subject.pair(32, 8, 8)
        return source, _shifted_right(subject, labels), labels

    _, loss = next(_training(subject, batch))
    floor = math.log(subject.target_vocab_size - 1)
    return loss > floor - 0.03, f"loss {loss:.2f}, chance is ln {subject.target_vocab_size - 1} = {floor:.2f}"


@holds_for(PROPERTIES, "the source does not reach the output, or learning is broken", "dead")
def copying_is_learnt(subject: Subject) -> Outcome:
    """Trained to repeat the source, the model does, also when it reads its own output.

    Proves: source, positions and gradient work together. Cannot: say anything about harder tasks. At most 2400 steps
    at a rate that suits small models; a large one may need another.
    """
    fewer = subject.target_vocab_size < subject.source_vocab_size  # tokens that both vocabularies have

    def batch(rows: int = 32) -> tuple[Tensor, Tensor, Tensor]:
        labels = subject.tokens(rows, 6, target=fewer)
        return labels, _shifted_right(subject, labels), labels

    source, inputs, labels = batch(64)
    steps = 0
    for model, _ in itertools.islice(_training(subject, batch), 12):
        steps, output = steps + 200, inputs[:, :1]
        for _ in range(labels.size(1)):
            output = torch.cat([output, subject.logits(model, source, output)[:, -1:].argmax(dim=-1)], dim=1)
        right = (output[:, 1:] == labels).double().mean().item()
        if right > 0.8:
            break
    evidence = f"after {steps} steps, {right:.0%} of the tokens are copied, read from the model's own output"
    return right > 0.8, evidence
