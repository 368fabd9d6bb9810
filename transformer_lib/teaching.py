# Generated from chapters/01b_measured.md and 2 more: edit it there and `make export`, or here and `make sync`.

"""What several pages show things with: a ruler for graphs, a model that is a table, right and wrong attention."""

import math
from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.masks import causal_mask
from transformer_lib.model import Memory


def longest_chain(result: Tensor) -> int:
    """How many recorded operations had to run one after another to make this tensor (a parameter at the start counts).

    Args:
        result: a tensor that has a gradient function.

    Returns:
        The longest path through the record that PyTorch keeps for the gradient.
    """
    depth: dict[object, int] = {}
    waiting: list = [result.grad_fn]
    while waiting:
        inputs = [function for function, _ in waiting[-1].next_functions if function is not None]
        unknown = [function for function in inputs if function not in depth]
        if unknown:
            waiting += unknown
        else:
            depth[waiting.pop()] = 1 + max((depth[function] for function in inputs), default=0)
    return max(depth.values())


WORDS = ["pad", "start", "end", "A", "B", "C"]
Table = dict[str, dict[str, float]]
Chances = Callable[[tuple[str, ...]], dict[str, float]]  # the probabilities of what follows these words


class TableModel(nn.Module):
    """The toy model with the interface of a Transformer: its hidden state is the last token."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        rows = [[table.get(last, {}).get(token, 0.0) for token in WORDS] for last in WORDS]
        self.log_table = torch.tensor(rows, dtype=torch.float64).log()  # (6, 6), log 0 = minus infinity
        self.config = SimpleNamespace(pad_id=0, target_vocab_size=6, num_decoder_layers=1, max_len=50)

    def encode(self, source_tokens: Tensor) -> Memory:
        """The source does not matter."""
        return Memory(source_tokens, source_tokens)

    def decode(self, target_tokens: Tensor, memory: Memory, **_: Any) -> Tensor:
        """The hidden state is the token."""
        return target_tokens

    def output_projection(self, hidden: Tensor) -> Tensor:
        """The logits are a row of the table."""
        return self.log_table[hidden]


def every_sentence(chances: Chances, max_length: int) -> list[tuple[float, tuple[str, ...]]]:
    """All sentences that end, and their probabilities, best first."""
    found = []
    for words in (words for n in range(max_length) for words in product("ABC", repeat=n)):
        steps = enumerate((*words, "end"))
        found.append((math.prod(chances(words[:before])[word] for before, word in steps), words))
    return sorted(found, reverse=True)


def by_last_word(table: Table) -> Chances:
    """The probabilities that a table gives."""
    return lambda words: table[words[-1] if words else "start"]


Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def _attention(
    scale: Callable[[Tensor, Tensor, Tensor], float] = lambda query, key, value: query.size(-1) ** 0.5,
    hide: Callable[[Tensor, Tensor], Tensor] = lambda scores, mask: scores.masked_fill(~mask, -torch.inf),
    weigh: Callable[[Tensor], Tensor] = lambda scores: scores.softmax(dim=-1),
    choose: Callable[[Tensor, Tensor], Tensor] = lambda key, value: value,
) -> Attention:
    """Attention of four parts; a mutant replaces one."""

    def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        scores = query @ key.transpose(-2, -1) / scale(query, key, value)
        return weigh(scores if mask is None else hide(scores, mask)) @ choose(key, value)

    return attention


def _looped(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """One query at a time, over the keys that it may attend to."""
    rows = []
    for b, h, i in torch.cartesian_prod(*(torch.arange(size) for size in query.shape[:3])).tolist():
        seen = slice(None) if mask is None else mask[b, 0, i]
        weights = (key[b, h, seen] @ query[b, h, i] / query.size(-1) ** 0.5).softmax(dim=0)
        rows.append(weights @ value[b, h, seen])
    return torch.stack(rows).view(*query.shape[:3], -1)


def _scaled_first(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    return _attention(scale=lambda *_: 1.0)(query / query.size(-1) ** 0.5, key, value, mask)


def _masked_late(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    weights = (query @ key.transpose(-2, -1) / query.size(-1) ** 0.5).softmax(dim=-1)
    return (weights if mask is None else weights * mask) @ value


def _in_place(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    out = _attention()(query, key, value, mask)
    with torch.no_grad():
        key.mul_(0.5)
    return out


def _causal_if_square(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None and query.size(-2) == key.size(-2):
        mask = causal_mask(key.size(-2))
    return _attention()(query, key, value, mask)


RIGHT: dict[str, Attention] = {
    "in matrices": _attention(),
    "in a loop": _looped,
    "of PyTorch": lambda query, key, value, mask: F.scaled_dot_product_attention(query, key, value, mask),
    "that scales the queries": _scaled_first,
}
MUTANTS: dict[str, Attention] = {
    "does not scale": _attention(scale=lambda *_: 1.0),
    "divides by d_k": _attention(scale=lambda query, key, value: query.size(-1)),
    "divides by the root of d_v": _attention(scale=lambda query, key, value: value.size(-1) ** 0.5),
    "divides by the root of the number of keys": _attention(scale=lambda query, key, value: key.size(-2) ** 0.5),
    "takes the softmax over the queries": _attention(weigh=lambda scores: scores.softmax(dim=-2)),
    "computes weights in bfloat16": _attention(weigh=lambda s: s.bfloat16().softmax(dim=-1).to(s.dtype)),
    "takes exponentials without subtracting the largest score": _attention(
        weigh=lambda scores: scores.exp() / scores.exp().sum(dim=-1, keepdim=True)
    ),
    "cuts the gradient of the weights": _attention(weigh=lambda scores: scores.detach().softmax(dim=-1)),
    "turns the mask round": _attention(hide=lambda scores, mask: scores.masked_fill(mask, -torch.inf)),
    "sets hidden scores to zero": _attention(hide=lambda scores, mask: scores * mask),
    "sets hidden scores to -10,000": _attention(hide=lambda scores, mask: scores.masked_fill(~mask, -1e4)),
    "uses the first sentence's mask for all": _attention(
        hide=lambda scores, mask: scores.masked_fill(~mask[:1], -torch.inf)
    ),
    "applies the mask after the softmax": _masked_late,
    "adds a causal mask if there is none and n = m": _causal_if_square,
    "takes keys for values if their sizes agree": _attention(
        choose=lambda key, value: key if key.shape == value.shape else value
    ),
    "changes the keys": _in_place,
}
