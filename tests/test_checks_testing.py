"""One test for each property, as pytest runs them, and the workflow that runs pytest."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from transformer_lib.checks import hf
from transformer_lib.checks.properties import PROPERTIES, TRAINED_PROPERTIES
from transformer_lib.files import InputError

ROOT = Path(__file__).resolve().parent.parent
pytest_plugins = ["pytester"]

TESTS = """
from transformer_lib import Transformer, TransformerConfig
from transformer_lib.checks import Adapted
from transformer_lib.checks.testing import transformer_tests

def build(source, target, pad):
    sizes = dict(d_model=16, num_heads=2, d_ff=32, num_encoder_layers=1, num_decoder_layers=1)
    return Transformer(TransformerConfig(source, target, pad, **sizes))

def wrong(*sizes):
    return Adapted(build(*sizes), lambda model, source, target: model(source, target).softmax(-1))

def raises(source, target, pad):
    return unheard_of

test_wrong = transformer_tests(wrong, training=False, pad_id=3)
test_raises = transformer_tests(raises)
"""


def test_each_property_is_a_test_that_passes_fails_or_is_skipped(pytester):
    pytester.makepyfile(TESTS)
    chosen = "test_wrong and (logits-not or deterministic or too-long) or test_raises and (present or copying)"
    result = pytester.runpytest_subprocess("-rs", "-k", chosen)  # another process, as it may import what torch imports
    every = 2 * len(PROPERTIES) + len(TRAINED_PROPERTIES)
    result.assert_outcomes(passed=1, failed=3, skipped=1, deselected=every - 5)
    result.stdout.fnmatch_lines_random([
        "fail *logits not probabilities: *", "*likely: *(gallery: softmax)*", "SKIPPED *no max_len was given*",
        "*return unheard_of*", "E *NameError: *unheard_of*",
    ])  # fmt: skip


def test_the_workflow_on_the_page_installs_this_package_and_runs_the_page_s_file():
    page = next((ROOT / "chapters").glob("*_adapters.md")).read_text("utf-8")
    workflow = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    commands = [step["run"] for step in workflow["jobs"]["check"]["steps"] if "run" in step]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f'"{project["name"]} @ git+https://' in commands[0]
    tests = commands[1].split()[1]
    assert f'Path(folder, "{tests}").write_text(' in page


SPAWNED = """
import multiprocessing
multiprocessing.set_start_method("{method}")
from transformer_lib.checks.hf import check_configuration
check_configuration("GPT2Config", only=["causality"])
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_script_that_cannot_be_run_twice_is_told_why(tmp_path, method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    (tmp_path / "script.py").write_text(SPAWNED.format(method=method), encoding="utf-8")
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert "the script needs `if __name__ == '__main__':`" in said
    assert "seconds" not in said


@pytest.mark.skipif(multiprocessing.get_start_method() != "fork", reason="the other process would not see the change")
@pytest.mark.parametrize(
    ("end", "words"),
    [(lambda: os._exit(3), "it ended itself, with status 3"), (sys.exit, "it ended itself, with status 0"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), r"it crashed \(SIGSEGV\)"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "it needs more than 600 seconds of processor time or 8 GiB")],
    ids=["exit", "sys.exit", "crash", "kill"],
)  # fmt: skip
def test_a_process_that_ends_says_how(monkeypatch, end, words):
    monkeypatch.setattr(hf, "configured", lambda *_: end())
    with pytest.raises(InputError, match=f"^hf:LlamaConfig was ended when the model was built: {words}"):
        hf.check_configuration("LlamaConfig")
