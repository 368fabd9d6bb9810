"""In CI a test that is skipped fails the run, unless tests/skips.py expects it."""

import os
import subprocess
import sys

import pytest
from skips import ROOT

TESTS = {
    "conftest": "from skips import pytest_sessionfinish\n",
    "test_passes": "def test_passes():\n    pass\n",
    "test_gpu": "import pytest\n\n@pytest.mark.skipif(True, reason='needs a GPU')\ndef test_of_a_gpu():\n    pass\n",
    "test_gone": "import pytest\npytest.importorskip('no_such_package')\n",
    "test_one": "import pytest\n\ndef test_one():\n    pytest.skip('the cable is not there')\n",
}
UNEXPECTED = [
    "test_gone.py: could not import 'no_such_package': No module named 'no_such_package'",
    "test_one.py::test_one: the cable is not there",
]


@pytest.mark.parametrize(("ci", "names", "expected"), [
    ("true", ["test_passes", "test_gpu"], []), ("true", [*TESTS][1:], UNEXPECTED), ("", [*TESTS][1:], []),
], ids=["expected", "unexpected", "outside CI"])  # fmt: skip
def test_an_unexpected_skip_is_an_error_with_test_and_reason(tmp_path, ci, names, expected):
    """With several processes, as in CI."""
    for name in ("conftest", *names):
        (tmp_path / f"{name}.py").write_text(TESTS[name], encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")  # so that no file above counts
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "xdist", "-n", "2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": ci}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    told = [line.partition("not expect it: ")[2] for line in done.stdout.splitlines() if "does not expect" in line]
    assert (done.returncode, sorted(told)) == (int(bool(expected)), expected), done.stdout + done.stderr
