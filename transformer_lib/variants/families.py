# Generated from chapters/15c_llama.md: edit it there and `make export`, or here and `make sync`.

"""Three families from the same layers: encoder-only and decoder-only models."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from transformer_lib.cache import KeyValueCache
from transformer_lib.decoding.sampling import require_sampling_parameters, sampler
from transformer_lib.decoding.search_state import SearchState, require_finite
from transformer_lib.masks import causal_mask, padding_mask
from transformer_lib.model import Encoder, TransformerConfig, evaluation, unknown_ids
from transformer_lib.positions import LearnedPositionalEncoding


class _OneStack(nn.Module):
    """What both families share: tokens and positions go in, one stack works, logits come out."""

    def __init__(
        self, config: TransformerConfig, vocab_size: int, depth: int, *, learned_positions: bool = True, **parts: Any
    ) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocab_size, config.d_model)
        self.positions = LearnedPositionalEncoding(config.d_model, config.max_len) if learned_positions else None
        self.embedding_norm = nn.Identity() if config.norm_first else nn.LayerNorm(config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.stack = Encoder(replace(config, num_encoder_layers=depth), **parts)
        self.output_projection = nn.Linear(config.d_model, vocab_size, bias=False)
        if config.tie_embeddings != "none":
            self.output_projection.weight = self.embedding.weight
        for module in (self.embedding, self.output_projection):
            nn.init.normal_(module.weight, std=config.d_model**-0.5)  # as large as the positions

    def _embed(self, tokens: Int[Tensor, "batch n"], offset: int = 0) -> Float[Tensor, "batch n d_model"]:
        try:
            x = self.embedding(tokens)  # (batch, n, d_model)
        except IndexError as error:  # on a CPU; a GPU would have to wait to be asked
            raise unknown_ids(tokens, self.embedding) from error
        if self.positions is not None:
            x = self.positions(x, offset=offset)
        return self.dropout(self.embedding_norm(x))


class DecoderOnly(_OneStack):
    """A token sees itself and what stands before it: predicts the next one (Radford et al. 2019, section 2.3).

    Args:
        config: as in `EncoderOnly`, but `target_vocab_size` and `num_decoder_layers` count; `norm_first=True` is
            GPT-2's order.
        options: as in `EncoderOnly`.
    """

    def __init__(self, config: TransformerConfig, **options: Any) -> None:
        super().__init__(config, config.target_vocab_size, config.num_decoder_layers, **options)

    def forward(
        self, tokens: Int[Tensor, "batch n"], *, cache: KeyValueCache | None = None
    ) -> Float[Tensor, "batch n vocabulary"]:
        """Score the next token after every position.

        Args:
            tokens: (batch, length); padding may stand on the right, where no real token sees it. With a cache, only
                the new tokens, one or more.
            cache: keys and values of earlier tokens, a `KeyValueCache(config.num_decoder_layers)`.

        Returns:
            Logits (batch, length, target_vocab_size). Position i depends on tokens 0 … i only.

        Raises:
            ValueError: a token stands beyond `max_len`.
        """
        offset, mask, new = 0 if cache is None else cache.length, None, tokens.size(1)
        if cache is not None and new > 1:  # a single token sees all of the cache
            mask = causal_mask(offset + new, start=offset, device=tokens.device)  # (1, 1, new, all)
        x = self._embed(tokens, offset)
        return self.output_projection(self.stack(x, mask=mask, is_causal=cache is None, cache=cache))

    def generate(
        self,
        prompt: Int[Tensor, "batch n"],
        max_length: int,
        *,
        eos_id: int | None = None,
        seed: int | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        use_cache: bool = True,
    ) -> Int[Tensor, "batch m"]:
        """Continue each prompt, token by token, without dropout.

        Args:
            prompt: (batch, prompt length), without padding.
            max_length: the largest number of new tokens, the end token counted. With those of the prompt they are at
                most `max_len`.
            eos_id: the token after which a row holds only padding; None = there is none.
            seed: of a sample; None = take the most probable token.
            temperature: of a sample; seed, temperature, `top_k` and `top_p` draw the same tokens as in `sample_decode`.
            top_k: how many of the most probable tokens may be drawn; None = all.
            top_p: only the smallest set of most probable tokens with this probability may be drawn.
            use_cache: False computes all earlier positions anew at each step; the result is the same up to
                rounding.

        Returns:
            Prompts and continuations (batch, prompt length + `max_length`, or fewer if all rows ended).

        Raises:
            ValueError: the prompts are not whole numbers in two dimensions, are empty or hold padding, `eos_id` is
                padding, or `max_length`, the temperature, top_k or top_p is out of its range.
            InputError: the logits are not finite.
        """
        pad = self.config.pad_id
        real = padding_mask(prompt, pad)  # (batch, 1, 1, prompt length)
        if prompt.size(1) == 0 or not real.all():
            got = f"shape {tuple(prompt.shape)}, of which {int((~real).sum())} padding"
            raise ValueError(f"expected prompts of one token or more, without padding; got {got}")
        if eos_id == pad:
            raise ValueError(f"eos_id must differ from the model's pad_id; got {eos_id} for both")
        most = math.inf if self.positions is None else self.config.max_len - prompt.size(1)
        if not 1 <= max_length <= most:
            raise ValueError(f"max_length must be from 1 to {most}, what the prompt leaves; got {max_length}")
        require_sampling_parameters(temperature, top_k, top_p)
        drawn = None if seed is None else sampler(len(prompt), seed, temperature, top_k, top_p)
        length = prompt.size(1) + max_length
        ended = torch.zeros_like(prompt[:, 0], dtype=torch.bool)  # (batch,)
        with evaluation(self):
            state = SearchState(self, prompt, use_cache=use_cache)
            while state.tokens.size(1) < length and not ended.all():
                logits = state.logits()  # (batch, vocabulary)
                require_finite(logits.amax(dim=-1))
                logits[:, pad] = -torch.inf  # padding is never a word
                new = logits.argmax(dim=-1) if drawn is None else drawn(logits, state.sentences)  # (batch,)
                new = new.masked_fill(ended, pad)
                ended = ended | (new == eos_id) if eos_id is not None else ended
                state.append(new)
        return state.tokens.clone()  # copied outside, so that a model may be trained on it


class EncoderOnly(_OneStack):
    """Every token sees every other: fills in masked tokens, makes sentence vectors (Devlin et al. 2019, section 3).

    Args:
        config: `source_vocab_size` and `num_encoder_layers` count here, those of the target do not.
            `norm_first=False` is BERT's order. `tie_embeddings` other than "none" ties the only embedding.
        options: `learned_positions=False` adds no positions to the embedding, and `max_len` does not count then; the
            others say what the stack is made of: arguments of `Encoder`.
    """

    def __init__(self, config: TransformerConfig, **options: Any) -> None:
        super().__init__(config, config.source_vocab_size, config.num_encoder_layers, **options)

    def forward(self, tokens: Int[Tensor, "batch n"]) -> Float[Tensor, "batch n vocabulary"]:
        """Score every token at every position.

        Args:
            tokens: (batch, length), padded with the configuration's `pad_id` on the right. Padding on the left is
                masked as well, but moves the tokens to later positions, and so changes the result.

        Returns:
            Logits (batch, length, source_vocab_size).

        Raises:
            ValueError: the tokens are not whole numbers in two dimensions, or longer than `max_len`.
        """
        return self.output_projection(self.hidden_states(tokens))

    def hidden_states(self, tokens: Int[Tensor, "batch n"]) -> Float[Tensor, "batch n d_model"]:
        """Turn tokens into hidden states (batch, length, d_model); arguments as in `forward`."""
        mask = padding_mask(tokens, self.config.pad_id)  # first: it refuses what are no tokens
        return self.stack(self._embed(tokens), mask=mask)

    def sentence_vector(self, tokens: Int[Tensor, "batch n"]) -> Float[Tensor, "batch d_model"]:
        """Average the hidden states of each sentence's real tokens; zeros if it has none.

        Args:
            tokens: as in `forward`.

        Returns:
            (batch, d_model).
        """
        hidden = self.hidden_states(tokens)  # (batch, n, d_model)
        real = (tokens != self.config.pad_id)[:, :, None]  # (batch, n, 1)
        return (hidden * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)  # (batch, d_model)


def mask_tokens(
    tokens: Int[Tensor, "batch n"],
    *,
    mask_id: int,
    pad_id: int,
    vocab_size: int,
    rate: float = 0.15,
    generator: torch.Generator | None = None,
) -> tuple[Int[Tensor, "batch n"], Bool[Tensor, "batch n"]]:
    """Choose tokens to be predicted, and hide most of them (Devlin et al. 2019, section 3.1, task 1).

    Args:
        tokens: (batch, length).
        mask_id: what 80 % of the chosen tokens become; 10 % become a random token, 10 % stay.
        pad_id: padding is never chosen, and no token becomes padding.
        vocab_size: number of tokens.
        rate: the probability with which a real token is chosen.
        generator: where the random numbers come from. They are drawn on its device, and moved to that of the tokens.

    Returns:
        The model's input (batch, length), and which positions were chosen, boolean (batch, length).

    Raises:
        ValueError: the rate is not between 0 and 1.
    """
    if not 0 < rate < 1:
        raise ValueError(f"rate must be above 0 and below 1; got {rate}")
    device = tokens.device if generator is None else generator.device
    coin, fate = torch.rand(2, *tokens.shape, generator=generator, device=device).to(tokens.device)  # each (batch, n)
    chosen = (coin < rate) & (tokens != pad_id)
    other = torch.randint(vocab_size - 1, tokens.shape, generator=generator, device=device).to(tokens.device)
    other += other >= pad_id  # any number but the padding's
    inputs = tokens.where(~chosen | (fate >= 0.9), other.where(fate >= 0.8, mask_id))  # 0.8 to 0.9: another
    return inputs, chosen
