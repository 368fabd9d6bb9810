"""In CI a test that is skipped fails the run, unless tests/skips.py expects it."""

import os
import subprocess
import sys

from skips import ROOT

TESTS = """
import pytest

def test_passes():
    pass

def test_of_a_gpu():
    pytest.skip("needs a GPU")

@pytest.mark.skipif(True, reason="needs a GPU")
def test_of_another():
    pass
"""
GONE = "import pytest\npytest.importorskip('no_such_package')\n"
ONE = "import pytest\n\ndef test_one():\n    pytest.skip('the cable is not there')\n"


def run(folder, *options, ci="true", **files):
    """The exit status and the output of pytest on files of tests."""
    (folder / "conftest.py").write_text("from skips import pytest_sessionfinish\n", encoding="utf-8")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": ci}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_an_expected_skip_changes_nothing(tmp_path):
    status, output = run(tmp_path, expected=TESTS)
    assert status == 0
    assert "does not expect" not in output


def test_any_other_skip_is_an_error_with_test_and_reason(tmp_path):
    """With several processes, as in CI."""
    status, output = run(tmp_path, "-p", "xdist", "-n", "2", expected=TESTS, one=ONE, gone=GONE)
    assert status == 1
    told = [line.partition("not expect it: ")[2] for line in output.splitlines() if "does not expect" in line]
    assert sorted(told) == [
        "test_gone.py: could not import 'no_such_package': No module named 'no_such_package'",
        "test_one.py::test_one: the cable is not there",
    ]


def test_outside_ci_any_test_may_be_skipped(tmp_path):
    assert run(tmp_path, ci="", one=ONE)[0] == 0
