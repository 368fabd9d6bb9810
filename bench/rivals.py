"""Our model's weights in other people's decoders, so that all systems compute the same numbers.

Each `…_decoder(model)` returns a function (source, beam_size, length) -> token lists, of exactly `length` tokens for a
model that never ends a sentence.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.decoding import beam_search, greedy_decode
from transformer_lib.engine import export
from transformer_lib.model import Transformer
from transformer_lib.translation import Translator

PAD, BOS, EOS = 0, 1, 2
Decode = Callable[[Tensor, int, int], list[list[int]]]


def our_decoder(model: Transformer) -> Decode:
    """What the course exports."""
    tokens = {"bos_id": BOS, "eos_id": EOS}

    def decode(source: Tensor, beam_size: int, length: int) -> list[list[int]]:
        if beam_size == 1:
            return greedy_decode(model, source, **tokens, max_length=length)
        found = beam_search(model, source, **tokens, beam_size=beam_size, max_length=length)
        return [best.tokens for best, *_ in found]

    return decode


def marian_decoder(model: Transformer) -> Decode:
    """Hugging Face's MarianMTModel and its `generate`."""
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    config = model.config
    sizes = {}
    for side, layers in (("encoder", config.num_encoder_layers), ("decoder", config.num_decoder_layers)):
        sizes |= {f"{side}_layers": layers, f"{side}_ffn_dim": config.d_ff, f"{side}_attention_heads": config.num_heads}
    special = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "decoder_start_token_id": BOS}
    marian = MarianMTModel(
        MarianConfig(
            vocab_size=config.source_vocab_size, d_model=config.d_model, max_position_embeddings=config.max_len,
            activation_function="relu", scale_embedding=True, forced_eos_token_id=None, **sizes, **special,
        )
    ).eval()  # fmt: skip
    with torch.no_grad():
        marian.model.shared.weight.copy_(model.target_embedding.weight)
        for ours, theirs in ((model.encoder, marian.model.encoder), (model.decoder, marian.model.decoder)):
            theirs.embed_positions.weight.copy_(model.positions.table)
            for a, b in zip(ours.layers, theirs.layers):
                _copy_attention(a.self_attention, b.self_attn)
                pairs = [(a.self_attention_norm, b.self_attn_layer_norm), (a.feed_forward_norm, b.final_layer_norm)]
                pairs += [(a.feed_forward.linear1, b.fc1), (a.feed_forward.linear2, b.fc2)]
                if ours is model.decoder:
                    _copy_attention(a.cross_attention, b.encoder_attn)
                    pairs.append((a.cross_attention_norm, b.encoder_attn_layer_norm))
                for mine, other in pairs:
                    other.load_state_dict(mine.state_dict())

    def decode(source: Tensor, beam_size: int, length: int) -> list[list[int]]:
        settings = GenerationConfig(
            max_new_tokens=length, num_beams=beam_size, do_sample=False, length_penalty=1.0, early_stopping=False,
            **special,
        )  # fmt: skip
        with torch.inference_mode():
            found = marian.generate(source, attention_mask=source != PAD, generation_config=settings)
        return found[:, 1:].tolist()

    return decode


def _copy_attention(ours: nn.Module, theirs: Any) -> None:
    parts = (theirs.q_proj, theirs.k_proj, theirs.v_proj)
    for part, weight, bias in zip(parts, ours.in_projection.weight.chunk(3), ours.in_projection.bias.chunk(3)):
        part.weight.copy_(weight)
        part.bias.copy_(bias)
    theirs.out_proj.load_state_dict(ours.out_projection.state_dict())


class Numbers:
    """What `export` asks of a tokenizer: token n is called "n"."""

    pad_id, bos_id, eos_id = PAD, BOS, EOS

    def __init__(self, size: int):
        self.size = size

    def to_json(self) -> str:
        return json.dumps({"model": {"vocab": {str(n): n for n in range(self.size)}}})

    def save(self, path: Path) -> None:
        path.write_text(self.to_json())


def ctranslate2_decoder(model: Transformer, *, threads: int = 1) -> Decode:
    """CTranslate2 in float32: compiled C++ made for nothing but this."""
    import ctranslate2

    with tempfile.TemporaryDirectory() as folder:
        export(Translator(model, Numbers(model.config.target_vocab_size)), folder)
        engine = ctranslate2.Translator(
            folder, device="cpu", compute_type="float32", inter_threads=1, intra_threads=threads
        )

    def decode(source: Tensor, beam_size: int, length: int) -> list[list[int]]:
        rows = [[str(token) for token in row if token != PAD] for row in source.tolist()]
        found = engine.translate_batch(rows, beam_size=beam_size, max_decoding_length=length, length_penalty=1.0)
        return [[int(name) for name in best.hypotheses[0]] for best in found]

    return decode
