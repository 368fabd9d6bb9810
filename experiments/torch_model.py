"""PyTorch's own Transformer in the place of ours: the same function, with dropout in the same places."""

import warnings

import torch
from torch import Tensor, nn

from transformer_lib.model import Transformer, TransformerConfig


def torch_stacks(config: TransformerConfig) -> nn.Transformer:
    """PyTorch's encoder and decoder of this size, with dropout where ours have it and nowhere else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pre-norm rules out nested tensors, which it says each time
        stacks = nn.Transformer(
            config.d_model, config.num_heads, config.num_encoder_layers, config.num_decoder_layers, config.d_ff,
            config.dropout, batch_first=True, norm_first=config.norm_first,
        )  # fmt: skip
    for module in stacks.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = config.attention_dropout
        if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
            module.dropout = nn.Identity()  # type: ignore[assignment]  # the one inside of the feed-forward network
    return stacks


class _Encoder(nn.Module):
    """PyTorch's encoder, called as ours."""

    def __init__(self, stack: nn.Module) -> None:
        super().__init__()
        self.stack = stack

    def forward(self, x: Tensor, *, mask: Tensor) -> Tensor:
        """Map (batch, n, d_model) to the same; the mask is that of the padding, (batch, 1, 1, n)."""
        return self.stack(x, src_key_padding_mask=~mask[:, 0, 0])


class _Decoder(_Encoder):
    """PyTorch's decoder, called as ours, as far as training and decoding without a cache ask for it."""

    def forward(  # type: ignore[override]
        self, x: Tensor, memory: Tensor, *, mask: None, memory_mask: Tensor, is_causal: bool, cache: None
    ) -> Tensor:
        """Map (batch, m, d_model), padded on the right, to the same; memory_mask is (batch, 1, 1, n)."""
        if mask is not None or cache is not None or not is_causal:
            raise NotImplementedError("only what training and decoding without a cache ask for")
        future = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).triu(1)  # True = hidden
        padding = ~memory_mask[:, 0, 0]
        return self.stack(x, memory, tgt_mask=future, tgt_is_causal=True, memory_key_padding_mask=padding)


class TorchTransformer(Transformer):
    """Our embeddings and projection around PyTorch's encoder and decoder."""

    has_cache = False

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        stacks = torch_stacks(config)
        self.encoder = _Encoder(stacks.encoder)  # type: ignore[assignment]
        self.decoder = _Decoder(stacks.decoder)  # type: ignore[assignment]
