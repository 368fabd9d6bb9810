# Generated from chapters/E_suite.md: edit it there and `make export`, or here and `make sync`.

"""Two short trainings."""

import itertools
import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.checks.report import NotApplicable, Outcome, Property, register_property
from transformer_lib.checks.subject import ModelUnderTest, seeded

TRAININGS: list[Property] = []

PEAK = 2e-3  # learning rate
Batch = Callable[[], tuple[Tensor, ...]]  # source, if there is one, decoder input, labels


def _shifted_right(model: ModelUnderTest, labels: Tensor) -> Tensor:
    """What a decoder is given to predict the labels (rows, length): a first token, then all labels but the last."""
    bos = (model.pad_id + 1) % model.sides[-1].vocab_size
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
                *inputs, labels = batch()
                loss = F.cross_entropy(model.run(module, *inputs).flatten(0, 1), labels.flatten())
                optimizer.zero_grad()
                loss.backward()
                for parameter in module.parameters():  # Adam takes no sparse gradients
                    parameter.grad = parameter.grad if parameter.grad is None else parameter.grad.to_dense()
                nn.utils.clip_grad_norm_(module.parameters(), 1.0)
                optimizer.step()
                losses.append(loss.item())
        yield module.eval(), sum(losses[-20:]) / 20


@register_property(TRAININGS, "the model sees the tokens that it is asked to predict", "unmasked", needs="causal")
def unpredictable_stays_unpredictable(model: ModelUnderTest) -> Outcome:
    """Trained on targets drawn at random, the model does not get below the entropy of the draw.

    Proves: no leak that 200 steps can find. Every batch is new, so nothing can be learnt by heart. Cannot: see a leak
    that is hard to learn to use.
    """

    def batch() -> tuple[Tensor, ...]:
        *source, labels = model.inputs(32, 8, 8)
        return *source, _shifted_right(model, labels), labels

    _, loss = next(_training(model, batch))
    choices = model.sides[-1].vocab_size - 1
    floor = math.log(choices)
    return loss > floor - 0.03, f"loss {loss:.2f}, chance is ln {choices} = {floor:.2f}"


@register_property(TRAININGS, "the source does not reach the output, or learning is broken", "dead", needs="both")
def copying_is_learnt(model: ModelUnderTest) -> Outcome:
    """Trained to repeat the source, the model does, also when it reads its own output.

    Proves: source, positions and gradient work together. Cannot: say anything about harder tasks. At most 2400 steps,
    or 4800 where a third is right by then, at a rate that suits small models; a large one may need another.
    """
    fewer = -int(model.sides[-1].vocab_size < model.sides[0].vocab_size)  # the side whose tokens both have

    def batch(rows: int = 32) -> tuple[Tensor, ...]:
        labels = model.tokens(rows, 6, side=fewer)
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
