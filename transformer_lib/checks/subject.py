# Generated from chapters/E_suite.md: edit it there and `make export`, or here and `make sync`.

"""A model under test, as a black box: how it is built, fed and compared; and adapters for other signatures."""

import math
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from inspect import signature, unwrap
from itertools import pairwise
from traceback import walk_tb
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.parameter import UninitializedParameter
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from transformer_lib.checks.report import (
    NotApplicable,
    Outcome,
    Place,
    called_at,
    if_it_runs,
    in_words,
    is_refusal,
    raised_at,
    raised_place,
)
from transformer_lib.files import one_line

Factory = Callable[..., nn.Module]
KEPT = "a call reads what an earlier one kept, such as keys and values of another sentence, or a longer one's table"
LONGEST = 12  # tokens in the longest sentence that a property uses
ALL = slice(None)
Seen = tuple[Tensor, Tensor | None, Place | None]  # what a module put out, what it was given, and who called it
Recorded = tuple[Tensor, dict[tuple[str, int], Seen]]  # logits; what modules did, by name and number of the call


@dataclass(frozen=True)
class Side:
    """A sequence of tokens that a model reads: how many tokens there are, and whether a token may see later ones."""

    vocab_size: int
    causal: bool


FAMILIES = {"encoder": (False,), "decoder": (True,), "encoder-decoder": (False, True)}  # is each side causal?


def max_difference(new: Tensor, old: Tensor) -> float:
    """The largest difference, in units of the spread of `old`; infinite for another shape, NaN and infinity."""
    if new.shape != old.shape or not (new.isfinite().all() and old.isfinite().all()):
        return math.inf
    spread = old.std().item() if old.numel() > 1 else 0.0
    return (new - old).abs().max().item() / (spread if spread > 0 else 1.0) if old.numel() else 0.0


class UnderTest:
    """What is examined: random numbers to call it with, what its rounding may do, and where it went wrong.

    `where` is the first module that differs between two calls, `located` says so, `at` is the line of the model's code
    that called it, `shown` a cause that its numbers show, and `better_pad_id` a padding token that it was built for.
    """

    tolerance = 1e-12  # float64: sums of a few hundred products, in another order, differ by some 1e-15

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.start()

    def start(self) -> None:
        """Begin a property: its inputs do not depend on what was drawn before."""
        self.generator = torch.Generator().manual_seed(self.seed)
        self.located, self.where, self.shown = "", "", ""
        self.at: Place | None = None
        self.better_pad_id: int | None = None

    def words(self, text: str) -> str:
        """A sentence of a report in the words of what is under test."""
        return text

    def reproduction(self, name: str) -> str:
        """A line of Python that shows the finding of the property of this name."""
        return f"# {name}, seed {self.seed}"

    def describe(self, moved: float) -> str:
        """A difference in words; rounding differs between machines, so only its bound is told."""
        if not math.isfinite(moved):
            return "NaN, infinity, or another shape"
        return f"{moved:.2g}" if moved > self.tolerance else f"no more than rounding ({self.tolerance:.0e})"

    def at_most_rounding(self, moved: float, words: str) -> tuple[bool, str]:
        """Hold if nothing moves; the words say what may not."""
        return moved <= self.tolerance, f"{words} {self.describe(moved)}"

    def more_than_rounding(self, moves: Iterable[float], words: str, none: str = "") -> Outcome:
        """Hold if even the least move is one, and all are finite; the words say of what, and what it means if not."""
        least, most = min(found := [*moves]), max(found)
        least_move = min(self.tolerance, 1e-5)  # in float32 the tolerance is wide, and rounding far below it
        if not math.isfinite(most):
            return False, f"{words} {self.describe(most)}"
        if none and least <= least_move:
            return False, f"{none} (at most {self.tolerance:.0e})"
        return least > least_move, f"{words} {f'{least:.2g}' if least > least_move else self.describe(least)}"


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside the block random numbers start at the seed, torch's and Python's; behind it they are as they were."""
    state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # `torch.manual_seed` notes for each GPU who called it: slow
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(state)


def contiguous(arguments: Iterable[Any]) -> list[Any]:
    """The arguments, the tensors among them as `view` needs them: a user's own tensors are no slices of others."""
    return [x.contiguous() if isinstance(x, Tensor) else x for x in arguments]


def detach_kept(module: nn.Module) -> list[str]:
    """Cut tensors that a call has left in a module from their graph, in lists and objects too; return their names."""
    found, seen = [], set[int]()

    def cut(value: Any, name: str) -> Any:
        if isinstance(value, Tensor):
            found.extend([name] * (value.grad_fn is not None))
            return value if value.grad_fn is None else value.detach()
        if isinstance(value, tuple):
            new = [cut(item, f"{name}.{key}") for key, item in enumerate(value)]
            if all(one is other for one, other in zip(new, value)):
                return value
            return type(value)(*new) if hasattr(value, "_fields") else type(value)(new)
        if id(value) in seen or isinstance(value, nn.Module | type | ModuleType):
            return value
        seen.add(id(value))
        held: Any = value if isinstance(value, list | dict) else getattr(value, "__dict__", {})
        for key, item in list(enumerate(held) if isinstance(held, list) else held.items()):
            inside = name if key == "_buffers" else f"{name}.{key}".lstrip(".")
            if (new := cut(item, inside)) is not item:
                held[key] = new
        return value

    for name, part in module.named_modules():
        cut(vars(part), name)
    return found


class InFloat32(Exception):
    """A module in float64 computes in float32."""


class LowerPrecision(TorchDispatchMode):
    """Inside the block, collect the dtypes to which any operation takes wider numbers."""

    supports_higher_order_operators = True  # as FlexAttention is one

    def __init__(self) -> None:
        super().__init__()
        self.found: set[torch.dtype] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, and look at the dtypes of what goes in and of what comes out."""
        result = function(*args, **(kwargs or {}))
        given, made = (
            {x.dtype for x in tree_leaves(each) if isinstance(x, Tensor) and x.is_floating_point()}
            for each in (args, result)
        )
        widest = max((dtype.itemsize for dtype in given), default=0)
        self.found |= {dtype for dtype in made if dtype.itemsize < widest}
        return result


LowerPrecision.__torch_dispatch__ = unwrap(LowerPrecision.__torch_dispatch__)  # type: ignore[method-assign]
# What torch wraps round it imports the compiler: two seconds.


class Float64(TorchFunctionMode):
    """Inside the block whoever asks for float32 gets float64, as by `x.float()`, `dtype=torch.float32` or no dtype."""

    def __enter__(self) -> "Float64":
        """Begin the block."""
        self.usual = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        """End the block."""
        torch.set_default_dtype(self.usual)
        super().__exit__(*error)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function with the other dtype."""
        if function is Tensor.float:
            return args[0].double()
        wide = {name: torch.float64 if x is torch.float32 else x for name, x in (kwargs or {}).items()}
        return function(*(torch.float64 if x is torch.float32 else x for x in args), **wide)


class NoDropout(TorchFunctionMode):
    """Inside the block torch's functions drop nothing."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function with a rate of 0."""
        kwargs = kwargs or {}
        if "dropout" in getattr(function, "__name__", ""):  # also those of whole channels
            return args[0] if args else kwargs["input"]
        if function is F.scaled_dot_product_attention:
            args, kwargs = args[:4], dict(zip(("dropout_p", "is_causal"), args[4:])) | kwargs | {"dropout_p": 0.0}
        return function(*args, **kwargs)


class Attention(TorchFunctionMode):
    """Inside the block, note which keys each attention gives any weight, and hide some, as a right mask would.

    Attention is a softmax over the last axis, or one of torch's functions. A row that sees nothing is 0, and not NaN.
    What is hidden is (queries, keys), true where a key is hidden, each for the attentions of this size.
    """

    def __init__(self, *hidden: Tensor) -> None:
        super().__init__()
        self.hidden = {tuple(mask.shape): mask for mask in hidden}
        self.given: list[Tensor] = []  # what each softmax is given, but for that of `multi_head_attention_forward`
        self.seen: list[Tensor] = []  # (queries, keys), true where some row and head of an attention gives weight

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function with another mask."""
        kwargs = kwargs or {}
        if function in (F.softmax, torch.softmax, Tensor.softmax) and isinstance(args[0], Tensor):
            scores, axis = args[0], kwargs.get("dim", args[1] if len(args) > 1 else None)
            if scores.dim() < 3 or axis not in (-1, scores.dim() - 1):
                return function(*args, **kwargs)
            self.given.append(scores)
            if (hidden := self.hidden.get(tuple(scores.shape[-2:]))) is not None:
                scores = scores.masked_fill(hidden, -math.inf)
            weights = function(scores, *args[1:], **kwargs).nan_to_num(0)
            self.seen.append((weights > 0).flatten(0, -3).any(0))
            return weights
        if function not in (F.multi_head_attention_forward, F.scaled_dot_product_attention):
            return function(*args, **kwargs)
        torchs = function is F.multi_head_attention_forward  # (length, batch, channels), and a mask that hides
        names = signature(function).parameters if torchs else ("query key value attn_mask dropout_p is_causal".split())
        given = dict(zip(names, args)) | kwargs
        size = tuple(given[name].size(0 if torchs else -2) for name in ("query", "key"))
        scores, mask = torch.zeros(size, dtype=given["query"].dtype), given.get("attn_mask")
        if mask is not None:
            scores = scores + mask if mask.is_floating_point() else scores.masked_fill(mask == torchs, -math.inf)
        elif given.get("is_causal"):
            scores = scores.masked_fill(torch.ones(size, dtype=torch.bool).triu(1), -math.inf)
        seen = (scores > -1e4).reshape(-1, *size).any(0)
        if (padded := given.get("key_padding_mask")) is not None:
            seen = seen & ((~padded) if padded.dtype == torch.bool else padded > -1e4).any(0)
        self.seen.append(seen)
        if not torchs:
            q, k = given["query"], given["key"]
            k = k.repeat_interleave(q.size(-3) // k.size(-3), dim=-3) if given.get("enable_gqa") else k
            self.given.append(q @ k.mT * (given.get("scale") or q.size(-1) ** -0.5) + scores)
        if (hidden := self.hidden.get(size)) is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        result = function(**given | {"attn_mask": scores, "is_causal": False})
        return (result[0].nan_to_num(0), *result[1:]) if torchs else result.nan_to_num(0)


class Norms(TorchFunctionMode):
    """Inside the block, note the name of each norm, mean or softmax, what it takes and gives, and its place."""

    NAMES = "mean var std var_mean norm linalg_vector_norm layer_norm rms_norm group_norm normalize softmax"

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, Tensor, Tensor, Place | None]] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function, and look at what goes in and comes out."""
        result, name = function(*args, **(kwargs or {})), getattr(function, "__name__", "")
        if name in self.NAMES.split() and args:
            given = args[0], result[0] if isinstance(result, tuple) else result
            self.found.append((name, *given, called_at(sys._getframe(1))))
        return result


class ModelUnderTest(UnderTest):
    """A model under test: tokens in, logits out. What it reads are its sides: one, or a source and a target.

    Args:
        factory: as for `check_transformer`, and so are the others.
        pad_given: whether somebody asked for this padding token: then the model need run with no other.

    Raises:
        ValueError: a number is out of its range.
    """

    def __init__(
        self, factory: Factory, *, source_vocab_size: int = 31, target_vocab_size: int = 29, pad_id: int = 3,
        pad_given: bool = False, max_len: int | None = None, seed: int = 0, family: str = "encoder-decoder",
    ) -> None:  # fmt: skip
        super().__init__(seed)
        sizes = (source_vocab_size, target_vocab_size) if family == "encoder-decoder" else (target_vocab_size,)
        self.sides = tuple(Side(size, causal) for size, causal in zip(sizes, FAMILIES[family]))
        smallest = min(sizes)
        if smallest < 8:
            raise ValueError(f"a vocabulary needs at least 8 tokens; got {smallest}")
        if not 0 <= pad_id < smallest:
            raise ValueError(f"pad_id must be a token of both vocabularies; got {pad_id}")
        if max_len is not None and max_len < LONGEST:
            raise ValueError(f"max_len must be at least {LONGEST}, the longest sentence used; got {max_len}")
        self.factory, self.pad_id, self.max_len, self.family = factory, pad_id, max_len, family
        self.pad_given = pad_given
        self.adapter: Adapted | None = None  # what was built last, if it is one
        self.wide: set[nn.Module] = set()  # the modules that are called inside `Float64`
        self.recent: list[tuple[Tensor, ...]] = []  # the inputs of the last two calls, or of two that are apart
        self.refused = ""  # what the model says of a sentence of one token, if it refuses it
        self.again = WeakTensorKeyDictionary()  # for logits: the module, the call that gives them again, its inputs

    def start(self) -> None:
        """Begin a property, in the mode that an earlier one may have left."""
        super().start()
        if "module" in vars(self):
            self.module.eval()

    def words(self, text: str) -> str:
        """A sentence of a report; a model with one side has no source and no target."""
        if len(self.sides) > 1:
            return text
        text = re.sub(r"\b(source|target) (?=tokens?|positions?|padding|sensitivity|length|vocab)", "", text)
        return re.sub(r"\b(source|target)\b", "sentence", text)

    def reproduction(self, name: str) -> str:
        """A line of Python that shows the finding of the property of this name; behind it the inputs, if they fit."""
        module, factory = (getattr(self.factory, key, "") for key in ("__module__", "__qualname__"))
        given = {"only": [name], "family": self.family, "target_vocab_size": self.sides[-1].vocab_size}
        given |= {"source_vocab_size": self.sides[0].vocab_size} if len(self.sides) > 1 else {}
        given |= {"pad_id": self.pad_id if self.pad_given else None, "max_len": self.max_len, "seed": self.seed}
        options = ", ".join(f"{key}={value!r}" for key, value in given.items() if value is not None)
        found = bool(module) and factory.isidentifier()
        names = f"import {module}; " * found + "from transformer_lib.checks import check_transformer; "
        line = f"{names}print(check_transformer({f'{module}.{factory}' if found else 'factory'}, {options}))"
        inputs = " and ".join(str([tokens.tolist() for tokens in inputs]) for inputs in self.recent)
        return line + (f"  # inputs {inputs}" if 0 < len(inputs) < 400 else "")

    def has(self, need: str) -> bool:
        """Whether it has a "causal" or "whole" side, "both", or a "mask", "cache", "generate", "beams" or "loss".

        The latter are parts of an adapter. A decoder is asked for the last four in any case, and says what is missing.
        """
        causal = {side.causal for side in self.sides}
        if need in ("cache", "generate", "beams", "loss"):
            function = {"cache": "extend"}.get(need, need)
            return self.family == "decoder" or getattr(self.adapter, function, None) is not None
        if need == "mask":
            return self.adapter is not None and "mask" in self.accepts(self.adapter)
        return {"": True, "causal": True in causal, "whole": False in causal, "both": len(causal) > 1}[need]

    def build(self, seed: int | None = None) -> nn.Module:
        """Make a fresh module in evaluation mode on the CPU; lazy parameters are drawn by a first call."""
        with seeded(self.seed if seed is None else seed):
            module = self.factory(*(side.vocab_size for side in self.sides), self.pad_id)
            if not isinstance(module, nn.Module):
                raise TypeError(f"the factory must return an nn.Module; got {type(module).__name__}")
            self.adapter = module if isinstance(module, Adapted) else None
            if any(isinstance(parameter, UninitializedParameter) for parameter in module.parameters()):
                self.logits(module.cpu().eval(), *self.inputs())
        return module.cpu().eval()

    def uninitialised(self) -> list[str]:
        """The names of parameters that hold what was in memory before: `torch.empty` gives NaN inside this call."""
        before = torch.get_deterministic_debug_mode()
        torch.set_deterministic_debug_mode("warn")  # `use_deterministic_algorithms` imports the compiler: seconds
        try:
            parameters = self.build().named_parameters()
        finally:
            torch.set_deterministic_debug_mode(before)
        return [name for name, parameter in parameters if parameter.isnan().any()]

    @cached_property
    def module(self) -> nn.Module:
        """The module that most properties look at, in float64 if all of it computes so, because leaks are small.

        A weight that starts at zero hides what lies behind it, a norm's gain of one hides where it is forgotten, and
        behind small weights all sentences go on alike. So a matrix or a vector that is constant gets some noise; a
        matrix of d columns that is far smaller than 1/√d is made so large; and if some matrix gets no gradient, up to
        five small steps come first.
        """
        wide = self._in_float64()
        module = self.build() if wide is None else wide
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        generator = torch.Generator().manual_seed(self.seed)
        with torch.no_grad():
            for weights in constant_parameters(module).values():
                size = 0.02 if weights.dim() > 1 else 0.1
                weights.add_(size * torch.randn(weights.shape, generator=generator).to(weights))
            for weights in (parameter for parameter in trained if parameter.dim() > 1):
                share = weights.square().mean().sqrt().item() * math.sqrt(weights.size(-1))
                weights.mul_(1 / share if 0 < share < 0.5 else 1)
        with suppress(Exception):  # a module that cannot be trained is told so by a property
            optimizer = None  # an optimiser imports torch's compiler: two seconds
            for _ in range(5):
                gradients = self.gradients(*self.inputs(), module=module)
                parameters = dict(module.named_parameters())
                if all(g is not None and g.any() for name, g in gradients.items() if parameters[name].dim() > 1):
                    break
                for name, gradient in gradients.items():
                    parameters[name].grad = gradient
                optimizer = optimizer or torch.optim.Adam(trained)
                optimizer.step()
        module.zero_grad(set_to_none=True)
        return module

    def _in_float64(self) -> nn.Module | None:
        """A module that answers in float64 all the way, without NaN, if need be built and called inside `Float64`.

        With its cache, too, and with `generate`: a cache may stay in float32 beside a module in float64.
        """
        usual = {name for name, error in self.uses(self.build()).items() if error is None}
        for block in (nullcontext, Float64):
            with suppress(Exception), block():  # what cannot be in float64 stays as it is
                module = self.build().double()
                with LowerPrecision() as lower:
                    logits = self.logits(module, *self.inputs())
                used = self.uses(module)
                if all(used[name] is None for name in usual) and not lower.found and logits.isfinite().all():
                    self.wide = {module} if block is Float64 else set()
                    return module
        return None

    @torch.no_grad()
    def uses(self, module: nn.Module) -> dict[str, Exception | None]:
        """What a few calls of an adapter's `extend` and `generate` raise; an `extend` that computes in float32, too."""
        errors, calls = dict[str, Exception | None](), dict[str, Callable[[], object]]()
        if not isinstance(module, Adapted):
            return errors
        *others, tokens = self.inputs(2)
        wide, model = any(p.dtype == torch.float64 for p in module.parameters()), module.model

        def in_pieces(extend: Callable[..., Any], sizes: tuple[int, ...]) -> None:
            cache = None
            with LowerPrecision() if wide else nullcontext() as lower:
                for new in tokens[:, : sum(sizes)].split(sizes, dim=1):
                    _, cache = extend(model, *contiguous([*others, new]), cache=cache)
            if lower and torch.float32 in lower.found:
                raise InFloat32

        if module.extend:
            for sizes in ((1, 1, 1), (3, 1, 1), (2, 2)):
                calls[f"extend in pieces of {sizes}"] = partial(in_pieces, module.extend, sizes)
        if module.generate:
            calls["generate"] = partial(module.generate, model, *(x[:1].contiguous() for x in (*others, tokens)), 3)
        for name, call in calls.items():
            errors[name] = None
            try:
                call()
            except Exception as error:
                errors[name] = error
        module.eval()  # whatever they left
        return errors

    @cached_property
    def kept_graph(self) -> str:
        """The tensors with a graph that a call, or its own loss, keeps, so that a second backward raises; or empty."""
        module, inputs = self._copy(self.module), self.inputs()
        own: Any = getattr(self.adapter, "loss", None)
        own = own and partial(own, module.train().model, *inputs, inputs[-1])
        detach_kept(module)
        with suppress(Exception), self.block(module):
            (own() if own else self.loss(self.run(module, *inputs))).backward()
            try:
                (own() if own else self.loss(self.run(module, *inputs))).backward()
            except RuntimeError:
                return ", ".join(detach_kept(module)[:3])
        return ""

    def in_adapter(self, error: Exception) -> str:
        """A cause, if the adapter's own code raised, or handed on numbers of another dtype; else empty.

        Its own code is `call`, and all of its file if the model's class stands in another.
        """
        code, at = getattr(getattr(self.adapter, "call", None), "__code__", None), raised_place(error)
        if code is None or at is None:
            return ""
        calls = [*walk_tb(error.__traceback__)]
        module = sys.modules.get(type(getattr(self.adapter, "model", None)).__module__)
        elsewhere = at[0] == code.co_filename != getattr(module, "__file__", None)
        if elsewhere or any(frame.f_code is code and (code.co_filename, line) == at[:2] for frame, line in calls):
            return f"in your adapter{raised_at(error)}: what it makes must have the model's dtype and device"
        for (frame, line), (inner, _) in pairwise(calls):
            part, *given = (inner.f_locals.get(name) for name in ("self", "args", "kwargs"))
            if frame.f_code is code and isinstance(part, nn.Module) and "type" in str(error):
                own = {p.dtype for p in part.parameters()}
                dtypes = {x.dtype for x in tree_leaves(given) if isinstance(x, Tensor) and x.is_floating_point()}
                if other := [str(dtype) for dtype in dtypes - own]:
                    with suppress(Exception):  # in its own dtype the model may raise as well
                        fit = tree_map_only(Tensor, lambda x: x.to(*own) if x.is_floating_point() else x, given)  # noqa: B023
                        part(*fit[0], **fit[1])
                        place = in_words(code.co_filename, line, code.co_name)
                        return f"in your adapter, at {place}: it hands {other[0]} to a model in another dtype"
        return ""

    @property
    def only_read(self) -> bool:
        """Whether nothing says that it is trained, because the adapter has a cache or `generate`, and no `loss`."""
        return self.adapter is not None and bool(self.adapter.extend or self.adapter.generate) and not self.adapter.loss

    @cached_property
    def one_by_one(self) -> str:
        """Why `extend` can be given single new tokens only: it refuses several, or answers the last; else empty."""
        extend = self.part("extend")
        try:
            logits, _ = extend(*self.inputs(2, 7, 3), cache=None)
        except Exception as error:
            return f"it refuses several new tokens: {one_line(error)}" if is_refusal(error) else ""
        words = "`extend` gives the last new token's logits only; to have this judged, return those of all new tokens"
        return f"{words}, (batch, new tokens, vocabulary)" if getattr(logits, "shape", ())[1:2] == (1,) else ""

    @cached_property
    def shortest(self) -> int:
        """How many tokens the shortest sentence has that the model reads, which is 2 if it refuses one."""
        try:
            self(*self.inputs(2, 1, 1))
        except Exception as error:
            with if_it_runs():
                self(*self.inputs(2, 2, 2))
                self.refused = one_line(error)
                return 2
        return 1

    def run(self, module: nn.Module, *inputs: Tensor, **options: Any) -> Any:
        """Call a module; padding is told by a mask (1 = real) if it is an adapter's call that takes one."""
        padded = any(x.is_meta or (x == self.pad_id).any() for x in inputs)
        if padded and "mask" in self.accepts(module) and "mask" not in options:
            options = {"mask": (inputs[-1] != self.pad_id).long(), **options}
        with self.block(module):
            return module(*contiguous(inputs), **dict(zip(options, contiguous(options.values()))))

    def block(self, module: nn.Module) -> AbstractContextManager[Any]:
        """That inside which a module is called."""
        return Float64() if module in self.wide else nullcontext()

    def all_float64(self) -> AbstractContextManager[Any]:
        """Where the module is in float64, whoever asks for float32 gets float64, as scores and losses often do."""
        return Float64() if self.tolerance < 1e-9 else nullcontext()

    def part(self, name: str, adapter: nn.Module | None = None) -> Callable[..., Any]:
        """A function of an adapter, with its model in the first place; not applicable if the adapter has none."""
        adapter = self.module if adapter is None else adapter  # a compiled one has no truth value
        function = getattr(adapter, name) if isinstance(adapter, Adapted) else None
        if function is None:
            raise NotApplicable(f"the adapter has no `{name}`")

        @torch.no_grad()
        def call(*arguments: Any, **options: Any) -> Any:
            with self.block(adapter):
                given = dict(zip(options, contiguous(options.values())))
                return function(adapter.model, *contiguous(arguments), **given)

        return call

    def extended(self, *inputs: Tensor, **options: Any) -> tuple[Tensor, Any]:
        """What `extend` gives: logits, held to one for each new token, and the cache."""
        logits, cache = self.part("extend")(*inputs, **options)
        if logits.shape[:2] != inputs[-1].shape:
            new = inputs[-1].size(1)
            raise ValueError(f"for {new} new tokens `extend` must give {new} logits; got {tuple(logits.shape)}")
        return logits, cache

    def only_its_loss_hears(self) -> set[str]:
        """The parameters that the adapter's loss hears and the logits do not, such as heads for later tokens."""
        adapter = self.module
        if not isinstance(adapter, Adapted) or adapter.loss is None:
            return set()
        inputs = self.inputs(16)
        adapter.zero_grad(set_to_none=True)
        with self.block(adapter), torch.enable_grad():
            adapter.loss(adapter.model, *inputs, self.tokens(*inputs[-1].shape, side=-1)).backward()
        heard = {name for name, p in adapter.named_parameters() if p.grad is not None and p.grad.any()}
        return heard - {name for name, g in self.gradients(*inputs).items() if g is not None and g.any()}

    @staticmethod
    def accepts(module: nn.Module, part: str = "call") -> Collection[str]:
        """The names of the arguments that a function of an adapter takes."""
        function = getattr(module, part) if isinstance(module, Adapted) else None
        return signature(function).parameters if function else ()

    def positions(self, mask: Tensor) -> Tensor:
        """Positions of real tokens (rows, length), counted as the model itself counts them."""
        return (mask.cumsum(dim=1) - 1).clamp(min=0) + self.first_position

    def told_positions(self, mask: Tensor) -> dict[str, Tensor]:
        """The positions of real tokens as an option of a call, if the adapter's call takes them."""
        return {"positions": self.positions(mask)} if "positions" in self.accepts(self.module) else {}

    @cached_property
    def first_position(self) -> int:
        """The number that explicit positions must begin with to change nothing; 0 if none does."""
        *others, tokens = self.inputs()
        if "positions" in self.accepts(self.module):
            wanted = self(*others, tokens)
            for first in range(self.pad_id + 4):
                with if_it_runs():
                    found = self(*others, tokens, positions=first + torch.arange(tokens.size(1)).expand_as(tokens))
                    if max_difference(found, wanted) <= self.tolerance:
                        return first
        return 0

    def loss(self, logits: Tensor) -> Tensor:
        """A cross-entropy, of labels that have nothing to do with the sentences."""
        labels = torch.arange(logits[..., 0].numel()) % self.sides[-1].vocab_size
        return F.cross_entropy(logits.flatten(0, 1), labels)

    def gradients(
        self, *inputs: Tensor, rows: int | None = None, module: nn.Module | None = None
    ) -> dict[str, Tensor | None]:
        """The gradient of `loss` over the first rows, by the name of the parameter; not applicable if it has none."""
        module = self.module if module is None else module
        module.zero_grad(set_to_none=True)
        detach_kept(module)
        loss = self.loss(self.run(module, *inputs)[:rows])
        if loss.requires_grad:
            loss.backward()
        found = {
            name: p.grad if p.grad is None else p.grad.to_dense()  # such as of an embedding with sparse=True
            for name, p in module.named_parameters()
            if p.requires_grad and p.numel()
        }
        module.zero_grad(set_to_none=True)
        if all(gradient is None for gradient in found.values()):
            raise NotApplicable("nothing in the model gets a gradient")
        return found

    def remembers(
        self, inputs: Collection[Tensor], before: Collection[Tensor], call: Callable[..., Tensor] | None = None
    ) -> float:
        """How far apart new modules' answers to sentences are, with others called before and without; 0 if by rounding.

        It is infinite if the module that was called before raises.
        """
        modules, call = list[nn.Module](), call or self.logits
        for _ in range(2):
            with self.block(self.module), torch.no_grad():
                modules.append(self.build().double() if self.tolerance < 1e-9 else self.build())
                for new, trained in zip(modules[-1].parameters(), self.module.parameters()):
                    if new.shape == trained.shape:  # a table may have grown in use
                        new.copy_(trained)
        self.wide |= {*modules} if self.module in self.wide else set()
        call(modules[0], *before)
        with seeded(self.seed):
            known = call(modules[1], *inputs)
        moved = self.moved_from(known, modules[0], inputs, call)
        return moved if moved > self.tolerance else 0.0

    def moved_from(
        self, known: Tensor, module: nn.Module, inputs: Collection[Tensor], call: Callable[..., Tensor]
    ) -> float:
        """How far a module's answers are from those known, with the same random numbers; infinite if it raises."""
        with if_it_runs(), seeded(self.seed):
            return max_difference(call(module, *inputs), known)
        return math.inf

    @cached_property
    def training_module(self) -> nn.Module:
        """A copy of the module in training mode."""
        return self._copy(self.module).train()

    def _copy(self, module: nn.Module) -> nn.Module:
        detach_kept(module)  # `deepcopy` refuses a tensor with a graph
        copy = deepcopy(module)
        self.wide |= {copy} if module in self.wide else set()
        return copy

    def in_training(self, *inputs: Tensor, dropout: bool = False) -> Tensor:
        """Call the module in training mode, with the same random numbers each time, and by default without dropout.

        An expert draws for the tokens that it gets, so with dropout what one token draws depends on where others go.
        """
        module = self.training_module if dropout else self.without_dropout

        def call() -> Tensor:
            with seeded(self.seed), nullcontext() if dropout else NoDropout():
                return self.logits(module, *inputs)

        self.again[logits := call()] = module, call, inputs
        return logits

    @cached_property
    def without_dropout(self) -> nn.Module:
        """A copy in training mode, for `NoDropout`: dropout modules do nothing, and rates, by their names, are 0."""
        module = self._copy(self.training_module)
        for part in module.modules():
            if isinstance(part, nn.modules.dropout._DropoutNd):
                part.eval()
            vars(part).update({key: 0.0 for key, p in vars(part).items() if "drop" in key and isinstance(p, float)})
        return module

    @cached_property
    def lengths(self) -> list[int]:
        """Try short ones, the longest that it says it accepts, and others, up to 256, where it runs.

        The others are beyond each size of the tensors and whole numbers that it keeps: a table or a mask may end there.
        """
        kept = [value for module in self.module.modules() for value in vars(module).values()]
        tensors = [*self.module.parameters(), *self.module.buffers(), *(x for x in kept if isinstance(x, Tensor))]
        sizes = {n for tensor in tensors for n in tensor.shape} | {n for n in kept if isinstance(n, int)}
        limit = 256 if self.max_len is None else min(self.max_len, 256)
        found = {LONGEST} if self.max_len is None else {LONGEST, limit}
        for size in sorted(n for n in sizes if LONGEST < n <= limit):
            for length in (size + 2, size):
                with if_it_runs():
                    if self.max_len is None or length <= self.max_len:
                        self(*self.inputs(1, length, length))
                        found.add(length)
                        break
        return [7, *sorted(found)]

    @cached_property
    def tolerance(self) -> float:  # type: ignore[override]
        """What rounding may do to logits of spread 1 in some thousand operations."""
        dtypes = [p.dtype for p in self.module.parameters() if p.is_floating_point()]
        return 1e4 * torch.finfo(dtypes[0] if dtypes else torch.float32).eps

    def tokens(self, rows: int = 3, length: int = 7, *, side: int = 0) -> Tensor:
        """Draw tokens of a side without padding, (rows, length)."""
        tokens = torch.randint(self.sides[side].vocab_size - 1, (rows, length), generator=self.generator)
        return tokens + (tokens >= self.pad_id)

    def inputs(self, rows: int = 3, whole: int = 7, causal: int = 6) -> tuple[Tensor, ...]:
        """Draw tokens for each side: (rows, causal) for a causal one, (rows, whole) for one that reads both ways."""
        lengths = [causal if side.causal else whole for side in self.sides]
        return tuple(self.tokens(rows, length, side=number) for number, length in enumerate(lengths))

    def with_the_last(self) -> tuple[Tensor, ...]:
        """Tokens for each side, with the last of its vocabulary that is no padding among them."""
        inputs = self.inputs()
        for side, tokens in zip(self.sides, inputs):
            tokens[0, 0] = side.vocab_size - (2 if self.pad_id == side.vocab_size - 1 else 1)
        return inputs

    def every_token(self, *, side: int = 0) -> Tensor:
        """Up to 80 tokens of a side, in random order, no padding: (80, 1); (40, 2) if the model refuses one alone."""
        size = self.sides[side].vocab_size - 1
        tokens = torch.cat([torch.randperm(size, generator=self.generator) for _ in range(80 // size + 1)])[:80]
        return (tokens + (tokens >= self.pad_id)).view(-1, self.shortest)

    def other(self, tokens: Tensor, *, side: int = 0) -> Tensor:
        """Draw tokens that differ from these in every place, and are no padding."""
        size = self.sides[side].vocab_size
        step = torch.randint(1, size - 1, tokens.shape, generator=self.generator)
        rank = tokens - (tokens > self.pad_id).long()  # 0 … size - 2, the padding left out
        new = (rank + step) % (size - 1)
        return new + (new >= self.pad_id)

    def each_changed(self, tokens: Tensor, *, side: int) -> Tensor:
        """(1, length) tokens in length + 1 rows: row i has another token at place i, and the last row has none."""
        rows, places = tokens.repeat(tokens.size(1) + 1, 1), torch.arange(tokens.size(1))
        rows[places, places] = self.other(tokens[0], side=side)
        return rows

    def padding(self, rows: int, length: int) -> Tensor:
        """(rows, length) of padding."""
        return torch.full((rows, length), self.pad_id)

    @torch.no_grad()
    def logits(self, module: nn.Module, *inputs: Tensor, **options: Any) -> Tensor:
        """Call a module, and hold the answer to its promise: (batch, target length, target_vocab_size)."""
        logits = self.run(module, *inputs, **options)
        if not isinstance(logits, Tensor):
            error = TypeError(f"the model must return a tensor of logits; got {type(logits).__name__}")
            if part := ".logits" if hasattr(logits, "logits") else "[0]" if isinstance(logits, tuple | list) else "":
                error.add_note(f"the factory may return Adapted(model, lambda model, *x: model(*x){part})")
            raise error
        wanted = (*inputs[-1].shape, self.sides[-1].vocab_size)
        if logits.shape != wanted:
            got = tuple(logits.shape)
            sizes = self.words("(batch, target length, target vocab_size)").replace("t v", "t_v")
            raise ValueError(f"logits must be {sizes} = {wanted}; got {got}")
        return logits

    def __call__(self, *inputs: Tensor, **options: Any) -> Tensor:
        """Call the module under test."""
        if not self.located:
            self.recent = [*self.recent[-1:], inputs]
        call = partial(self.logits, self.module, *inputs, **options)
        self.again[logits := call()] = self.module, call, inputs
        return logits

    def weighed(self, keys: int, *inputs: Tensor, **options: Any) -> list[Tensor]:
        """Which of so many keys each attention of a call gives any weight, (queries, keys), where it is known."""
        with if_it_runs(), Attention() as attention:
            self(*inputs, **options)
        return [seen for seen in attention.seen if seen.size(1) == keys]

    def heals(self, moved: Callable[[], float], *hidden: Tensor) -> bool:
        """Whether nothing moves any more than rounding does if attention hides these keys; see `Attention`."""
        with if_it_runs(), Attention(*hidden):
            return moved() <= self.tolerance
        return False

    def norm_over_positions(self, new: Collection[Tensor], old: Collection[Tensor], real: slice) -> str:
        """Which norm or mean, given the same at real positions of two calls, is the first to differ there; or empty."""
        lengths, calls = [[*inputs][-1].size(1) for inputs in (new, old)], list[list[Any]]()
        for inputs in (new, old):
            with if_it_runs(), Norms() as norms:
                self(*inputs)
            calls.append(norms.found)

        def moved(*both: Tensor) -> float:
            cut = [x[(ALL,) * x.shape.index(n) + (real,)] if n in x.shape else x for x, n in zip(both, lengths)]
            return max_difference(*(x.clamp(min=-1e4) for x in cut))  # hidden scores have no spread

        for (name, x, y, place), (_, old_x, old_y, _) in zip(*calls):
            if x.dim() > 2 and lengths[0] in x.shape and moved(x, old_x) <= self.tolerance < moved(y, old_y):
                self.at = place
                return f"`{name}` runs over the positions, among them those that should not be heard"
        return ""

    def apart(
        self, new: Tensor, old: Tensor, at: slice = ALL, old_at: Any = None, *, old_rows: Any = ALL, source: slice = ALL
    ) -> float:
        """How far the logits of two calls are apart; the first module that is so is noted, for the finding.

        What should agree are the positions `at` of the last side, in the old call `old_at` of its `old_rows`, and on
        the first side of two the positions `source`.
        """
        old_at = at if old_at is None else old_at
        moved = max_difference(new[:, at], old[old_rows][:, old_at])
        if moved > self.tolerance and not self.located:
            one, other = (self.recorded(call, module) for module, call, _ in (self.again[new], self.again[old]))
            self.recent = [self.again[logits][2] for logits in (old, new)]
            self.first_apart(one, other, at, old_at, ALL, old_rows, source)
        return moved

    def recorded(self, call: Callable[[], Any], module: nn.Module | None = None) -> Any:
        """What a call returns, and with it what modules put out that may have a vector for each token."""
        module = self.module if module is None else module
        names = {part: name for name, part in module.named_modules()}
        found: dict[tuple[str, int], Seen] = {}

        def keep(number: int, part: nn.Module, output: Tensor, given: Tensor | None) -> None:
            if output.dim() == 3 and part in names:
                kept = given.detach().clone() if given is not None and given.dim() == 3 else None
                place = called_at(sys._getframe(2))
                found[names[part] or "the model itself", number] = output.detach().clone(), kept, place

        with every_output(keep, given=True):
            return call(), found

    def first_apart(
        self, new: Recorded, old: Recorded, at: slice, old_at: slice, rows: Any = ALL, old_rows: Any = ALL,
        source: slice = ALL,
    ) -> None:  # fmt: skip
        """Note the first module whose vectors differ between two calls, and who called it; see `apart`."""

        def vectors(output: Tensor, logits: Tensor, places: slice) -> Tensor:
            """(rows, places, channels), whatever comes first; nothing where that cannot be told."""
            rows, length = logits.shape[:2]
            if len(output) == rows and output.size(1) != length == output.size(2):
                output = output.mT  # a convolution's
            rows_first = len(output) == rows or (len(output), output.size(1)) == (1, length)
            output = output if rows_first else output.transpose(0, 1)
            told = len(output) in (1, rows) and (rows != length or rows == 1)
            told &= len(self.sides) > 1 or output.size(1) == length
            return output[: told * rows, places if output.size(1) == length else source].expand(told * rows, -1, -1)

        def moved(one: Tensor, other: Tensor) -> float:
            one, other = vectors(one, new[0], at), vectors(other, old[0], old_at)
            if not len(one) * len(other):
                return 0.0
            one, other = one[rows], other[old_rows]
            return max_difference(one, other) if one.shape == other.shape else 0.0

        for key in (key for key in new[1] if key in old[1]):
            (output, given, self.at), (old_output, old_given, _) = new[1][key], old[1][key]
            if moved(output, old_output) > self.tolerance:
                self.where = key[0]
                self.located += f"; the first module that differs is {key[0]}"
                if given is None or old_given is None or given.size(-1) != old_given.size(-1):
                    return
                if given.shape[:2] == output.shape[:2]:
                    for words, undo in MIXED_UP.items():
                        for heads in (n for n in range(2, given.size(-1)) if given.size(-1) % n == 0):
                            undone = moved(undo(given, heads), undo(old_given, heads))
                            if moved(given, old_given) > self.tolerance >= undone:
                                self.shown = words
                                return
                return
        self.at = None

    def states(self, length: int, *inputs: Tensor) -> dict[tuple[nn.Module, int], Tensor]:
        """What modules put out, (batch, length, channels), in the order of calls, by the module and its call's number.

        There must not be as many sentences as tokens.
        """
        found: dict[tuple[nn.Module, int], Tensor] = {}

        def keep(number: int, module: nn.Module, output: Tensor) -> None:
            if output.dim() == 3 and output.is_floating_point():
                rows_first = output if len(output) == len(inputs[0]) else output.transpose(0, 1)
                if rows_first.shape[:2] == (len(inputs[0]), length):
                    found[module, number] = rows_first.clone()

        model = self.module  # built before anything is counted
        with every_output(keep):
            self.logits(model, *inputs)
        return found


MIXED_UP: dict[str, Callable[[Tensor, int], Tensor]] = {  # what was done, and what undoes it: (b, n, channels)
    "heads are merged without transposing them back": lambda x, heads: (
        x.reshape(len(x), heads, x.size(1), -1).transpose(1, 2).reshape(x.shape)
    ),
    "heads are cut without a transpose": lambda x, heads: x.unflatten(-1, (heads, -1)).transpose(1, 2).reshape(x.shape),
}


def plain_tensors(module: nn.Module, call: Callable[[], Tensor] | None = None) -> list[str]:
    """The attributes, of a module and all inside it, that hold tensors which are neither parameters nor buffers.

    Args:
        module: the module.
        call: if given, only those count that matter: spoilt, they change what it returns, or it raises.
    """
    found, before = [], None if call is None else call()
    own = {*map(id, module.parameters()), *map(id, module.buffers())}  # torch's LSTM also keeps them in a list
    for name, owner in module.named_modules():
        for key, value in list(vars(owner).items()):
            held = value if isinstance(value, list | tuple) else [value]
            if key in {"_parameters", "_buffers", "_modules"} or own.issuperset(map(id, held)):
                continue
            if not (spoilt := _spoilt(value)):
                continue
            matters = True
            if call is not None and before is not None:
                vars(owner)[key] = spoilt[0]
                with suppress(Exception):
                    matters = max_difference(call(), before) > 0
                vars(owner)[key] = value
            found += [f"{name}.{key}".lstrip(".")] * matters
    return found


def _spoilt(value: object) -> list[object]:
    """The same with other numbers in its tensors, if it is a tensor or holds some; else nothing."""
    if isinstance(value, Tensor):
        wrong = torch.full_like(value, math.nan) if value.is_floating_point() else torch.zeros_like(value)
        return [wrong if value.is_floating_point() or value.any() else torch.ones_like(value)]
    items = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list | tuple) else []
    if not any(isinstance(item, Tensor) for item in items):
        return []
    new = [_spoilt(item)[0] if isinstance(item, Tensor) else item for item in items]
    return [dict(zip(value, new))] if isinstance(value, dict) else [tuple(new) if isinstance(value, tuple) else new]


def constant_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The vectors and matrices to be trained in which all numbers are equal, by name."""
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad and p.numel() > 1}
    return {name: p for name, p in parameters.items() if (p == p.flatten()[:1]).all()}


def indices_beside_table(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    """A hook that asks what the device `meta` does not: do an embedding's indices lie where its table lies?"""
    if isinstance(module, nn.Embedding) and any(indices.device != module.weight.device for indices in inputs):
        raise RuntimeError("the indices of an nn.Embedding are not on the expected device")


@contextmanager
def every_output(change: Callable[..., Tensor | None], given: bool = False) -> Iterator[None]:
    """Inside the block, show a function what each module puts out, the first tensor of several.

    It gets the number of this module's call, the module, the tensor and, if asked for, what the module was given first.
    What it returns, if anything, takes the tensor's place. Calls are counted for each module, as of experts.
    """
    numbers = Counter[nn.Module]()

    def watch(module: nn.Module, inputs: tuple, output: Any) -> Any:
        first, *rest = output if isinstance(output, tuple) and output else (output,)
        seen = isinstance(first, Tensor) and not first.is_nested  # torch's encoder may put out nested tensors
        numbers[module] += seen
        x = inputs[0] if inputs and isinstance(inputs[0], Tensor) and not inputs[0].is_nested else None
        new = change(numbers[module], module, first, *[x] * given) if seen else None
        return (new, *rest) if new is not None and isinstance(output, tuple) else new

    with register_module_forward_hook(watch):
        yield


class Adapted(nn.Module):
    """A module that is called in another way.

    Args:
        model: any module.
        call: called as `call(model, *arguments, **options)`; makes the model's answer of them. If a model of one side
            takes `mask` (1 = real, 0 = padding) or `positions`, both (batch, length), its call says so by these names.
        extend: called as `extend(model, *inputs, cache=cache)`, the last of the inputs being new tokens only; returns
            their logits, and the cache with them. `None` is an empty cache. May take `mask`, of old and new tokens, and
            `positions`, of the new ones.
        reorder: called as `reorder(model, cache, rows)`; returns a cache of these rows of the batch.
        crop: called as `crop(model, cache, length)`; returns a cache of that many tokens.
        generate: called as `generate(model, *inputs, steps)`; returns the last of the inputs and so many more tokens,
            the most probable ones. May take `mask`.
        beams: called as `beams(model, *inputs, steps)`; returns the same, as a beam search finds them, and the
            log-probability of the new tokens, (batch).
        loss: called as `loss(model, *inputs, labels)`; returns the loss that the model computes itself of labels, -100
            where none is asked for.
        one_cache: the module itself keeps the cache, so there is one at a time.
    """

    def __init__(
        self, model: nn.Module, call: Callable[..., Any], *, extend: Callable[..., Any] | None = None,
        reorder: Callable[..., Any] | None = None, crop: Callable[..., Any] | None = None,
        generate: Callable[..., Any] | None = None, beams: Callable[..., Any] | None = None,
        loss: Callable[..., Any] | None = None, one_cache: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.model, self.call, self.one_cache = model, call, one_cache
        self.extend, self.reorder, self.crop, self.generate = extend, reorder, crop, generate
        self.beams, self.loss = beams, loss

    def forward(self, *arguments: Any, **options: Any) -> Any:
        """Call the model as `call` says."""
        return self.call(self.model, *arguments, **options)


def sequence_first(model: nn.Module) -> Adapted:
    """Fit a model whose tokens are (length, batch) and whose logits are (length, batch, vocabulary)."""
    return Adapted(model, lambda model, source, target: model(*contiguous([source.T, target.T])).transpose(0, 1))


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
