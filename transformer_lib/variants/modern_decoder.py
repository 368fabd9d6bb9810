# Generated from chapters/15c_llama.md: edit it there and `make export`, or here and `make sync`.

"""A decoder-only model with the components that are newer than 2017."""

from __future__ import annotations

from functools import partial

from torch import nn

from transformer_lib.model import TransformerConfig
from transformer_lib.variants.families import DecoderOnly
from transformer_lib.variants.grouped_attention import GroupedQueryAttention
from transformer_lib.variants.modern_blocks import SwiGLU, rotary


class ModernDecoderOnly(DecoderOnly):
    """`DecoderOnly` with newer components: RMSNorm, rotary grouped-query attention, SwiGLU, no biases.

    On the same weights it computes what Llama does (Touvron et al. 2023, section 2.2).

    Args:
        config: as in `DecoderOnly`, with `norm_first=True`; `d_ff` is the SwiGLU's inner width. `max_len` does not
            count: rotary positions have no table that ends.
        num_groups: key and value heads; None = as many as heads.

    Raises:
        ValueError: `config.norm_first` is False, num_groups does not divide the heads, or a head's width is odd.
    """

    def __init__(self, config: TransformerConfig, *, num_groups: int | None = None) -> None:
        if not config.norm_first:
            raise ValueError("the newer components come in pre-norm order: expected norm_first=True; got False")
        if config.d_model // config.num_heads % 2:
            raise ValueError(
                f"rotary positions need an even d_model / num_heads; got {config.d_model} / {config.num_heads}"
            )
        super().__init__(
            config,
            learned_positions=False,  # attention itself knows them
            attention=partial(GroupedQueryAttention, bias=False, num_groups=num_groups, positions=rotary),
            feed_forward=SwiGLU,
            norm=partial(nn.RMSNorm, eps=1e-6),
        )
