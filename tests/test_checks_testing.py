"""One test for each property, as pytest runs them, and the workflow that runs pytest."""

import tomllib
from pathlib import Path

import yaml

from transformer_lib.checks.properties import PROPERTIES, TRAINED_PROPERTIES

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
