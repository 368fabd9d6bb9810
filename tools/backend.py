"""Builds the package, with what the course has for its readers: the notebooks of the main line, and the records.

pip calls it, see pyproject.toml. An editable installation has neither: its checkout has both.
"""

import shutil
from pathlib import Path

from export import PACKAGE, ROOT
from notebooks import for_start
from setuptools.build_meta import *  # noqa: F403  # all that pip asks a backend for
from setuptools.command.build_py import build_py


class WithTheCourse(build_py):
    """Copies the modules, and then puts the course beside them."""

    def run(self) -> None:
        """Build."""
        super().run()
        if self.editable_mode:
            return
        package = Path(self.build_lib) / PACKAGE
        data = shutil.ignore_patterns("*.py")
        shutil.copytree(ROOT / "records", package / "records", ignore=data, dirs_exist_ok=True)
        for_start(package / "notebooks")
