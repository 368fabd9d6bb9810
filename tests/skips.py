"""Where the variable CI is set, a test that is skipped fails the run, unless it is expected to be.

The conftest.py of the tests and that of the chapters import the hook.
"""

import os
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# What each expected line, `file::test: reason`, has in it.
EXPECTED = [
    r": needs a GPU$",
    r": TRANSFORMER_LIB_DATA does not name (a|the) folder",  # so there is no Multi30k
    r": test_2017_\w+ is not (recorded, or not )?on this machine$",  # two more test sets of Multi30k
    r": torch 2\.6 shards on GPUs only$",
    r"^book/(0[2-9]|10|15b|15d|A)_\w+\.ipynb::",  # the cells of these pages that are shown and not run
]
if sys.platform == "darwin":
    EXPECTED.append(r": no browser: ")  # GitHub's machines have one that `tools/pdf.py` does not look for
if not (ROOT / "_build" / "html").exists():
    EXPECTED.append(r": .*run `make book`")  # the unit tests alone


def pytest_sessionfinish(session):
    """Name the tests that were skipped and are not expected to be, and fail."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not os.environ.get("CI") or reporter is None:  # the processes of pytest-xdist have no reporter
        return
    lines = [f"{r.nodeid}: {r.longrepr[2].removeprefix('Skipped: ')}" for r in reporter.stats.get("skipped", [])]
    for line in lines:
        if not re.search("|".join(EXPECTED), line):
            reporter.ensure_newline()
            reporter.write_line(f"SKIPPED, and tests/skips.py does not expect it: {line}", red=True)
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
