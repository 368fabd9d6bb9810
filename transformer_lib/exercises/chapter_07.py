# Generated from chapters/07_model.md: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 07."""

from functools import cache

import torch

from transformer_lib.exercises import Answer, Checks
from transformer_lib.masks import decoder_mask, padding_mask
from transformer_lib.model import Transformer, TransformerConfig


@cache
def _model(pad_id: int = 0) -> Transformer:
    """A small model with random weights; the caller's random numbers stay as they are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = TransformerConfig(
            8, 8, pad_id, d_model=8, num_heads=2, d_ff=16, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0
        )
        model = Transformer(config).double().eval()
    vars(model)["__name__"] = f"a model with pad_id={pad_id}"  # for the message
    return model


def grade_07_2(answer: Answer) -> Checks:
    """Gradients of the logits by what enters the two stacks."""
    model = _model()
    for source, target, i, pad_id in (
        ([5], [1], 0, 0), ([5, 6], [1, 7], 0, 0), ([5, 6], [1, 7], 1, 0), ([5, 0], [1, 7, 4], 1, 0),
        ([5, 6, 0], [1, 7, 0, 0], 1, 0), ([5, 6], [0, 1, 7], 1, 0), ([5, 6], [0, 1, 7], 2, 0),
        ([5, 6], [1, 7, 0, 0], 2, 0), ([0, 0], [1, 7], 1, 0), ([5, 0, 3], [0, 3, 1], 2, 3),
    ):  # fmt: skip
        tokens = torch.tensor([source]), torch.tensor([target])
        x, y = (
            torch.randn(1, len(t), 8, generator=torch.Generator().manual_seed(1)).double() for t in (source, target)
        )
        x.requires_grad_(), y.requires_grad_()
        mask, own = padding_mask(tokens[0], pad_id), decoder_mask(tokens[1], pad_id)
        hidden = model.decoder(y, model.encoder(x, mask=mask), mask=own, memory_mask=mask)
        gradients = torch.autograd.grad(model.output_projection(hidden)[0, i].square().sum(), (x, y))
        expected = [(gradient[0].abs().amax(dim=-1) > 0).tolist() for gradient in gradients]
        got = answer(source, target, i, pad_id)
        two = isinstance(got, list | tuple) and len(got) == 2
        yield "the source positions are those whose gradient is not zero", two and list(got[0]) == expected[0]
        yield "the target positions are those whose gradient is not zero", two and list(got[1]) == expected[1]
