# Generated from chapters/09b_settings.md: edit it there and `make export`, or here and `make sync`.

"""The loss of a translation: cross-entropy over real tokens."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from transformer_lib.data import token_batches
from transformer_lib.model import Transformer, evaluation
from transformer_lib.precision import mixed_precision, to_device
from transformer_lib.training.distributed import all_reduce_sum, rank_and_world_size

Pairs = Sequence[tuple[list[int], list[int]]]


def translation_loss(
    model: Transformer,
    source: Int[Tensor, "batch n"],
    target: Int[Tensor, "batch m"],
    *,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Float[Tensor, ""]:
    """Cross-entropy of each real target token, given the ones before it (Vaswani et al. 2017, section 5.4).

    Args:
        model: the model; it is called as a module, with its hooks. In training on a CPU its encoder and decoder are,
            and the loss reads the weight of its `output_projection`, if that is a linear map without a bias.
        source: (batch, source length), padded on the right.
        target: (batch, target length), each row <bos> … <eos>, padded on the right. It is shifted here.
        label_smoothing: share of the target probability that is spread over the whole vocabulary.
        reduction: "mean" or "sum", over real tokens.

    Returns:
        A scalar, in nats; 0 if there is no real target, even for "mean", so that such a share of a batch changes
        no weight.

    Raises:
        ValueError: `reduction` is neither "mean" nor "sum"; or, on a CPU, a token is not in its vocabulary.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f'reduction must be "mean" or "sum"; got {reduction!r}')
    inputs, labels = target[:, :-1], target[:, 1:]  # (batch, target length - 1)
    size = model.config.target_vocab_size
    if labels.is_cpu and ((labels < 0) | (labels >= size)).any():
        raise ValueError(f"expected target ids from 0 to {size - 1}; got {int(labels.min())} to {int(labels.max())}")
    if torch.is_grad_enabled() and _fits_in_pieces(model.output_projection):
        return _loss_in_pieces(model, source, inputs, labels, label_smoothing, reduction)
    logits = model(source, inputs, is_causal=True).flatten(0, 1)  # (batch · (target length - 1), vocabulary)
    ignored = model.config.pad_id  # a GPU would have to wait for the number of real tokens, so padding goes on
    total = F.cross_entropy(
        logits, labels.flatten(), ignore_index=ignored, label_smoothing=label_smoothing, reduction="sum"
    )
    return total if reduction == "sum" else total / (labels != ignored).sum().clamp(min=1)


def validation_loss(model: Transformer, pairs: Pairs, batch_tokens: int, precision: str = "auto") -> float:
    """The mean loss of a real token of `pairs`, in nats, without dropout and label smoothing; in a `mixed_precision`.

    Of several processes each computes its share of the batches; all must call it, and all get the same.

    Raises:
        ValueError: there is no real token.
    """
    device, pad_id = next(model.parameters()).device, model.config.pad_id
    total, count = torch.zeros((), dtype=torch.float64, device=device), 0
    rank, world = rank_and_world_size()
    with evaluation(model), mixed_precision(device, precision):
        for batch in islice(token_batches(pairs, batch_tokens, pad_id=pad_id), rank, None, world):
            source, target = (to_device(side, device) for side in batch)
            total += translation_loss(model, source, target, reduction="sum")
            count += real_targets(batch.target, pad_id)
    loss, tokens = all_reduce_sum(total.item(), count)
    if not tokens:
        raise ValueError("expected pairs with a token to predict; got none")
    return loss / tokens


def real_targets(target: Int[Tensor, "batch m"], pad_id: int) -> int:
    """The number of target tokens that are predicted: all but the first column and the padding."""
    return int((target[:, 1:] != pad_id).sum())


class _CrossEntropy(torch.autograd.Function):
    """The summed loss of the logits `hidden @ weight.T`, 256 rows at a time, and its gradients in the same visit."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> Tensor:
        """Return a scalar from hidden (rows, d), weight (V, d), labels (rows,) and the label smoothing."""
        total, spread = torch.zeros((), dtype=torch.float64), smoothing / len(weight)
        grad_hidden, grad_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        for h, y, grad in zip(hidden.split(256), labels.split(256), grad_hidden.split(256)):
            log_p = F.linear(h, weight).log_softmax(dim=-1)  # (256, V)
            total -= (1 - smoothing) * log_p.gather(1, y[:, None]).sum() + spread * log_p.sum()
            excess = log_p.exp_().sub_(spread)  # becomes p - q, in place
            excess[torch.arange(len(y)), y] -= 1 - smoothing
            torch.mm(excess, weight, out=grad)
            grad_weight.addmm_(excess.T, h)
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total.to(hidden.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients by the one that comes back; what is not trained has none."""
        if torch.is_grad_enabled():  # they would be taken for constants
            raise RuntimeError("the loss has first derivatives only; got create_graph=True")
        grad_hidden, grad_weight = ctx.saved_tensors
        return grads[0] * grad_hidden, grads[0] * grad_weight, None, None


def _fits_in_pieces(project: nn.Module) -> bool:
    """Whether a model's last map is one that `_CrossEntropy` computes: linear, without a bias, on a CPU."""
    return type(project) is nn.Linear and project.bias is None and project.weight.device.type == "cpu"


def _loss_in_pieces(
    model: Transformer,
    source: Int[Tensor, "batch n"],
    inputs: Int[Tensor, "batch steps"],
    labels: Int[Tensor, "batch steps"],
    smoothing: float,
    reduction: str,
) -> Float[Tensor, ""]:
    """What `translation_loss` returns, with no more than 256 rows of logits at a time."""
    hidden, real = model.hidden_states(source, inputs, is_causal=True), labels != model.config.pad_id
    hidden, labels = hidden[real], labels[real]  # (real tokens, d), (real tokens,)
    total = _CrossEntropy.apply(hidden, model.output_projection.weight, labels, smoothing)
    return total if reduction == "sum" else total / max(len(labels), 1)
