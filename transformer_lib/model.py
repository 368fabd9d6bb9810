# Generated from chapters/07_model.md: edit it there and `make export`, or here and `make sync`.

"""The full encoder-decoder Transformer and its configuration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer_lib.cache import KeyValueCache
from transformer_lib.layers import DecoderLayer, EncoderLayer
from transformer_lib.masks import causal_mask, decoder_mask, padding_mask
from transformer_lib.positions import SinusoidalPositionalEncoding
from transformer_lib.settings import require_types

SourceTokens = Int[Tensor, "batch n"]
TargetTokens = Int[Tensor, "batch m"]
Source = Float[Tensor, "batch n d_model"]  # a vector for each source token
Target = Float[Tensor, "batch m d_model"]
SourceMask = Bool[Tensor, "#batch #heads #n #keys"]
TargetMask = Bool[Tensor, "#batch #heads #m #keys"]
MemoryMask = Bool[Tensor, "#batch #heads #m #n"]
Logits = Float[Tensor, "batch m vocabulary"]


@dataclass(frozen=True)
class TransformerConfig:
    """The shape of a Transformer; the defaults are the sizes of the paper's base model (Vaswani et al. 2017, table 3).

    Args:
        source_vocab_size: size of the source vocabulary.
        target_vocab_size: size of the target vocabulary.
        pad_id: id of the padding token, in both vocabularies.
        d_model: width of the tokens, a multiple of `num_heads`.
        num_heads: heads of each attention.
        d_ff: inner width of the feed-forward networks.
        num_encoder_layers: depth of the encoder.
        num_decoder_layers: depth of the decoder.
        dropout: on embeddings and on what each sub-layer adds.
        attention_dropout: on attention weights.
        max_len: the longest source or target, in tokens.
        norm_first: False = post-norm, as in the paper; True = pre-norm.
        tie_embeddings: "none"; "target" = target embedding and output projection are one matrix; "all" = source
            embedding as well.

    Raises:
        ValueError: a value is of another type or out of its range, or `tie_embeddings="all"` comes with unequal
            vocabularies.
    """

    source_vocab_size: int
    target_vocab_size: int
    pad_id: int
    d_model: int = 512
    num_heads: int = 8
    d_ff: int = 2048
    num_encoder_layers: int = 6
    num_decoder_layers: int = 6
    dropout: float = 0.1
    attention_dropout: float = 0.0
    max_len: int = 1024
    norm_first: bool = False
    tie_embeddings: str = "none"

    def __post_init__(self) -> None:
        require_types(self)
        for name in ("source_vocab_size", "target_vocab_size", "d_model", "num_heads", "d_ff",
                     "num_encoder_layers", "num_decoder_layers", "max_len"):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1; got {getattr(self, name)}")
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1; got {getattr(self, name)}")
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model must be a multiple of num_heads; got {self.d_model} and {self.num_heads}")
        sizes = self.source_vocab_size, self.target_vocab_size
        if not 0 <= self.pad_id < min(sizes):
            raise ValueError(f"pad_id must be a token of both vocabularies (sizes {sizes}); got {self.pad_id}")
        if self.tie_embeddings not in ("none", "target", "all"):
            raise ValueError(f"tie_embeddings must be 'none', 'target' or 'all'; got {self.tie_embeddings!r}")
        if self.tie_embeddings == "all" and sizes[0] != sizes[1]:
            raise ValueError(f"tie_embeddings='all' needs one joint vocabulary; got sizes {sizes}")

    def layer_arguments(self) -> dict[str, Any]:
        """The arguments that every layer of this model takes."""
        names = ("d_model", "num_heads", "d_ff", "dropout", "attention_dropout", "norm_first")
        return {name: getattr(self, name) for name in names}


class Encoder(nn.Module):
    """A stack of encoder layers; a pre-norm stack ends with one more norm.

    Args:
        config: sizes, dropout and the order of norms.
        norm: makes each norm: norm(d_model).
        parts: what else the layers are to be made of: arguments of `EncoderLayer`.
    """

    def __init__(
        self, config: TransformerConfig, *, norm: Callable[[int], nn.Module] = nn.LayerNorm, **parts: Any
    ) -> None:
        super().__init__()
        arguments = config.layer_arguments() | {"norm": norm} | parts
        self.layers = nn.ModuleList(EncoderLayer(**arguments) for _ in range(config.num_encoder_layers))
        self.norm = norm(config.d_model) if config.norm_first else nn.Identity()

    def forward(
        self, x: Source, *, mask: SourceMask | None = None, is_causal: bool = False, cache: KeyValueCache | None = None
    ) -> Source:
        """Map (batch, length, d_model) to the same shape; the arguments are those of `EncoderLayer`."""
        for number, layer in enumerate(self.layers):
            own = None if cache is None else cache.layers[number].self_attention
            x = layer(x, mask=mask, is_causal=is_causal, cache=own)
        return self.norm(x)


class Decoder(nn.Module):
    """A stack of decoder layers; a pre-norm stack ends with one more norm. The arguments are those of `Encoder`."""

    def __init__(
        self, config: TransformerConfig, *, norm: Callable[[int], nn.Module] = nn.LayerNorm, **parts: Any
    ) -> None:
        super().__init__()
        arguments = config.layer_arguments() | {"norm": norm} | parts
        self.layers = nn.ModuleList(DecoderLayer(**arguments) for _ in range(config.num_decoder_layers))
        self.norm = norm(config.d_model) if config.norm_first else nn.Identity()

    def forward(
        self, x: Target, memory: Source, *, mask: TargetMask | None = None, memory_mask: MemoryMask | None = None,
        is_causal: bool = False, cache: KeyValueCache | None = None,
    ) -> Target:  # fmt: skip
        """Map (batch, target length, d_model) to the same shape; the arguments are those of `DecoderLayer`."""
        options = {"mask": mask, "memory_mask": memory_mask, "is_causal": is_causal}
        for number, layer in enumerate(self.layers):
            x = layer(x, memory, **options, cache=None if cache is None else cache.layers[number])
        return self.norm(x)


class Memory(NamedTuple):
    """What the encoder hands to the decoder: the source's states, and which of its positions may be attended to.

    Args:
        states: the encoder's output (batch, source length, d_model).
        mask: boolean, True = may attend, broadcastable to (batch, heads, target length, source length).
    """

    states: Source
    mask: MemoryMask


class Transformer(nn.Module):
    """Encoder-decoder Transformer (Vaswani et al. 2017): token ids in, logits of each next token out.

    Args:
        config: its shape.
        parts: what its layers are made of: arguments of `EncoderLayer`, for both stacks.
    """

    def __init__(self, config: TransformerConfig, **parts: Any) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = nn.Embedding(config.source_vocab_size, config.d_model)
        self.target_embedding = nn.Embedding(config.target_vocab_size, config.d_model)
        self.output_projection = nn.Linear(config.d_model, config.target_vocab_size, bias=False)
        if config.tie_embeddings != "none":
            self.output_projection.weight = self.target_embedding.weight
        if config.tie_embeddings == "all":
            self.source_embedding.weight = self.target_embedding.weight
        for module in (self.source_embedding, self.target_embedding, self.output_projection):
            nn.init.normal_(module.weight, std=config.d_model**-0.5)  # times √d_model: rms 1
        self.positions = SinusoidalPositionalEncoding(config.d_model, config.max_len)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = Encoder(config, **parts)
        self.decoder = Decoder(config, **parts)

    def forward(self, source_tokens: SourceTokens, target_tokens: TargetTokens, *, is_causal: bool = False) -> Logits:
        """Score every next token. The padding and causal masks are built here.

        Args:
            source_tokens: (batch, source length), whole numbers.
            target_tokens: (batch, target length), shifted right: position i holds the token before the one predicted.
            is_causal: use the causal kernel without the target's padding mask: right for batches padded on the right.

        Returns:
            Logits (batch, target length, target_vocab_size). Position i depends on target tokens 0 … i only.

        Raises:
            ValueError: the tokens are not whole numbers in two dimensions or, on a CPU, not in the vocabulary, the
                batches differ, or a sequence is longer than `max_len`.
        """
        return self.output_projection(self.hidden_states(source_tokens, target_tokens, is_causal=is_causal))

    def hidden_states(
        self, source_tokens: SourceTokens, target_tokens: TargetTokens, *, is_causal: bool = False
    ) -> Target:
        """What becomes logits: (batch, target length, d_model); arguments and errors as in `forward`."""
        if source_tokens.size(0) != target_tokens.size(0):
            shapes = f"{tuple(source_tokens.shape)} and {tuple(target_tokens.shape)}"
            raise ValueError(f"source and target must have the same batch; got {shapes}")
        return self.decode(target_tokens, self.encode(source_tokens), is_causal=is_causal)

    def encode(self, source_tokens: SourceTokens) -> Memory:
        """Turn source tokens (batch, source length) into the memory, with a mask of their padding."""
        mask = padding_mask(source_tokens, self.config.pad_id)
        return Memory(self.encoder(self.embed(source_tokens, self.source_embedding), mask=mask), mask)

    def decode(
        self, target_tokens: TargetTokens, memory: Memory, *, is_causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Target:  # fmt: skip
        """Turn target tokens and the memory into hidden states; `output_projection` makes logits of them.

        A position attends to itself and to those before it, and not to padding.

        Args:
            target_tokens: (batch, target length); with a cache, only the tokens that are not yet cached.
            memory: what `encode` returned, with the same batch.
            is_causal: use the causal kernel without a padding mask: right for batches padded on the right.
            cache: keys and values of earlier calls; padding is not masked then, either.

        Returns:
            (batch, target length, d_model).
        """
        offset, mask, new = 0 if cache is None else cache.length, None, target_tokens.size(1)
        if cache is None and not is_causal:
            mask = decoder_mask(target_tokens, self.config.pad_id)
        if cache is not None and new > 1:  # a single token sees all of the cache
            mask = causal_mask(offset + new, start=offset, device=target_tokens.device)  # (1, 1, m, all)
        x = self.embed(target_tokens, self.target_embedding, offset)
        return self.decoder(x, memory.states, mask=mask, memory_mask=memory.mask, is_causal=is_causal, cache=cache)

    def embed(
        self, tokens: Int[Tensor, "batch length"], embedding: nn.Embedding, offset: int = 0
    ) -> Float[Tensor, "batch length d_model"]:
        """What enters a stack: rows of the embedding times √d_model, plus the positions from `offset` on."""
        try:
            x = embedding(tokens) * math.sqrt(self.config.d_model)  # (batch, length, d_model)
        except IndexError as error:  # on a CPU; a GPU would have to wait to be asked
            raise unknown_ids(tokens, embedding) from error
        return self.dropout(self.positions(x, offset=offset))


def unknown_ids(tokens: Int[Tensor, "batch length"], embedding: nn.Embedding) -> ValueError:
    """What to raise when an embedding lacks some of these tokens."""
    got = f"{int(tokens.min())} to {int(tokens.max())}"
    return ValueError(f"expected token ids from 0 to {embedding.num_embeddings - 1}; got {got}")


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """No dropout and no gradients inside; every module's own mode is restored afterwards. For one thread at a time."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():  # inference mode would let autocast round all weights again for each token
            yield
    finally:
        for module in training:
            module.training = True
