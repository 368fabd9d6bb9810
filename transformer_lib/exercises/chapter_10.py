# Generated from chapters/10_decoding.md: edit it there and `make export`, or here and `make sync`.

"""Graders of the exercises of chapter 10."""

from typing import Any

import torch

from transformer_lib.cache import KeyValueCache
from transformer_lib.decoding import beam_search
from transformer_lib.exercises import Answer, Checks, close
from transformer_lib.teaching import WORDS, TableModel, by_last_word, every_sentence


def grade_10_2(answer: Answer) -> Checks:
    """What a real cache holds."""
    for rows, layers, heads, d_k, target, source in (
        (1, 1, 1, 1, 1, 1), (1, 1, 1, 1, 2, 1), (1, 1, 1, 1, 1, 2), (1, 2, 1, 3, 1, 1), (2, 1, 2, 3, 4, 5),
        (3, 4, 2, 5, 6, 7),
    ):  # fmt: skip
        cache = KeyValueCache(layers)
        for layer in cache.layers:
            for part, length in ((layer.self_attention, target), (layer.cross_attention, source)):
                part.update(torch.zeros(rows, heads, length, d_k), torch.zeros(rows, heads, length, d_k))
        held = sum(
            t.numel() for layer in cache.layers for part in layer for t in (part.key, part.value) if t is not None
        )
        yield f"a cache holds {held} numbers", close(answer(rows, layers, heads * d_k, target, source), held, 0)


def _is_table(table: Any) -> bool:
    if not isinstance(table, dict) or set(table) != {"start", "A", "B", "C"}:
        return False
    rows = list(table.values())
    named = all(isinstance(row, dict) and set(row) == {"A", "B", "C", "end"} for row in rows)
    return named and all(all(x >= 0 for x in row.values()) and close(sum(row.values()), 1.0) for row in rows)


def grade_10_3(answer: Answer) -> Checks:
    """Against all sentences of at most four tokens."""
    table = answer()
    yield "it is a table: four rows of four probabilities, each with the sum 1", _is_table(table)
    (best, words), (second, _) = every_sentence(by_last_word(table), 4)[:2]
    yield "one sentence is the most probable, and no other comes near it", best > second + 1e-6
    source = torch.tensor([[3]])
    for size, wanted in ((3, True), (2, False)):
        options: dict[str, Any] = {"beam_size": size, "length_penalty": 0.0, "max_length": 4}
        ((found, *_),) = beam_search(TableModel(table), source, bos_id=1, eos_id=2, **options)  # type: ignore[arg-type]
        hit = found.finished and tuple(WORDS[token] for token in found.tokens) == words
        claim = f"{size} slots {'find' if wanted else 'miss'} the best sentence, {' '.join((*words, 'end'))}"
        yield claim, hit == wanted
