"""The package as a whole: quick to import, documented, complete, and installable under its own name."""

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import course_zip
import pytest
from small import ROOT

import transformer_lib

PACKAGE = Path(transformer_lib.__file__).parent
SLOW = {"tokenizers", "sacrebleu", "matplotlib", "tqdm"}
EXERCISES = {"transformer_lib.exercises"}
CHECK = """
from transformer_lib.__main__ import main
main(["check", "mine:build", "--family", "decoder", "--no-training"])
"""
MINE = """
from transformer_lib.checks.cached_decoder import CachedDecoder
def build(vocab_size, pad_id):
    return CachedDecoder(vocab_size)
"""


@pytest.mark.parametrize(("code", "never"), [
    ("import transformer_lib; assert 'transformer_lib.checks' not in sys.modules; import transformer_lib.checks",
     SLOW | EXERCISES),
    (CHECK, SLOW - {"tqdm"} | EXERCISES | {"transformers", "datasets", "pandas", "scipy", "ctranslate2", "pytest"}),
], ids=["package", "check"])  # fmt: skip
def test_nothing_slow_is_imported_that_is_not_needed(code, never, tmp_path):
    """What torch itself imports is not our doing: some versions bring tqdm."""
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    code = f"import sys, torch; old = {{*sys.modules}}\n{code}\nprint({never} & {{*sys.modules}} - old)"
    path = {"PYTHONPATH": str(PACKAGE.parent)}
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, cwd=tmp_path, env=os.environ | path, capture_output=True, text=True, check=True)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("set()", "")


def test_the_oldest_versions_are_the_lower_bounds():
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    oldest = (ROOT / ".ci/constraints-oldest.txt").read_text("utf-8").splitlines()
    assert sorted(oldest) == sorted(requirement.replace(">=", "==") for requirement in stated)


def test_a_wheel_installs_into_a_clean_environment(tmp_path):
    """From the zip that readers download. Only what the library depends on is lent to that environment: no network."""
    environment, course = tmp_path / "environment", tmp_path / "course"
    course_zip.pack(tmp_path / "course.zip")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    built = ["wheel", "--no-deps", "--no-build-isolation", "-w", tmp_path, tmp_path / "course.zip"]
    subprocess.run([*pip, *built], check=True)
    (wheel,) = tmp_path.glob("tested_transformer-*.whl")
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    options = ["--no-deps", "--no-index", "--ignore-installed"]
    subprocess.run([*pip, "--python", python, "install", *options, wheel], check=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    modules = [path.relative_to(PACKAGE.parent).with_suffix("").as_posix() for path in PACKAGE.rglob("*.py")]
    code = f"""
import sys
from importlib import import_module, metadata
for module in {modules}:
    import_module(module.removesuffix("/__init__").replace("/", "."))
import transformer_lib
print(transformer_lib.__file__, metadata.version("tested-transformer"))
sys.exit(transformer_lib.__main__.main(["translate", "--model", "multi30k-en-de", "A man plays the guitar."]))
"""
    done = subprocess.run([python, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    said = f"{site / 'transformer_lib' / '__init__.py'} {transformer_lib.__version__}\nEin Mann spielt Gitarre.\n"
    assert done.stdout == said, done.stderr
    for name in ("py.typed", "exercises/wrong.tsv", "static/heads.js"):
        assert (site / "transformer_lib" / name).exists()
    course.mkdir()
    (course / "tour.ipynb").write_text("mine", encoding="utf-8")
    command = [python.parent / "tested-transformer", "start", course]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "18 notebooks lie beside it" in done.stdout
    assert (course / "tour.ipynb").read_text("utf-8") == "mine"
    assert not any(cell.get("outputs") for cell in json.loads((course / "07_model.ipynb").read_text("utf-8"))["cells"])


def ours(path):
    """The library's modules and packages that a file imports, in functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "transformer_lib":
            names |= {alias.name for alias in node.names if (PACKAGE / f"{alias.name}.py").exists()}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("transformer_lib."):
            names.add(node.module.split(".")[1])
    return names


def test_the_map_of_the_modules_is_that_of_the_imports():
    """The table in CONTRIBUTING, and no circle: each module imports only modules above it."""
    rows = re.findall(r"^\| `(\w+)` \| .+ \| (.+) \|$", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.MULTILINE)
    stated = {module: set(re.findall(r"`(\w+)`", imports)) for module, imports in rows}
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if module != "__init__":
            found[module] = found.get(module, set()) | ours(path) - {module}
    assert stated == found
    for number, module in enumerate(stated):
        assert stated[module] <= {*list(stated)[:number]}, f"{module} imports a module that stands below it"
