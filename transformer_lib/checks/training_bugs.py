# Generated from chapters/13_gallery.md: edit it there and `make export`, or here and `make sync`.

"""Mistakes around a model: in the loss, in the step, in generation. Each comes with what is right."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Pair = tuple[Tensor, Tensor]  # source (b, n) and target (b, m + 1), with <bos> in front


def token_loss(model: nn.Module, source: Tensor, target: Tensor, pad_id: int = 0) -> Tensor:
    """The mean loss of a real target token, from the ones before it."""
    logits = model(source, target[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=pad_id)


def loss_unshifted(model: nn.Module, source: Tensor, target: Tensor, pad_id: int = 0) -> Tensor:
    """Wrong: the model is given the tokens that it has to predict."""
    logits = model(source, target[:, 1:])
    return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=pad_id)


def accumulate(model: nn.Module, optimizer: torch.optim.Optimizer, parts: Sequence[Pair], every: int) -> None:
    """One step for each `every` parts, by the mean loss of all their real tokens."""
    for start in range(0, len(parts), every):
        group = parts[start : start + every]
        counts = [(target[:, 1:] != 0).sum() for _, target in group]
        optimizer.zero_grad()
        for (source, target), count in zip(group, counts):
            (token_loss(model, source, target) * count / sum(counts)).backward()
        optimizer.step()


def accumulate_wrong(model: nn.Module, optimizer: torch.optim.Optimizer, parts: Sequence[Pair], every: int) -> None:
    """Wrong: the losses are not scaled, and each step comes `every` - 1 parts early."""
    for number, (source, target) in enumerate(parts):
        token_loss(model, source, target).backward()
        if number % every == 0:
            optimizer.step()
            optimizer.zero_grad()


@torch.no_grad()
def generate(model: nn.Module, source: Tensor, steps: int, bos: int = 1) -> Tensor:
    """Greedy decoding, (b, steps): in evaluation mode, and back to what it was."""
    was_training = model.training
    model.eval()
    output = generate_wrong(model, source, steps, bos)
    model.train(was_training)
    return output


@torch.no_grad()
def generate_wrong(model: nn.Module, source: Tensor, steps: int, bos: int = 1) -> Tensor:
    """Wrong: in whatever mode the training left the model."""
    output = torch.full((source.size(0), 1), bos)
    for _ in range(steps):
        output = torch.cat([output, model(source, output)[:, -1:].argmax(-1)], dim=1)
    return output[:, 1:]
