# Generated from the front matter of chapters/*.md: edit it there and `make export`, or here and `make sync`.
"""The public names of this package."""

import sys

if sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].endswith(__name__) and not sys.flags.safe_path:
    sys.path.append(sys.path.pop(0))  # `python -m` puts the working directory first: a random.py there would be random

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.cache import KeyValueCache
from transformer_lib.cost import (
    Product,
    attention_memory,
    count_parameters,
    decoding_flops,
    forward_flops,
    matrix_products,
    training_flops,
)
from transformer_lib.data.batching import Batch, encode_pairs, token_batches
from transformer_lib.data.corpora import ParallelCorpus, load_multi30k, read_lines, read_parallel, toy_corpus
from transformer_lib.data.store import LargeCorpus, PairStore
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.data.toy_grammar import toy_oracle
from transformer_lib.decoding.sampling import sample_decode
from transformer_lib.decoding.search import Hypothesis, beam_search, greedy_decode
from transformer_lib.engine import load
from transformer_lib.files import InputError, atomic_path, atomic_write
from transformer_lib.layers import DecoderLayer, EncoderLayer, FeedForward
from transformer_lib.masks import causal_mask, decoder_mask, padding_mask
from transformer_lib.model import Decoder, Encoder, Memory, Transformer, TransformerConfig
from transformer_lib.multi_head import MultiHeadAttention
from transformer_lib.positions import LearnedPositionalEncoding, SinusoidalPositionalEncoding, sinusoidal_table
from transformer_lib.recipes import PRESETS, train_translator
from transformer_lib.scores import evaluate_bleu
from transformer_lib.training.config import TrainingConfig, inverse_sqrt_schedule
from transformer_lib.training.loop import train
from transformer_lib.training.loss import translation_loss
from transformer_lib.training.state import load_state, save_state
from transformer_lib.translation import Translator
from transformer_lib.variants.ensemble import Ensemble, ensemble_of
from transformer_lib.variants.families import DecoderOnly, EncoderOnly, mask_tokens
from transformer_lib.variants.grouped_attention import GroupedQueryAttention
from transformer_lib.variants.modern_blocks import SwiGLU, rotary
from transformer_lib.variants.modern_decoder import ModernDecoderOnly
from transformer_lib.weights import load_weights, save_weights

__all__ = [
    "Batch",
    "Decoder",
    "DecoderLayer",
    "DecoderOnly",
    "Encoder",
    "EncoderLayer",
    "EncoderOnly",
    "Ensemble",
    "FeedForward",
    "GroupedQueryAttention",
    "Hypothesis",
    "InputError",
    "KeyValueCache",
    "LargeCorpus",
    "LearnedPositionalEncoding",
    "Memory",
    "ModernDecoderOnly",
    "MultiHeadAttention",
    "PRESETS",
    "PairStore",
    "ParallelCorpus",
    "Product",
    "SinusoidalPositionalEncoding",
    "SwiGLU",
    "Tokenizer",
    "TrainingConfig",
    "Transformer",
    "TransformerConfig",
    "Translator",
    "atomic_path",
    "atomic_write",
    "attention_memory",
    "beam_search",
    "causal_mask",
    "count_parameters",
    "decoder_mask",
    "decoding_flops",
    "encode_pairs",
    "ensemble_of",
    "evaluate_bleu",
    "forward_flops",
    "greedy_decode",
    "inverse_sqrt_schedule",
    "load",
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
    "train_translator",
    "training_flops",
    "translation_loss",
]
__version__ = "0.1.0"
