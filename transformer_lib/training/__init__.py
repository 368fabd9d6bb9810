# Generated from the front matter of chapters/*.md: edit there and run `make export`, or edit here and run `make sync`.
"""The public names of this package."""

from transformer_lib.training.config import TrainingConfig, inverse_sqrt_schedule
from transformer_lib.training.loop import train
from transformer_lib.training.loss import translation_loss

__all__ = ["TrainingConfig", "inverse_sqrt_schedule", "train", "translation_loss"]
