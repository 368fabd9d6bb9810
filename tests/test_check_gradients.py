"""Gradients that are sparse, and those that a CPU does not have."""

import pytest
import torch
from test_check_strangers import spoilt

from transformer_lib import __main__ as command_line
from transformer_lib.checks import Adapted, assert_transformer, check_transformer
from transformer_lib.checks.reference_model import ReferenceModel

NEED_GRADIENTS = [
    "gradient reaches everything", "gradient is the derivative", "first token sees itself",
    "sizes and padding are those asked for", "unpredictable stays unpredictable",
]  # fmt: skip


def test_sparse_gradients_are_gradients():
    sparse = spoilt(built=lambda m: [setattr(table, "sparse", True) for table in (m.source_table, m.target_table)])
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
    return Adapted(ReferenceModel(*sizes), lambda model, *inputs: NotOnThisBackend.apply(model(*inputs)))


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

    return Adapted(ReferenceModel(*sizes), call)


def test_what_a_model_itself_refuses_is_a_failure():
    (finding,) = check_transformer(refuses, only=["gradient is the derivative"]).findings
    assert finding.verdict == "fail"
    assert "no gradient on a CPU for me" in finding.evidence
