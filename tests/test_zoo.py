"""Models of transformers: a dozen that are right, and what `check hf:` refuses or ends."""

import json
import multiprocessing
import socket

import pytest
from transformers import LlamaConfig

from transformer_lib.__main__ import main
from transformer_lib.checks import hf
from transformer_lib.checks.hf import check_configuration, configured
from transformer_lib.files import InputError

OPTIONS = {"training": False, "pad_id": 3}
RIGHT = {
    "LlamaConfig": "decoder", "GPT2Config": "decoder", "MistralConfig": "decoder", "Gemma2Config": "decoder",
    "MixtralConfig": "decoder", "DeepseekV3Config": "decoder", "Lfm2Config": "decoder", "OPTConfig": "decoder",
    "BertConfig": "encoder", "RobertaConfig": "encoder", "BartConfig": "encoder-decoder",
    "MarianConfig": "encoder-decoder",
}  # fmt: skip
ASKED = {
    "causality",
    "cache one by one",
    "cache in chunks",
    "cache reordered",
    "generated tokens are the most probable",
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_dozen_right_models_pass(name):
    """Nothing is red, and what each family is about was asked, not excused."""
    findings, started = [], []
    report = check_configuration(
        name, family=RIGHT[name], **OPTIONS, on_start=started.append, on_finding=findings.append
    )
    assert report.holds, report
    assert [finding.name for finding in findings] == started == [finding.name for finding in report.findings]
    passed = {finding.name for finding in findings if finding.verdict == "pass"}
    wanted = {"padding in front"} if RIGHT[name] == "encoder" else ASKED
    assert wanted <= passed


def test_sizes_of_a_directory_are_made_small_and_the_kinds_of_layers_stay(tmp_path, capsys):
    kinds = ["full_attention", *["sliding_attention"] * 78, "full_attention"]
    config = LlamaConfig(hidden_size=8192, num_hidden_layers=80, vocab_size=128_256, rope_theta=5e5)
    said = config.to_dict() | {"model_type": "qwen2", "layer_types": kinds, "use_sliding_window": True}
    (tmp_path / "config.json").write_text(json.dumps(said))
    factory, family = configured(str(tmp_path))
    made = factory(29, 3).model.config
    assert family == "decoder"
    assert made.layer_types == ["full_attention", "sliding_attention"]
    assert (made.hidden_size, made.num_hidden_layers, made.vocab_size) == (32, 2, 29)
    assert main(["check", f"hf:{tmp_path}", "--no-training", "--family", "decoder"]) == 0
    assert "\npass           cache in chunks: " in capsys.readouterr().out


@pytest.mark.parametrize(("said", "words"), [
    ({"model_type": "llama", "auto_map": {"AutoConfig": "mine.Config"}}, "names code of its own (auto_map)"),
    ({"model_type": "my_own"}, "has the model_type 'my_own', which transformers"),
    ({"model_type": "vit"}, "it has no causal, masked or sequence-to-sequence model"),
    ([], "cannot read"),
])  # fmt: skip
def test_what_a_directory_may_not_say(said, words, tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(said))
    assert main(["check", f"hf:{tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_refusals_say_what_to_do(monkeypatch):
    with pytest.raises(InputError, match="a configuration of transformers, such as LlamaConfig, or a directory; got x"):
        configured("x")
    with pytest.raises(InputError, match="no encoder for LlamaConfig; it has decoder"):
        configured("LlamaConfig", "encoder")
    monkeypatch.setattr(hf, "MOST", 10_000)
    with pytest.raises(ValueError, match="it still has 2"):
        configured("LlamaConfig")[0](29, 3)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="pip install 'transformers>=5'"):
        configured("LlamaConfig")


def test_limits_end_a_model():
    with pytest.raises(
        InputError, match="hf:T5Config was ended at "
    ):
        check_configuration("T5Config", seconds=1, **OPTIONS)


@pytest.mark.skipif(multiprocessing.get_start_method() != "fork", reason="the other process would not see the change")
def test_a_model_has_no_network(monkeypatch):
    monkeypatch.setattr(hf, "configured", lambda *_: socket.create_connection(("127.0.0.1", 9)))
    with pytest.raises(InputError, match="PermissionError: this process has no network"):
        check_configuration("LlamaConfig", **OPTIONS)
