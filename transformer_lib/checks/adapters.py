# Generated from chapters/08_checks.md: edit the chapter, not this file, then run `make export`.

"""Models of other signatures, made to fit the suite: tokens in, logits out, batch first."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


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
    """Fit a model that is called as `model(source, target, *masks)`.

    Args:
        model: the module.
        masks: makes the masks, in the model's own order and convention, of source and target (batch, length).
    """
    return Adapted(model, lambda model, source, target: model(source, target, *masks(source, target)))


def hugging_face(model: nn.Module, pad_id: int) -> Adapted:
    """Fit an encoder-decoder with Hugging Face's names: masks of 1 = real and 0 = padding, answers with `.logits`."""

    def call(model: nn.Module, source: Tensor, target: Tensor) -> Tensor:
        answer = model(
            input_ids=source,
            attention_mask=(source != pad_id).long(),
            decoder_input_ids=target,
            decoder_attention_mask=(target != pad_id).long(),
            use_cache=False,
        )
        return answer.logits

    return Adapted(model, call)


def values_first(attention: nn.Module) -> Adapted:
    """Fit a multi-head attention that is called as attention(value, key, query, mask) to our order and keyword."""
    return Adapted(attention, lambda model, query, key, value, *, mask=None: model(value, key, query, mask))
