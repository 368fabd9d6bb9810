# Generated from chapters/A_command_line.md: edit it there and `make export`, or here and `make sync`.

"""A model of your own in the place of the library's: it is trained, stored, and searched with."""

from __future__ import annotations

import inspect
import logging
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lib.cache import KeyValueCache
from transformer_lib.files import InputError, one_line
from transformer_lib.loading import function_of, place_in, place_of, source_of
from transformer_lib.model import Memory, Transformer, TransformerConfig, evaluation

_LOGGER = logging.getLogger("transformer_lib.own_model")
_NO_EXTRA = nn.Module.get_extra_state
SIZES = dict(d_model=1, num_heads=1, d_ff=1, num_encoder_layers=1, num_decoder_layers=1)  # its own are not known


class Architecture(Transformer):
    """An encoder-decoder model that is called as model(source, target), where a `Transformer` is expected.

    It has no cache: a search computes all earlier positions anew at each step.

    Args:
        model: returns logits (batch, target length, target_vocab_size) for token ids (batch, length), the target
            shifted right. It makes its masks itself.
        config: vocabularies, padding and the longest sequence; the sizes in it are not used.
        name: what to call it in an error.
        made_by: the function that made it; errors say where in the files of its folder they were raised.
        code: the content of its file, which is stored with its weights.

    Raises:
        InputError: wherever the model is used: it fails, or returns something else. It says where in its file.
    """

    has_cache = False

    def __init__(
        self,
        model: nn.Module,
        config: TransformerConfig,
        *,
        name: str = "the model",
        made_by: Callable[..., Any] | None = None,
        code: bytes | None = None,
    ) -> None:
        nn.Module.__init__(self)  # and none of the parts of a `Transformer`
        self.model, self.config, self.name, self.code = model, config, name, code
        self.functions = [inspect.unwrap(function) for function in (type(model).forward, made_by) if function]
        files = [found.co_filename for f in self.functions[1:] if (found := getattr(f, "__code__", None))]
        self.folder = Path(*files).resolve().parent
        self.tried = set[bool]()  # in training, in evaluation: whether it was called
        self.output_projection = nn.Identity()  # type: ignore[assignment]  # what `decode` returns are logits

    def forward(
        self, source_tokens: Int[Tensor, "batch n"], target_tokens: Int[Tensor, "batch m"], *, is_causal: bool = False
    ) -> Float[Tensor, "batch m vocabulary"]:
        """Return the logits of the model itself, which is always causal."""
        return self._logits(source_tokens, target_tokens)

    def encode(self, source_tokens: Int[Tensor, "batch n"]) -> Memory:
        """Keep the source: the model encodes it in each call."""
        return Memory(source_tokens, (source_tokens != self.config.pad_id)[:, None, None])

    def decode(
        self,
        target_tokens: Int[Tensor, "batch m"],
        memory: Memory,
        *,
        is_causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Float[Tensor, "batch m vocabulary"]:
        """Return the logits of a beginning of the target.

        Raises:
            ValueError: a cache is given.
        """
        if cache is not None:
            raise ValueError("a model of your own has no cache")
        return self._logits(memory.states, target_tokens)

    def _logits(self, source: Int[Tensor, "batch n"], target: Int[Tensor, "batch m"]) -> Float[Tensor, "batch m v"]:
        if torch.compiler.is_compiling():
            return self.model(source, target)
        with self.blamed():
            logits: Any = self.model(source, target)
        expected = (*target.shape, self.config.target_vocab_size)
        if isinstance(logits, Tensor):
            got = f"{str(logits.dtype).removeprefix('torch.')} {tuple(logits.shape)}"
            right = tuple(logits.shape) == expected and logits.is_floating_point()
        else:
            got, right = f"a {type(logits).__name__}", False
        if not right:
            raise self._refused(f"returns {got}; expected logits, one tensor {expected}: (batch, m, target vocabulary)")
        if self.training and torch.is_grad_enabled() and not logits.requires_grad:
            raise self._refused("returns logits without a gradient: leave out no_grad, inference_mode and detach")
        if self.training not in self.tried:  # a GPU would have to wait for each answer
            self.tried.add(self.training)
            if logits.isnan().any():
                raise self._refused("returns NaN: look at its masks, and at what it divides by")
        return logits

    def _refused(self, what: str) -> InputError:
        """An error that names the beginning of the model's `forward`, or of what made it."""
        codes = [code for function in self.functions if (code := getattr(function, "__code__", None))]
        places = (place_in(self.folder, code.co_filename, code.co_firstlineno) for code in codes)
        return InputError(f"{self.name} {what}{next(filter(None, places), '')}")

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Inside the block what the model raises is an InputError that says where in its file; ours stay."""
        try:
            yield
        except (InputError, MemoryError, torch.OutOfMemoryError):
            raise
        except (Exception, SystemExit) as error:
            place = place_of(error, self.folder)
            *_, (frame, _) = traceback.walk_tb(error.__traceback__)
            ours = Path(frame.f_code.co_filename).is_relative_to(Path(__file__).parent)
            if "can't allocate memory" in str(error) or (not place and (ours or isinstance(error, OSError))):
                raise
            raise InputError(f"{self.name} fails: {one_line(error)}{place}") from error

    @contextmanager
    def trained(self) -> Iterator[None]:
        """As `blamed`; behind the block a warning names what changed there and what no state of a run has."""
        before = self._attributes()
        try:
            with self.blamed():
                yield
        finally:
            now = self._attributes()
            changed = [name for name, value in before.items() if name in now and not torch.equal(now[name], value)]
            if changed:
                remedy = "a run that is resumed begins without it: keep it in a buffer, or in get_extra_state"
                _LOGGER.warning("%s changes its %s; %s", self.name, ", ".join(changed), remedy)

    def _attributes(self) -> dict[str, Tensor]:
        """Copies of the numbers and plain tensors that the model's modules have, by name."""
        found = {
            f"{path}.{name}".lstrip("."): torch.as_tensor(value).detach().cpu().clone()
            for path, module in self.model.named_modules()
            if not type(module).__module__.startswith("torch.") and type(module).get_extra_state is _NO_EXTRA
            for name, value in vars(module).items()
            if name != "training" and not name.startswith("_") and isinstance(value, int | float | Tensor)
        }
        return {name: value for name, value in found.items() if not value.is_sparse}

    def try_out(self, shapes: Iterable[tuple[int, int]], token: int) -> None:
        """Call the model with a sentence pair of each of these lengths, or raise its InputError."""
        device = next((parameter.device for parameter in self.parameters()), None)
        drawn = torch.random.fork_rng([device] if device is not None and device.type == "cuda" else [])
        with drawn, evaluation(self), warnings.catch_warnings(action="ignore"):
            for lengths in shapes:
                self(*(torch.full((1, length), token, device=device) for length in lengths))


def architecture(name: str) -> Callable[[TransformerConfig], Architecture]:
    """What makes the model of a configuration by a function of yours, for `train_translator` and `from_pretrained`.

    Args:
        name: such as my_transformer.py:build.

    Raises:
        InputError: there is no such function, or it makes no module.
    """
    function = function_of(name)
    code = source_of(name) if name.rpartition(":")[0].endswith(".py") else None

    def build(config: TransformerConfig) -> Architecture:
        try:
            model = function(config.source_vocab_size, config.target_vocab_size, config.pad_id)
        except (Exception, SystemExit) as error:
            place = place_of(error, Path(function.__code__.co_filename).parent) if inspect.isfunction(function) else ""
            said = f"called with the sizes of two vocabularies and pad_id: {one_line(error)}{place}"
            raise InputError(f"{name}, {said}") from error
        if not isinstance(model, nn.Module):
            raise InputError(f"{name} should return a torch.nn.Module; it returns {type(model).__name__}")
        made = Architecture(model, config, name=name, made_by=function, code=code)
        for part, module in model.named_modules():
            if getattr(module, "sparse", False) is True:
                raise made._refused(
                    f"has {part}, whose gradient is sparse; expected a dense one: leave out sparse=True"
                )
        if any(isinstance(parameter, nn.UninitializedParameter) for parameter in model.parameters()):
            made.try_out([(2, 2)], config.pad_id - 1 if config.pad_id else 1)  # that gives a lazy layer its shape
        return made

    return build
