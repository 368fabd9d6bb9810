# Generated from chapters/07b_count.md: edit it there and `make export`, or here and `make sync`.

"""The grader of page 07b."""

import torch

from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.model import Transformer, TransformerConfig


def grade_07b_1(answer: Answer) -> Checks:
    """Against the model itself, on a device that holds shapes only."""
    for words, (d_model, d_ff), depths in (
        ((1, 1), (1, 1), (1, 1)),
        ((5, 7), (4, 6), (1, 2)),
        ((90, 99), (64, 9), (6, 3)),
    ):
        for tie in ("none", "target"):
            for norm_first in (False, True):
                config = TransformerConfig(
                    *words, pad_id=0, d_model=d_model, num_heads=1, d_ff=d_ff, num_encoder_layers=depths[0],
                    num_decoder_layers=depths[1], tie_embeddings=tie, norm_first=norm_first,
                )  # fmt: skip
                with torch.device("meta"):
                    model = Transformer(config)
                total = sum(parameter.numel() for parameter in model.parameters())
                count = answer(*words, d_model, d_ff, *depths, tie, norm_first)
                yield f"the model has {total:,} parameters", close(count, total, 0)
