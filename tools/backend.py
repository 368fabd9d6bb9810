"""Builds the package, with what the course has for its readers: the notebooks of the main line, and the records.

pip calls it, see pyproject.toml. An editable installation has neither: its checkout has both.
"""

import re
import shutil
from pathlib import Path

import nbformat
from export import PACKAGE, ROOT
from notebooks import Page
from setuptools.build_meta import *  # noqa: F403  # all that pip asks a backend for
from setuptools.command.build_py import build_py

MAIN_LINE = re.compile(r"tour|\d\d_\w+")


class WithTheCourse(build_py):
    """Copies the modules, and then puts the course beside them."""

    def run(self) -> None:
        """Build; the notebooks have no outputs, since their reader runs them."""
        super().run()
        if self.editable_mode:
            return
        package = Path(self.build_lib) / PACKAGE
        data = shutil.ignore_patterns("*.py")
        shutil.copytree(ROOT / "records", package / "records", ignore=data, dirs_exist_ok=True)
        (package / "notebooks").mkdir(exist_ok=True)
        for path in sorted((ROOT / "book").glob("*.ipynb")):
            if MAIN_LINE.fullmatch(path.stem):
                notebook = Page(path).notebook()
                for cell in notebook.cells:
                    if cell.cell_type == "code":
                        cell.outputs, cell.execution_count = [], None
                nbformat.write(notebook, package / "notebooks" / path.name)
