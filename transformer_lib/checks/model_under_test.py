# Generated from chapters/08_checks.md: edit the chapter, not this file, then run `make export`.


# chapters/08_checks.md: The library: a model under test
"""A model under test, as a black box: how it is built, fed and compared; and adapters for other signatures."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from transformer_lib.checks.report import Outcome

Factory = Callable[[int, int, int], nn.Module]
LONGEST = 12  # tokens in the longest sentence that a property uses


def max_difference(new: Tensor, old: Tensor) -> float:
    """The largest difference, in units of the spread of `old`; infinite for another shape, NaN and infinity."""
    if new.shape != old.shape or not (new.isfinite().all() and old.isfinite().all()):
        return math.inf
    spread = old.std().item() if old.numel() > 1 else 0.0
    return (new - old).abs().max().item() / (spread if spread > 0 else 1.0)


class UnderTest:
    """What is examined: random numbers to call it with, and what its rounding may do."""

    tolerance = 1e-12  # float64: sums of a few hundred products, in another order, differ by some 1e-15

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def describe(self, moved: float) -> str:
        """A difference in words; rounding differs between machines, so only its bound is told."""
        if not math.isfinite(moved):
            return "NaN, infinity, or another shape"
        return f"{moved:.2g}" if moved > self.tolerance else f"no more than rounding ({self.tolerance:.0e})"

    def at_most_rounding(self, moved: float, words: str) -> Outcome:
        """Hold if nothing moves; the words say what may not."""
        return moved <= self.tolerance, f"{words} {self.describe(moved)}"

    def more_than_rounding(self, least: float, words: str) -> Outcome:
        """Hold if even the least move is one; the words say of what."""
        return least > self.tolerance, f"{words} {self.describe(least)}"


class ModelUnderTest(UnderTest):
    """A model under test: tokens in, logits out.

    Args:
        factory: called with (source_vocab_size, target_vocab_size, pad_id); returns a module that is called as
            module(source_tokens, target_tokens) and gives logits (batch, target length, target_vocab_size).
        source_vocab_size: number of source tokens, at least 8.
        target_vocab_size: number of target tokens, at least 8; the same number lets a model tie its tables.
        pad_id: the padding token of both vocabularies.
        max_len: the longest sequence that the model says it accepts, if it says so; at least 12.
        seed: of the weights and of all inputs.

    Raises:
        ValueError: a number is out of its range.
    """

    def __init__(
        self,
        factory: Factory,
        *,
        source_vocab_size: int = 29,
        target_vocab_size: int = 29,
        pad_id: int = 0,
        max_len: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(seed)
        smallest = min(source_vocab_size, target_vocab_size)
        if smallest < 8:
            raise ValueError(f"a vocabulary needs at least 8 tokens; got {smallest}")
        if not 0 <= pad_id < smallest:
            raise ValueError(f"pad_id must be a token of both vocabularies; got {pad_id}")
        if max_len is not None and max_len < LONGEST:
            raise ValueError(f"max_len must be at least {LONGEST}, the longest sentence used; got {max_len}")
        self.factory, self.pad_id, self.max_len, self.seed = factory, pad_id, max_len, seed
        self.source_vocab_size, self.target_vocab_size = source_vocab_size, target_vocab_size

    def build(self, seed: int | None = None) -> nn.Module:
        """Make a fresh module in evaluation mode on the CPU, and leave the global random numbers as they were."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed if seed is None else seed)
            module = self.factory(self.source_vocab_size, self.target_vocab_size, self.pad_id)
        if not isinstance(module, nn.Module):
            raise TypeError(f"the factory must return an nn.Module; got {type(module).__name__}")
        return module.cpu().eval()

    @cached_property
    def module(self) -> nn.Module:
        """The module that most properties look at, in float64 where it runs so, because leaks are small."""
        module = self.build()
        try:
            self.logits(module.double(), *self.pair())
        except Exception:
            module = self.build()
        return module

    @cached_property
    def tolerance(self) -> float:  # type: ignore[override]
        """What rounding may do to logits of spread 1 in some thousand operations."""
        dtypes = [p.dtype for p in self.module.parameters() if p.is_floating_point()]
        return 1e4 * torch.finfo(dtypes[0] if dtypes else torch.float32).eps

    def tokens(self, rows: int = 3, length: int = 7, *, target: bool = False) -> Tensor:
        """Draw tokens without padding, (rows, length)."""
        size = self.target_vocab_size if target else self.source_vocab_size
        tokens = torch.randint(size - 1, (rows, length), generator=self.generator)
        return tokens + (tokens >= self.pad_id)

    def pair(self, rows: int = 3, source: int = 7, target: int = 6) -> tuple[Tensor, Tensor]:
        """Draw source (rows, source) and target (rows, target) tokens."""
        return self.tokens(rows, source), self.tokens(rows, target, target=True)

    def other(self, tokens: Tensor, *, target: bool = False) -> Tensor:
        """Draw tokens that differ from these in every place, and are no padding."""
        size = self.target_vocab_size if target else self.source_vocab_size
        step = torch.randint(1, size - 1, tokens.shape, generator=self.generator)
        rank = tokens - (tokens > self.pad_id).long()  # 0 … size - 2, the padding left out
        new = (rank + step) % (size - 1)
        return new + (new >= self.pad_id)

    def padding(self, rows: int, length: int) -> Tensor:
        """(rows, length) of padding."""
        return torch.full((rows, length), self.pad_id)

    @torch.no_grad()
    def logits(self, module: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        """Call a module, and hold the answer to its promise: (batch, target length, target_vocab_size)."""
        logits = module(source, target)
        if not isinstance(logits, Tensor):
            raise TypeError(f"the model must return a tensor of logits; got {type(logits).__name__}")
        wanted = (*target.shape, self.target_vocab_size)
        if logits.shape != wanted:
            got = tuple(logits.shape)
            raise ValueError(f"logits must be (batch, target length, target_vocab_size) = {wanted}; got {got}")
        return logits

    def __call__(self, source: Tensor, target: Tensor) -> Tensor:
        """Call the module under test."""
        return self.logits(self.module, source, target)


def plain_tensors(module: nn.Module) -> list[str]:
    """The attributes, of a module and all inside it, that are tensors but neither parameters nor buffers."""

    def inside(value: object) -> bool:
        items: Iterable[object] = value.values() if isinstance(value, dict) else ()
        items = value if isinstance(value, list | tuple) else items
        return isinstance(value, Tensor) or any(isinstance(item, Tensor) for item in items)

    own = {"_parameters", "_buffers", "_modules"}
    return [
        f"{name}.{key}".lstrip(".")
        for name, owner in module.named_modules()
        for key, value in vars(owner).items()
        if key not in own and inside(value)
    ]


def indices_beside_table(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """A hook that asks what the device `meta` does not: do an embedding's indices lie where its table lies?"""
    if isinstance(module, nn.Embedding) and any(indices.device != module.weight.device for indices in inputs):
        raise RuntimeError("the indices of an nn.Embedding are not on the expected device")


@contextmanager
def modules_with_gradient() -> Iterator[set[nn.Module]]:
    """Inside the block, collect the modules at whose outputs a gradient arrives that is not zero."""
    found: set[nn.Module] = set()

    def watch(module: nn.Module, _: tuple, output: object) -> None:
        for tensor in output if isinstance(output, tuple | list) else (output,):
            if isinstance(tensor, Tensor) and tensor.requires_grad:
                tensor.register_hook(lambda gradient: found.add(module) if gradient.any() else None)

    with register_module_forward_hook(watch):
        yield found


# chapters/08_checks.md: Models with other signatures
class Adapted(nn.Module):
    """A module that is called in another way.

    Args:
        model: any module.
        call: called as `call(model, *arguments, **options)`; makes the model's answer of them.
    """

    def __init__(self, model: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *arguments: Any, **options: Any) -> Any:
        """Call the model as `call` says."""
        return self.call(self.model, *arguments, **options)


def sequence_first(model: nn.Module) -> Adapted:
    """Fit a model whose tokens are (length, batch) and whose logits are (length, batch, vocabulary)."""
    return Adapted(model, lambda model, source, target: model(source.T, target.T).transpose(0, 1))


def explicit_masks(model: nn.Module, masks: Callable[[Tensor, Tensor], tuple[Any, ...]]) -> Adapted:
    """Fit a model that is called as `model(source, target, *masks(source, target))`, in its own convention."""
    return Adapted(model, lambda model, source, target: model(source, target, *masks(source, target)))


def hugging_face(model: nn.Module, pad_id: int) -> Adapted:
    """Fit an encoder-decoder with Hugging Face's names: masks of 1 = real and 0 = padding, answers with `.logits`."""

    def call(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        names = {"input_ids": source, "attention_mask": (source != pad_id).long()}
        names |= {"decoder_input_ids": target, "decoder_attention_mask": (target != pad_id).long()}
        return model(**names, use_cache=False).logits

    return Adapted(model, call)


def values_first(attention: nn.Module) -> Adapted:
    """Fit a multi-head attention that is called as attention(value, key, query, mask) to our order and keyword."""
    return Adapted(attention, lambda model, query, key, value, *, mask=None: model(value, key, query, mask))
