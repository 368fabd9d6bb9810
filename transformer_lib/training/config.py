# Generated from chapters/09b_settings.md: edit it there and `make export`, or here and `make sync`.

"""How to train: the settings of a run, its learning rate, its optimiser."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from transformer_lib.precision import PRECISIONS
from transformer_lib.settings import require_types


def inverse_sqrt_schedule(step: int, *, peak: float, warmup: int) -> float:
    """The learning rate of a step: up linearly, then down as 1 / √step (Vaswani et al. 2017, section 5.3).

    Args:
        step: the step's number, from 1.
        peak: the highest rate, reached at step `warmup`.
        warmup: number of steps on the way up, at least 1.

    Raises:
        ValueError: `step` or `warmup` is below 1.
    """
    if step < 1 or warmup < 1:
        raise ValueError(f"step and warmup count from 1; got step {step} and warmup {warmup}")
    return peak * min(step / warmup, math.sqrt(warmup / step))


def adamw(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW with the epsilon of Vaswani et al. 2017, section 5.3; only matrices decay, and what is frozen stays out."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices, vectors = ([p for p in trained if (p.dim() > 1) is wanted] for wanted in (True, False))
    groups: list[dict] = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, betas=config.adam_betas, eps=1e-9, weight_decay=config.weight_decay, fused=True)


@dataclass(frozen=True)
class TrainingConfig:
    """How to train. Give `steps`, `minutes` or both; the run ends with the first that is reached.

    Args:
        batch_tokens: size of a batch: rows times its longest side, the padding included.
        accumulate: batches in a step. A step sees `accumulate * batch_tokens`, and `batch_tokens` must fit into memory.
        peak_lr: highest learning rate; the default is that of the paper's base model, which is ours by default.
        warmup_steps: steps until it is reached; the paper's number.
        schedule: called as `schedule(step, peak=peak_lr, warmup=warmup_steps)`; the learning rate of a step, from 1.
        adam_betas: how slowly Adam's two running means forget.
        cooldown_steps: over so many last steps the rate falls to zero in a straight line; it needs `steps`.
        label_smoothing: share of the target probability spread over all words.
        weight_decay: AdamW's decay, for matrices only.
        clip_norm: largest norm of the whole gradient; None = no limit.
        precision: what matrices are multiplied in: "bf16", "fp16", "fp32", or what `chosen_dtype` says for "auto".
        compile: let `torch.compile` join the loss's operations, which is for GPUs; the first step then takes minutes.
        recompute: forget each layer's activations and compute them again in the backward pass: less memory, more time;
            for a `Transformer` only.
        steps: number of steps, counted from the very beginning.
        minutes: time for this call, validation and saving included; on a GPU, to within ten steps.
        evaluate_every: steps between two validations, each followed by a checkpoint.
        average: what is validated and kept is the mean of the weights at the last so many validations.
        patience: stop after so many validations in a row without a better one; None = never.
        seed: decides the order of the batches and the dropout.

    Raises:
        ValueError: a value is of another type or out of its range, or neither `steps` nor `minutes` is given.
    """

    batch_tokens: int = 4096
    accumulate: int = 1
    peak_lr: float = 7e-4
    warmup_steps: int = 4000
    schedule: Callable[..., float] = inverse_sqrt_schedule
    cooldown_steps: int = 0
    adam_betas: tuple[float, float] = (0.9, 0.98)
    label_smoothing: float = 0.1
    weight_decay: float = 0.01
    clip_norm: float | None = 1.0
    precision: str = "auto"
    compile: bool = False
    recompute: bool = False
    steps: int | None = None
    minutes: float | None = None
    evaluate_every: int = 500
    average: int = 1
    patience: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps is None and self.minutes is None:
            raise ValueError("give steps, minutes or both: how long to train")
        require_types(self)
        for name in ("batch_tokens", "accumulate", "peak_lr", "warmup_steps", "clip_norm", "steps", "minutes",
                     "evaluate_every", "average", "patience"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite; got {value}")
        shares = {"label_smoothing": [self.label_smoothing], "adam_betas": self.adam_betas}
        for name, values in shares.items():
            if not all(0 <= value < 1 for value in values):
                raise ValueError(f"{name} must be at least 0 and below 1; got {getattr(self, name)}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}; got {self.precision!r}")
        for name in ("weight_decay", "cooldown_steps"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be at least 0 and finite; got {getattr(self, name)}")
        if self.cooldown_steps > (self.steps or 0):
            raise ValueError(f"cooldown_steps must be at most steps = {self.steps}; got {self.cooldown_steps}")

    def learning_rate(self, step: int) -> float:
        """The learning rate of a step, from 1."""
        rate = self.schedule(step, peak=self.peak_lr, warmup=self.warmup_steps)
        if self.steps and self.cooldown_steps:
            rate *= min(1.0, max(0, self.steps - step) / self.cooldown_steps)
        return rate
