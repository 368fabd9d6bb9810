# Generated from the front matter of chapters/*.md: edit it there and `make export`, or here and `make sync`.
"""The public names of this package."""

from transformer_lib.variants.ensemble import Ensemble, ensemble_of
from transformer_lib.variants.families import DecoderOnly, EncoderOnly, mask_tokens
from transformer_lib.variants.grouped_attention import GroupedQueryAttention
from transformer_lib.variants.modern_blocks import SwiGLU, rotary
from transformer_lib.variants.modern_decoder import ModernDecoderOnly

__all__ = [
    "DecoderOnly",
    "EncoderOnly",
    "Ensemble",
    "GroupedQueryAttention",
    "ModernDecoderOnly",
    "SwiGLU",
    "ensemble_of",
    "mask_tokens",
    "rotary",
]
