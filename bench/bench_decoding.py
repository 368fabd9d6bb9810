"""Decoding: 200 test sentences, exactly 20 tokens each, on one thread.

All systems hold the same random weights, so they compute the same numbers. Each run tells a checksum of the tokens it
gave: it is the same for all. The row of the end token is zero, so that nothing ends early.
"""

import functools
import zlib

import pytest
import rivals
import torch
from side_by_side import interleaved
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data import Tokenizer, load_multi30k
from transformer_lib.model import Transformer, TransformerConfig

SENTENCES, TOKENS, VOCABULARY = 200, 20, 10_000


def model() -> Transformer:
    """The same random weights in every process."""
    torch.manual_seed(0)
    config = TransformerConfig(
        VOCABULARY, VOCABULARY, pad_id=rivals.PAD, d_model=128, num_heads=4, d_ff=256, num_encoder_layers=4,
        num_decoder_layers=4, max_len=128, tie_embeddings="all",
    )  # fmt: skip
    random = Transformer(config).eval()
    with torch.no_grad():
        random.target_embedding.weight[[rivals.PAD, rivals.BOS, rivals.EOS]] = 0
    return random


def batches(size: int) -> list[torch.Tensor]:
    """The first sentences of the test set, those of similar length together, padded on the right."""
    train, test = load_multi30k("train"), load_multi30k("test_2016_flickr")
    tokenizer = Tokenizer.train(train.source + train.target, vocab_size=VOCABULARY)
    sentences = sorted((tokenizer.encode(sentence) for sentence in test.source[:SENTENCES]), key=len)
    rows = [torch.tensor(sentence) for sentence in sentences]
    return [pad_sequence(rows[start : start + size], batch_first=True) for start in range(0, SENTENCES, size)]


def system(decoder, package: str | None, batch: int, beam: int):
    """What is timed: all batches, one after the other."""
    if package:
        pytest.importorskip(package)
    decode, ready = decoder(model()), batches(batch)

    def run() -> dict:
        found = [row for source in ready for row in decode(source, beam, TOKENS)]
        assert len(found) == SENTENCES
        assert all(len(row) == TOKENS for row in found)
        return {"tokens_crc32": f"{zlib.crc32(repr(found).encode()):08x}"}

    return run


def comparison(group: str, batch: int, beam: int, rounds: int):
    """One group of the record."""
    parts = {
        "transformer_lib": (rivals.our_decoder, None),
        "Hugging Face Marian, generate": (rivals.marian_decoder, "transformers"),
        "CTranslate2, float32": (rivals.ctranslate2_decoder, "ctranslate2"),
    }
    return interleaved(
        group,
        {name: functools.partial(system, *part, batch, beam) for name, part in parts.items()},
        rounds=rounds, threads=1, sentences=SENTENCES, tokens=TOKENS, batch=batch, beam=beam,
    )  # fmt: skip


test_greedy = comparison("decoding: greedy, batch 50", batch=50, beam=1, rounds=7)
test_beam = comparison("decoding: beam 5, batch 50", batch=50, beam=5, rounds=5)
test_single = comparison("decoding: greedy, one sentence at a time", batch=1, beam=1, rounds=3)
