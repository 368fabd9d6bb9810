# Generated from the front matter of chapters/*.md: edit it there and `make export`, or here and `make sync`.
"""The public names of this package."""

from transformer_lib.training.config import TrainingConfig, inverse_sqrt_schedule
from transformer_lib.training.loop import train
from transformer_lib.training.loss import translation_loss
from transformer_lib.training.state import load_state, save_state

__all__ = ["TrainingConfig", "inverse_sqrt_schedule", "load_state", "save_state", "train", "translation_loss"]
