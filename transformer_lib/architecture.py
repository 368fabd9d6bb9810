# Generated from chapters/A_command_line.md: edit it there and `make export`, or here and `make sync`.

"""A model of your own in the place of the library's: it is trained, stored, and searched with."""

from __future__ import annotations

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lib.cache import KeyValueCache
from transformer_lib.files import InputError, one_line
from transformer_lib.loading import function_of
from transformer_lib.model import Memory, Transformer, TransformerConfig

SIZES = dict(d_model=1, num_heads=1, d_ff=1, num_encoder_layers=1, num_decoder_layers=1)  # its own are not known


class Architecture(Transformer):
    """An encoder-decoder model that is called as model(source, target), where a `Transformer` is expected.

    It has no cache: `use_cache` must be False in a search.

    Args:
        model: returns logits (batch, target length, target_vocab_size) for token ids (batch, length), the target
            shifted right. It makes its masks itself.
        config: vocabularies, padding and the longest sequence; the sizes in it are not used.
    """

    def __init__(self, model: nn.Module, config: TransformerConfig) -> None:
        nn.Module.__init__(self)  # and none of the parts of a `Transformer`
        self.model, self.config = model, config
        self.output_projection = nn.Identity()  # type: ignore[assignment]  # what `decode` returns are logits

    def forward(
        self, source_tokens: Int[Tensor, "batch n"], target_tokens: Int[Tensor, "batch m"], *, is_causal: bool = False
    ) -> Float[Tensor, "batch m vocabulary"]:
        """Return the logits of the model itself, which is always causal."""
        return self.model(source_tokens, target_tokens)

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
            raise ValueError("a model of your own has no cache: give use_cache=False")
        return self.model(memory.states, target_tokens)


def architecture(name: str) -> Callable[[TransformerConfig], Architecture]:
    """What makes the model of a configuration by a function of yours, for `train_translator` and `from_pretrained`.

    Args:
        name: such as my_transformer.py:build.

    Raises:
        InputError: there is no such function, or it makes no module.
    """
    function = function_of(name)

    def build(config: TransformerConfig) -> Architecture:
        try:
            model = function(config.source_vocab_size, config.target_vocab_size, config.pad_id)
        except (Exception, SystemExit) as error:
            raise InputError(
                f"{name}, called with the sizes of two vocabularies and pad_id: {one_line(error)}"
            ) from error
        if not isinstance(model, nn.Module):
            raise InputError(f"{name} should return a torch.nn.Module; it returns {type(model).__name__}")
        return Architecture(model, config)

    return build
