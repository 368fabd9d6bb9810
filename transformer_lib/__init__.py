# Generated from the front matter of chapters/*.md: edit the chapter, not this file, then run `make export`.
"""The library that the course writes."""

from importlib import import_module
from typing import TYPE_CHECKING

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.cost import (
    Product,
    attention_memory,
    count_parameters,
    decoding_flops,
    forward_flops,
    matrix_products,
    training_flops,
)
from transformer_lib.data import (
    Batch,
    ParallelCorpus,
    Tokenizer,
    encode_pairs,
    load_multi30k,
    read_lines,
    read_parallel,
    token_batches,
    toy_corpus,
    toy_oracle,
)
from transformer_lib.decoding import Hypothesis, KeyValueCache, beam_search, greedy_decode, sample_decode
from transformer_lib.files import (
    UserError,
    atomic_path,
    atomic_write,
    load_state,
    load_weights,
    save_state,
    save_weights,
)
from transformer_lib.layers import DecoderLayer, EncoderLayer, FeedForward
from transformer_lib.masks import causal_mask, decoder_mask, padding_mask
from transformer_lib.model import Decoder, Encoder, Transformer, TransformerConfig
from transformer_lib.multi_head import MultiHeadAttention
from transformer_lib.positions import LearnedPositionalEncoding, SinusoidalPositionalEncoding, sinusoidal_table
from transformer_lib.training import TrainingConfig, inverse_sqrt_schedule, train, translation_loss
from transformer_lib.translation import Translator, evaluate_bleu
from transformer_lib.variants import (
    DecoderOnly,
    EncoderOnly,
    GroupedQueryAttention,
    ModernDecoderOnly,
    SwiGLU,
    mask_tokens,
    rotary,
)

if TYPE_CHECKING:
    from transformer_lib.checks import (
        Finding,
        Report,
        assert_transformer,
        check_attention,
        check_decoder_layer,
        check_encoder_layer,
        check_masks,
        check_multi_head_attention,
        check_positional_encoding,
        check_transformer,
    )
    from transformer_lib.exercises import grade
__version__ = "0.1.0"
__all__ = [
    "Batch",
    "Decoder",
    "DecoderLayer",
    "DecoderOnly",
    "Encoder",
    "EncoderLayer",
    "EncoderOnly",
    "FeedForward",
    "Finding",
    "GroupedQueryAttention",
    "Hypothesis",
    "KeyValueCache",
    "LearnedPositionalEncoding",
    "ModernDecoderOnly",
    "MultiHeadAttention",
    "ParallelCorpus",
    "Product",
    "Report",
    "SinusoidalPositionalEncoding",
    "SwiGLU",
    "Tokenizer",
    "TrainingConfig",
    "Transformer",
    "TransformerConfig",
    "Translator",
    "UserError",
    "assert_transformer",
    "atomic_path",
    "atomic_write",
    "attention_memory",
    "beam_search",
    "causal_mask",
    "check_attention",
    "check_decoder_layer",
    "check_encoder_layer",
    "check_masks",
    "check_multi_head_attention",
    "check_positional_encoding",
    "check_transformer",
    "count_parameters",
    "decoder_mask",
    "decoding_flops",
    "encode_pairs",
    "evaluate_bleu",
    "forward_flops",
    "grade",
    "greedy_decode",
    "inverse_sqrt_schedule",
    "load_multi30k",
    "load_state",
    "load_weights",
    "mask_tokens",
    "matrix_products",
    "padding_mask",
    "read_lines",
    "read_parallel",
    "rotary",
    "sample_decode",
    "save_state",
    "save_weights",
    "scaled_dot_product_attention",
    "sinusoidal_table",
    "token_batches",
    "toy_corpus",
    "toy_oracle",
    "train",
    "training_flops",
    "translation_loss",
]
_LATER = {
    "exercises": ["grade"],
    "checks": [
        "check_transformer",
        "assert_transformer",
        "Report",
        "Finding",
        "check_attention",
        "check_multi_head_attention",
        "check_positional_encoding",
        "check_masks",
        "check_encoder_layer",
        "check_decoder_layer",
    ],
}


def __getattr__(name: str) -> object:
    """Import a package inside this one when somebody asks for it: most programs need neither checks nor exercises."""
    for package, names in _LATER.items():
        if name == package or name in names:
            module = import_module(f"{__name__}.{package}")
            return module if name == package else getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
