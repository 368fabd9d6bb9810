"""Cost: what is no question, and how many operations a step starts. The formulas, chapter 14 holds to models."""

import pytest
import torch
from reference import Projection

from transformer_lib.cost import (
    Operations,
    attention_memory,
    decoding_flops,
)
from transformer_lib.data import Batch
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.recipes import PRESETS
from transformer_lib.training import TrainingConfig
from transformer_lib.training.config import adamw
from transformer_lib.training.train_step import LossModule, train_step


@pytest.mark.bad_input
def test_nothing_is_decoded_in_no_step_and_fused_attention_has_no_dropout():
    config = TransformerConfig(11, 17, pad_id=0)
    for n, m in ((5, 0), (0, 5), (5, -1)):
        with pytest.raises(ValueError, match=f"^expected lengths of at least 1; got {n} and {m}$"):
            decoding_flops(config, n, m, cached=n > 0)
    with pytest.raises(ValueError, match="no attention dropout: ask for fused=False"):
        attention_memory(8, 4, 2, dropout=True)


def test_a_training_step_dispatches_few_operations():
    """At the depth of the preset `small`; one more in each layer would be too many."""
    torch.manual_seed(0)
    sizes = PRESETS["small"]["model"] | {"d_model": 16, "num_heads": 2, "d_ff": 8}
    model, training = Transformer(TransformerConfig(20, 20, 0, **sizes)), TrainingConfig(steps=1)
    model.output_projection.__class__ = Projection
    batch = Batch(torch.randint(1, 20, (3, 5)), torch.randint(1, 20, (3, 6)))
    loss, optimizer = LossModule(model, training.label_smoothing), adamw(model, training)
    for number in (1, 2):  # the first one makes the optimiser's moments
        with Operations() as step:
            train_step(loss, [batch], 15, optimizer, training, number)
    assert len(step.moving) <= 540
    assert len(step.rows) <= (1420 if torch.__version__.startswith("2.13.") else 1550)  # torch 2.6 has more views
