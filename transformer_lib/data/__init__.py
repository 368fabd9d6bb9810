# Generated from the front matter of chapters/*.md: edit it there and `make export`, or here and `make sync`.
"""The public names of this package."""

from transformer_lib.data.batching import Batch, encode_pairs, token_batches
from transformer_lib.data.corpora import ParallelCorpus, load_multi30k, read_lines, read_parallel, toy_corpus
from transformer_lib.data.store import LargeCorpus, PairStore
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.data.toy_grammar import toy_oracle

__all__ = [
    "Batch",
    "LargeCorpus",
    "PairStore",
    "ParallelCorpus",
    "Tokenizer",
    "encode_pairs",
    "load_multi30k",
    "read_lines",
    "read_parallel",
    "token_batches",
    "toy_corpus",
    "toy_oracle",
]
