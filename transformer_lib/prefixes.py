# Generated from chapters/11_decoding.md: edit the chapter, not this file, then run `make export`.


# chapters/11_decoding.md: Many sentences at once
"""Prefixes: the beginnings of translations that a search extends, and the best next tokens of each."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor, nn

from transformer_lib.files import UserError
from transformer_lib.model import Transformer
from transformer_lib.steps import ModuleSteps, Steps
from transformer_lib.written_out import WrittenOutSteps, can_be_written_out


# chapters/11_decoding.md: Many sentences at once
@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """No dropout and no gradients inside; every module's own mode is restored afterwards. For one thread at a time."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True


def length_limits(
    model: Transformer, source: Int[Tensor, "batch n"], bos_id: int, eos_id: int, max_length: int | None
) -> list[int]:
    """Check the arguments; each sentence's largest number of tokens, the end token counted."""
    config = model.config
    if source.dim() != 2 or source.dtype not in (torch.int64, torch.int32):
        raise ValueError(
            f"source must be token ids (batch, length), int64 or int32; got {source.dtype} {tuple(source.shape)}"
        )
    if source.size(1) > config.max_len:
        raise ValueError(f"source must be at most as long as the model's {config.max_len}; got {source.size(1)}")
    for name, token in (("bos_id", bos_id), ("eos_id", eos_id)):
        if not 0 <= token < config.target_vocab_size:
            raise ValueError(f"{name} must be from 0 to {config.target_vocab_size - 1}; got {token}")
    if eos_id == config.pad_id:
        raise ValueError(f"eos_id must differ from the model's pad_id; got {eos_id} for both")
    if max_length is None:
        own_length = (source != config.pad_id).sum(dim=1)  # (batch,)
        return (2 * own_length + 10).clamp(max=config.max_len).tolist()
    if not 1 <= max_length <= config.max_len:
        raise ValueError(f"max_length must be from 1 to the model's {config.max_len}; got {max_length}")
    return [max_length] * source.size(0)


# chapters/11_decoding.md: Many sentences at once
class Prefixes:
    """The beginnings that a search extends, one a row; each of the `sentences` that go on has equally many rows."""

    def __init__(self, model: Transformer, source: Int[Tensor, "batch n"], bos_id: int, use_cache: bool) -> None:
        if use_cache and can_be_written_out(model):
            self.steps: Steps = WrittenOutSteps(model, source)
        else:
            self.steps = ModuleSteps(model, source, use_cache)
        self.pad_id = model.config.pad_id
        self.sentences = list(range(source.size(0)))
        self.tokens = source.new_full((source.size(0),), bos_id)  # (rows,)

    def logits(self) -> Iterator[Float[Tensor, "some vocabulary"]]:
        """The logits of each row's next token; some dozen rows at a time, which stay in the processor's cache."""
        for hidden in self.steps.step(self.tokens).split(64):  # (some, d_model)
            yield self.steps.project(hidden)

    def best_next(self) -> list[int]:
        """The most probable next token of each row."""
        tokens = []
        for logits in self.logits():
            logits[:, self.pad_id] = -math.inf  # padding is never a word
            best, token = best_one(logits)
            check_finite(best)
            tokens += token.tolist()
        return tokens

    def best_few_next(self, count: int) -> tuple[list[list[int]], list[list[float]]]:
        """The `count` most probable next tokens of each row, best first, with their log-probabilities."""
        tokens, log_probs = [], []
        for logits in self.logits():
            padding = logits[:, self.pad_id].clone()
            logits[:, self.pad_id] = -math.inf  # padding is never a word
            best, token = best_few(logits, count)  # (some, count)
            logits[:, self.pad_id] = padding  # but it has a probability
            normalizer = log_normalizer(logits, torch.maximum(best[:, 0], padding))  # (some,)
            check_finite(normalizer)
            tokens += token.tolist()
            log_probs += (best.double() - normalizer[:, None]).tolist()
        return tokens, log_probs

    def extend(self, rows: list[int], tokens: list[int], places: list[int]) -> None:
        """Go on with these rows, in this order, each longer by its token, and with the sentences at these places."""
        leave = len(places) < len(self.sentences)
        self.sentences = [self.sentences[place] for place in places]
        if places and rows != list(range(self.tokens.size(0))):
            self.steps.select(self.tokens.new_tensor(rows), self.tokens.new_tensor(places) if leave else None)
        self.tokens = self.tokens.new_tensor(tokens)

    def write_down(self, tokens: list[int], eos_id: int, outputs: list[list[int]], limits: list[int]) -> None:
        """Add each sentence's next token to its output, and go on with those that neither end nor reach their limit."""
        rows = []
        for row, (sentence, token) in enumerate(zip(self.sentences, tokens, strict=True)):
            if token != eos_id:
                outputs[sentence].append(token)
                if len(outputs[sentence]) < limits[sentence]:
                    rows.append(row)
        self.extend(rows, [tokens[row] for row in rows], rows)


# chapters/11_decoding.md: Many sentences at once
def check_finite(values: Float[Tensor, " rows"]) -> None:
    """Raise a UserError if one of the values is infinite or not a number."""
    if not all(map(math.isfinite, values.tolist())):
        raise UserError("the model's logits are infinite or not numbers: its weights are damaged, or diverged")


def best_one(logits: Float[Tensor, "rows vocabulary"]) -> tuple[Float[Tensor, " rows"], Int[Tensor, " rows"]]:
    """The largest logit of each row, and its token: among equals the first."""
    if len(logits) < 8:
        return logits.max(dim=-1)
    groups = _groups(logits)  # (rows, groups, size)
    best, group = groups.amax(dim=-1).max(dim=-1)  # (rows,)
    place = _chosen(groups, group[:, None]).argmax(dim=-1)  # (rows,)
    return best, group * groups.size(2) + place


def best_few(logits: Float[Tensor, "rows vocabulary"], count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest logits of each row, best first, and their tokens: among equals the first."""
    more = min(count + 1, logits.size(1))
    groups = _groups(logits)  # (rows, groups, size)
    if more < groups.size(1):  # the best few are in the groups that have the best few largest values
        group = groups.amax(dim=-1).topk(more).indices  # (rows, more)
        best, place = _chosen(groups, group).topk(more)  # (rows, more)
        tokens = group.gather(1, place // groups.size(2)) * groups.size(2) + place % groups.size(2)
    else:
        best, tokens = logits.topk(more)  # (rows, more)
    tied = (best[:, 1:] == best[:, :-1]).any(dim=1)  # (rows,)
    if tied.any():  # topk promises no order among equals, nor which of them it takes
        ordered, order = logits[tied].sort(dim=-1, descending=True, stable=True)
        best[tied], tokens[tied] = ordered[:, :more], order[:, :more]
    return best[:, :count], tokens[:, :count]


def _groups(logits: Float[Tensor, "rows vocabulary"]) -> Float[Tensor, "rows groups size"]:
    """Cut the vocabulary into groups of equal size, near its square root: two short searches replace a long one."""
    vocabulary = logits.size(1)
    size = next(size for size in range(math.isqrt(vocabulary), 0, -1) if vocabulary % size == 0)
    return logits.view(len(logits), -1, size)


def _chosen(groups: Float[Tensor, "rows groups size"], chosen: Int[Tensor, "rows few"]) -> Float[Tensor, "rows all"]:
    """The logits of the chosen groups, one after the other."""
    rows, count, size = groups.shape
    first = torch.arange(0, rows * count, count, device=groups.device)  # (rows,)
    return groups.view(-1, size)[(first[:, None] + chosen).flatten()].view(rows, -1)


def log_normalizer(
    logits: Float[Tensor, "rows vocabulary"], largest: Float[Tensor, " rows"]
) -> Float64[Tensor, " rows"]:
    """The logarithm of the sum of the exponentials, given the largest logits. The logits are overwritten."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    logits, largest = logits.to(wide), largest.to(wide)
    if not largest.abs().max() < 60:  # exp of 89 is too large for float32, and a sum of many smaller
        logits.sub_(largest[:, None])
    else:
        largest = torch.zeros_like(largest)
    return logits.exp_().sum(dim=1).log_().double() + largest
