# Generated from chapters/08b_parts.md: edit the chapter, not this file, then run `make export`.

"""Properties of encoder and decoder layers."""

import math
from copy import copy, deepcopy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.checks.components import TOLERANCE, Part, apart, shown
from transformer_lib.checks.report import NotApplicable, Outcome, Property, Report, examine, holds_for
from transformer_lib.masks import causal_mask

BOTH: list[Property] = []
DECODER: list[Property] = []


class _Layer(Part):
    """A layer under test, and a way to call it that is the same for both kinds: x in, x out."""

    call: nn.Module

    def __init__(self, layer: nn.Module, d_model: int, has_memory: bool) -> None:
        super().__init__(layer)
        self.d_model = d_model
        self.memory = self.randn(4, 7, d_model) if has_memory else None

    def run(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Call the layer on x (batch, length, d_model); the memory is the same for every sentence."""
        memory = () if self.memory is None else (self.memory[:1].expand(x.size(0), -1, -1),)
        return self(x, *memory, mask=mask)

    def silent(self) -> "_Layer":
        """A copy whose sub-layers say 0: matrices and their biases are 0, torch's norms are as they start."""
        silent = copy(self)
        silent.call = deepcopy(self.call)
        for module in silent.call.modules():
            if isinstance(module, nn.LayerNorm | nn.RMSNorm):
                module.reset_parameters()
        for parameter in _matrices_and_biases(silent.call):
            nn.init.zeros_(parameter)
        return silent


def _matrices_and_biases(layer: nn.Module) -> list[Tensor]:
    """The parameters of all modules that have a matrix: not those of norms."""
    owns = [list(module.parameters(recurse=False)) for module in layer.modules()]
    return [parameter for own in owns if any(p.dim() > 1 for p in own) for parameter in own]


def _pairs(layer: _Layer, mask: Tensor | None) -> tuple[float, float]:
    """The least move of an output by a token that it may see, and the largest by one that it may not."""
    x, least, most = layer.randn(2, 5, layer.d_model), math.inf, 0.0
    before = layer.run(x, mask)
    for j in range(5):
        changed = x.clone()
        changed[:, j] = layer.randn(2, layer.d_model)
        after = layer.run(changed, mask)
        for i in range(5):
            moved = apart(after[:, i], before[:, i])
            if mask is not None and i != j and not mask[0, 0, i, j]:
                most = max(most, moved)
            else:
                least = min(least, moved)
    return least, most


@holds_for(BOTH, "self-attention is not used, or its result is overwritten", "dead")
def tokens_hear_each_other(layer: _Layer) -> Outcome:
    """Without a mask every token moves every output."""
    least, _ = _pairs(layer, None)
    return least > TOLERANCE, f"a token moves each output by at least {shown(least)}"


@holds_for(BOTH, "the mask means the opposite, is not used, or is not handed on", "blind")
def mask_is_obeyed(layer: _Layer) -> Outcome:
    """Under a causal mask no later token moves an output, and every earlier one does."""
    least, most = _pairs(layer, causal_mask(5))
    return most <= TOLERANCE < least, f"forbidden tokens move outputs by {shown(most)}, allowed ones by {shown(least)}"


@holds_for(BOTH, "sentences or tokens are mixed: a wrong reshape, or a norm over the wrong axis", "batch")
def order_is_free(layer: _Layer) -> Outcome:
    """Fewer sentences in another order, their tokens in another order, give the outputs in that order."""
    x, rows, order = layer.randn(4, 5, layer.d_model), torch.tensor([2, 0]), torch.tensor([3, 0, 4, 1, 2])
    moved = apart(layer.run(x[rows][:, order]), layer.run(x)[rows][:, order])
    return moved <= TOLERANCE, f"in another order, outputs differ by {shown(moved)}"


@holds_for(BOTH, "a residual connection is missing, or x is added twice", "")
def input_is_carried_through(layer: _Layer) -> Outcome:
    """With silent sub-layers the output is x, or its norm; a constant that one of them says is added to x once."""
    silent, width = layer.silent(), (layer.d_model,)
    x, said = (F.layer_norm(layer.randn(*many, *width), width, eps=0) for many in ((2, 5), ()))  # means are 0
    said = said / 2  # too short to cancel x
    with torch.no_grad():
        if apart(silent.run(2 * x), 2 * x) <= TOLERANCE:
            return True, "with silent sub-layers the output is the input: pre-norm"
        moved = apart(silent.run(2 * x), x)
        for bias in _matrices_and_biases(silent.call):
            if bias.shape == width:  # a sub-layer's last, or one that nobody hears
                bias.copy_(said)
                output = silent.run(x)
                bias.zero_()
                moved = max(moved, min(apart(output, x), apart(output, F.layer_norm(x + said, width))))
    if moved < 1e-4:  # two or three norms in a row differ from one by their epsilon
        return True, "with silent sub-layers the output is the norm of the input: post-norm"
    if any(parameter.min() < parameter.max() for parameter in silent.call.parameters()):
        raise NotApplicable("a norm that is not torch's has been trained")
    return False, f"the output differs from the norm of input plus sub-layer by {shown(moved)}"


@holds_for(BOTH, "dropout stands after the sum or after the norm, and drops x as well", "dropout-place")
def dropout_before_the_sum(layer: _Layer) -> Outcome:
    """Where sub-layers say 0 there is nothing to drop: in training, at a rate of one half, nothing changes."""
    silent = layer.silent()
    drops = [module for module in silent.call.modules() if isinstance(module, nn.Dropout)]
    if not drops:
        raise NotApplicable("the layer has no nn.Dropout")
    for module in drops:
        module.p = 0.5
    x = layer.randn(4, 5, layer.d_model)
    before = silent.run(x)
    silent.call.train()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        moved = apart(silent.run(x), before)
    return moved <= TOLERANCE, f"with silent sub-layers, dropout moves outputs by {shown(moved)}"


@holds_for(DECODER, "the layer does not attend to the memory, or to its own input instead", "blind")
def memory_is_heard(layer: _Layer) -> Outcome:
    """Each vector of the memory moves each output, whatever its place."""
    assert layer.memory is not None
    x, memory, least = layer.randn(4, 5, layer.d_model), layer.memory, math.inf
    before = layer(x, memory)
    for j in range(memory.size(1)):
        changed = memory.clone()
        changed[:, j] = layer.randn(4, layer.d_model)
        least = min(least, (layer(x, changed) - before).abs().amax(dim=-1).min().item())
    return least > TOLERANCE, f"a vector of the memory moves each output by at least {shown(least)}"


@holds_for(
    DECODER, "the memory's mask is not used, means the opposite, or is swapped with the other one", "source-padding"
)
def memory_mask_is_obeyed(layer: _Layer) -> Outcome:
    """A mask that forbids two vectors of the memory gives what the layer gives without them."""
    assert layer.memory is not None
    x, mask = layer.randn(4, 5, layer.d_model), (torch.arange(7) < 5).expand(4, 1, 1, 7)
    moved = apart(layer(x, layer.memory, memory_mask=mask), layer(x, layer.memory[:, :5]))
    return moved <= TOLERANCE, f"masking two vectors, and leaving them out, differ by {shown(moved)}"


def check_encoder_layer(layer: nn.Module, d_model: int) -> Report:
    """Hold an encoder layer to its properties (Vaswani et al. 2017, sections 3.1 and 5.4).

    Args:
        layer: called as layer(x, mask=mask): x is (batch, length, d_model), the mask boolean, True = may attend,
            broadcastable to (batch, heads, length, length), or None. Returns (batch, length, d_model).
        d_model: width of the tokens.

    Returns:
        One finding for each property.
    """
    return examine(_Layer(layer, d_model, False), BOTH)


def check_decoder_layer(layer: nn.Module, d_model: int) -> Report:
    """Hold a decoder layer to its properties (Vaswani et al. 2017, sections 3.1 and 5.4).

    Args:
        layer: called as layer(x, memory), with mask=mask for x, or with memory_mask=mask for the memory: x is
            (batch, target length, d_model), memory (batch, source length, d_model), masks boolean, True = may attend,
            broadcastable to (batch, heads, target length, keys). Returns (batch, target length, d_model).
        d_model: width of the tokens.

    Returns:
        One finding for each property.
    """
    return examine(_Layer(layer, d_model, True), [*BOTH, *DECODER])
