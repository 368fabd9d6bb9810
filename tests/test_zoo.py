"""Models of transformers: a dozen that are right, what `check hf:` refuses or ends, and faults without the suite."""

import json
import multiprocessing
import re
import socket

import pytest
import torch
import transformers
from small import ROOT
from transformers import AutoConfig, LlamaConfig

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
CACHED = {"causality", "cache one by one", "cache in chunks", "cache reordered"}
WANTED = {  # what each family is about; Marian, with weights drawn at random, writes one token again and again
    "encoder": {"padding in front"}, "encoder-decoder": CACHED,
    "decoder": {*CACHED, "cache with padding in front", "generated tokens are the most probable"},
}  # fmt: skip
SOME = {"dropout in training", "every dtype", "gradient reaches everything", "parameters shared on purpose"}


def test_the_front_page_shows_what_the_record_has():
    page, record = (ROOT / "book/index.md").read_text("utf-8"), json.loads((ROOT / "records/zoo.json").read_text())
    assert f"({record['versions']['transformers']}, " in page
    found = record["models"]["decoder roberta"]["seeds"]["0"]
    shown = re.search(r"```console\n(.+?)```", page, re.DOTALL)[1]
    name = "generated tokens are the most probable"
    assert f"fail {name}: {found['failed'][name].partition(' (')[0]} …" in " ".join(shown.split())
    passed = found["passed"] + 2  # the command asks two properties more than `make zoo`
    assert f"{passed} pass, {len(found['failed'])} fail" in shown


RUNS = [(name, False) for name in ("LlamaConfig", "BertConfig", "MarianConfig")]
RUNS += [pytest.param(name, True, marks=pytest.mark.long) for name in RIGHT]


@pytest.mark.parametrize(("name", "whole"), RUNS)
def test_a_dozen_right_models_pass(name, whole):
    """Nothing is red, and what each family is about was asked, not excused."""
    findings, started, wanted = [], [], WANTED[RIGHT[name]]
    told = {"on_start": started.append, "on_finding": findings.append, "only": () if whole else wanted | SOME}
    report = check_configuration(name, family=RIGHT[name], **OPTIONS, **told)
    assert report.holds, report
    assert [finding.name for finding in findings] == started == [finding.name for finding in report.findings]
    assert wanted <= {finding.name for finding in findings if finding.verdict == "pass"}
    if name == "MarianConfig":  # its keys have biases of their own, which get no gradient, rightly
        evidence = {finding.name: finding.evidence for finding in findings}
        assert "0 but for rounding" in evidence["gradient reaches everything"]
        assert evidence["parameters shared on purpose"] == "1 table is tied"


def test_sizes_of_a_directory_are_made_small_and_the_kinds_of_layers_stay(tmp_path):
    kinds = ["full_attention", *["sliding_attention"] * 78, "full_attention"]
    config = LlamaConfig(hidden_size=8192, num_hidden_layers=80, vocab_size=128_256, rope_theta=5e5)
    said = config.to_dict() | {"model_type": "qwen2", "layer_types": kinds, "use_sliding_window": True}
    (tmp_path / "config.json").write_text(json.dumps(said))
    factory, family = configured(str(tmp_path))
    made = factory(29, 3).model.config
    assert family == "decoder"
    assert made.layer_types == ["full_attention", "sliding_attention"]
    assert (made.hidden_size, made.num_hidden_layers, made.vocab_size) == (32, 2, 29)
    report = check_configuration(str(tmp_path), family="decoder", only=CACHED, **OPTIONS)
    assert {finding.name for finding in report.findings if finding.verdict == "pass"} == CACHED, report


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
    with pytest.raises(InputError, match="a configuration, such as LlamaConfig, or a directory; got x"):
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
    with pytest.raises(InputError, match=r"^hf:T5Config was ended .*needs more than 1 seconds"):
        check_configuration("T5Config", seconds=1, **OPTIONS)


@pytest.mark.skipif(multiprocessing.get_start_method() != "fork", reason="the other process would not see the change")
def test_a_model_has_no_network(monkeypatch):
    monkeypatch.setattr(hf, "configured", lambda *_: socket.create_connection(("127.0.0.1", 9)))
    with pytest.raises(InputError, match="PermissionError: this process has no network"):
        check_configuration("LlamaConfig", **OPTIONS)


# --- what is called a fault in records/zoo_judged.json, in torch and transformers alone ------------------------------
TOKENS = torch.arange(4, 14).view(1, 10)


def tiny(model_type, auto="CausalLM", **options):
    """A model of two layers, thirty-two channels and random weights of some size."""
    sizes = {"vocab_size": 29, "pad_token_id": 3, "bos_token_id": 0, "decoder_start_token_id": 0, "num_heads": 4}
    sizes |= {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    sizes |= {"initializer_range": 0.2, "eos_token_id": None} | options
    config = AutoConfig.for_model(model_type, **{name: value for name, value in sizes.items() if value != "no"})
    torch.manual_seed(0)
    return getattr(transformers, f"AutoModelFor{auto}").from_config(config).eval()


def apart(new, old):
    """The largest difference, in spreads of the logits."""
    return ((new - old).abs().max() / old.std()).item()


def in_pieces(model, sizes):
    """Logits of pieces of the ten tokens from a cache."""
    key, cache, found = "cache_params" if "mamba" in model.config.model_type else "past_key_values", {}, []
    for piece in TOKENS.split(sizes, dim=1):
        answer = model(piece, use_cache=True, **cache)
        cache, found = {key: answer[key]}, [*found, answer.logits]
    return torch.cat(found, dim=1)


@pytest.mark.parametrize(("name", "options"), [
    ("mamba", {}),
    ("jamba", {"attn_layer_period": 2, "attn_layer_offset": 1, "num_key_value_heads": 2, "num_experts": 2}),
])  # fmt: skip
@torch.no_grad()
def test_the_state_is_forgotten_where_several_tokens_follow_a_cache(name, options):
    model = tiny(name, **options)
    assert apart(in_pieces(model, [1] * 10), model(TOKENS).logits) < 1e-4
    assert apart(in_pieces(model, [4, 6]), model(TOKENS).logits) > 0.01


@torch.no_grad()
def test_small_steps_are_clamped_in_the_scan_and_not_in_the_step():
    model = tiny("zamba2", layers_block_type=["mamba", "hybrid"], n_mamba_heads=4, adapter_rank=8)
    for key, parameter in model.named_parameters():
        if key.endswith(("dt_bias", ".D")):
            parameter.fill_(-7.5 if key.endswith("dt_bias") else 0.0)
    assert apart(in_pieces(model, [1] * 10), model(TOKENS).logits) > 0.01


@torch.no_grad()
def test_minimax_does_not_reorder_its_linear_states():
    model = tiny("minimax", layer_types=["linear_attention", "full_attention"], num_key_value_heads=2, head_dim=8)
    tokens, rows = TOKENS[:, :9].reshape(3, 3), torch.tensor([2, 0, 0])
    cache = model(tokens[:, :2], use_cache=True).past_key_values
    cache.reorder_cache(rows)
    assert apart(model(tokens[rows, 2:], past_key_values=cache).logits, model(tokens[rows]).logits[:, 2:]) > 0.1


@torch.no_grad()
def test_what_recurrent_gemma_should_not_see_reaches_its_recurrence():
    model = tiny("recurrent_gemma", num_hidden_layers=3, lru_width=32, num_key_value_heads=1)
    mask = (torch.arange(10) >= 3).long()[None]
    other = torch.where(mask == 0, 20, TOKENS)
    both = (model(tokens, attention_mask=mask).logits[:, 3:] for tokens in (other, TOKENS))
    assert apart(*both) > 0.1


@torch.no_grad()
def test_fsmt_is_not_causal_with_a_cache():
    sizes = {f"{side}_{part}": n for side in ("encoder", "decoder") for part, n in (
        ("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))}  # fmt: skip
    model = tiny("fsmt", "Seq2SeqLM", d_model=32, init_std=0.2, src_vocab_size=29, tgt_vocab_size=29, vocab_size="no",
                 tie_word_embeddings=False, **sizes)  # fmt: skip
    without, cached = (model(TOKENS, decoder_input_ids=TOKENS, use_cache=on).logits for on in (False, True))
    assert apart(cached[:, :-1], without[:, :-1]) > 0.1


REPORTS = ROOT / "records/reports"


@pytest.mark.parametrize("report", sorted(REPORTS.glob("*.md")), ids=lambda path: path.stem)
def test_a_report_shows_its_fault(report):
    """Its code runs by itself, as a stranger would run it, and ends with assertions that the fault is there."""
    (code,) = re.findall(r"```python\n(.*?)```", report.read_text(encoding="utf-8"), re.DOTALL)
    assert "transformer_lib" not in code
    exec(compile(code, report.name, "exec"), {})


def test_each_fault_is_reproduced_and_reported():
    """That each red line is judged, page F asserts."""
    zoo, judged = (json.loads((ROOT / f"records/{name}.json").read_text("utf-8")) for name in ("zoo", "zoo_judged"))
    for entry in judged:
        if entry["verdict"] == "true":
            known = entry.get("test") in globals() and "#" in entry["known"]
            assert known or (REPORTS / entry["report"]).exists()
    assert zoo["versions"]["transformers"] == transformers.__version__


def test_every_red_line_of_a_public_repository_is_judged_and_each_fault_has_a_draft():
    """The repositories' files are not here: `make strangers` fetches them."""
    strangers = ROOT / "records/strangers"
    names = "repositories", "found", "judged"
    listed, found, judged = (json.loads((strangers / f"{name}.json").read_text("utf-8")) for name in names)
    starred = {entry["repository"]: entry["starred"] for entry in listed.values()}
    assert len(starred) >= 40
    assert [*starred.values()].count("seldom") * 2 >= len(starred)
    models = found["models"]
    assert {run: entry["commit"] for run, entry in listed.items()} == {run: models[run]["commit"] for run in models}
    drafts = re.findall(
        r"^## ([^:\n]+): .+?```python\n(.*?)```", (strangers / "reports.md").read_text("utf-8"), re.S | re.M
    )
    for _, code in drafts:
        compile(code, "draft", "exec")
    red, at_fault = {(run, line) for run in models for line in models[run].get("fail", ())}, set()
    for entry in judged:
        red -= {(run, line) for run in entry["runs"] for line in entry["properties"]}
        at_fault |= {listed[run]["repository"] for run in entry["runs"] if entry["verdict"] == "true"}
    assert not red
    assert at_fault == {repository for repository, _ in drafts}
