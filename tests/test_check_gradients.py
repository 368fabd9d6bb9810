"""Gradients that are changed on purpose, sparse ones, and those that a CPU does not have."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_lib import Transformer, TransformerConfig
from transformer_lib import __main__ as command_line
from transformer_lib.checks import Adapted, assert_transformer, check_transformer

DERIVATIVE = "gradient is the derivative"
SMALL = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_encoder_layers": 1, "num_decoder_layers": 1}


def small(source, target, pad):
    return Transformer(TransformerConfig(source, target, pad, **SMALL))


class Ternary(nn.Linear):
    """Weights of -1, 0 and 1 times one number, with the gradient as if they were not rounded."""

    def forward(self, x):
        size = self.weight.abs().mean()
        rounded = (self.weight / size).round().clamp(-1, 1) * size
        return F.linear(x, self.weight + (rounded - self.weight).detach(), self.bias)


def ternary(*sizes):
    model = small(*sizes)
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.feed_forward.linear1 = Ternary(SMALL["d_model"], SMALL["d_ff"])
    return model


def by_frequency(*sizes):
    model = small(*sizes)
    for table in (model.source_embedding, model.target_embedding):
        table.scale_grad_by_freq = True
    return model


def scaled(*sizes):
    """The encoder learns at a tenth of the rate."""
    model = small(*sizes)
    for parameter in model.encoder.parameters():
        parameter.register_hook(lambda gradient: gradient / 10)
    return model


def cut(*sizes):
    model = small(*sizes)
    inner = model.decoder.layers[0].feed_forward.forward
    model.decoder.layers[0].feed_forward.forward = lambda x: inner(x) + x.detach()
    return model


@pytest.mark.parametrize("factory", [ternary, by_frequency, scaled, cut])
def test_a_gradient_that_is_no_derivative_is_asked_about(factory):
    (finding,) = check_transformer(factory, only=[DERIVATIVE]).findings
    assert finding.verdict == "fail"
    assert finding.cause.startswith("is the gradient changed on purpose")
    assert "if not, part of the computation is cut off" in finding.cause


def sparse(*sizes):
    model = small(*sizes)
    for table in (model.source_embedding, model.target_embedding):
        table.sparse = True
    return model


NEED_GRADIENTS = [
    "gradient reaches everything", DERIVATIVE, "first token sees itself", "sizes and padding are those asked for",
    "unpredictable stays unpredictable",
]  # fmt: skip


def test_sparse_gradients_are_gradients():
    report = check_transformer(sparse, only=NEED_GRADIENTS)
    assert [finding.verdict for finding in report.findings] == ["pass"] * len(NEED_GRADIENTS), report


class NotOnThisBackend(torch.autograd.Function):
    """As an operation whose backward exists for a GPU alone."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return torch.ops.aten.max(gradient.to_sparse())


def no_backward(*sizes):
    return Adapted(small(*sizes), lambda model, *inputs: NotOnThisBackend.apply(model(*inputs)))


def test_what_a_cpu_cannot_do_is_one_line():
    told = []
    report = check_transformer(no_backward, on_finding=told.append)
    (finding,) = report.findings
    assert told == [finding]
    assert (finding.name, finding.verdict) == ("gradients on a CPU", "not applicable")
    assert "NotImplementedError: " in finding.evidence
    assert "CPU" in finding.evidence.partition("NotImplementedError")[2]
    with pytest.raises(AssertionError, match="no property could be tried"):
        assert_transformer(no_backward)


def test_the_command_says_so_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command_line, "function_of", lambda name: no_backward)
    assert command_line.main(["check", "mine:build"]) == 2
    said = capsys.readouterr()
    assert [line.partition(":")[0] for line in said.out.splitlines()] == [
        "not applicable gradients on a CPU", "0 pass, 0 fail, 1 not applicable",
    ]  # fmt: skip
    assert said.err.endswith("error: no property applies to mine:build: the lines above say why\n")


def refuses(*sizes):
    def call(model, *inputs):
        if torch.is_grad_enabled():
            raise NotImplementedError("no gradient on a CPU for me")
        return model(*inputs)

    return Adapted(small(*sizes), call)


def test_what_a_model_itself_refuses_is_a_failure():
    (finding,) = check_transformer(refuses, only=[DERIVATIVE]).findings
    assert finding.verdict == "fail"
    assert "no gradient on a CPU for me" in finding.evidence
