"""A file of somebody's is loaded as Python would load it, and hides nothing from others."""

import inspect
import pickle
import random
import subprocess
import sys
import typing

import pytest

from transformer_lib.exercises import own_file
from transformer_lib.files import InputError
from transformer_lib.loading import function_of, load, read, source_of

PLAIN = """\
from __future__ import annotations
from dataclasses import dataclass
from pathlib import Path
HERE = Path(__file__).parent
@dataclass
class Size:
    width: int = 3
def build(*_):
    return Size()
if __name__ == "__main__":
    raise RuntimeError("it is no program here")
"""
SHIFT = "def shift():\n    return {}\n"
USES = "from blocks import shift\ndef build(*_):\n    return shift()\n"
LATE = "def build(*_):\n    from blocks import shift\n    return shift()\n"


@pytest.fixture(autouse=True)
def as_before(tmp_path, monkeypatch):
    """In an empty folder; the path of imports, and what is imported, as before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)  # another test may have left one
    modules = dict(sys.modules)
    yield
    for name in sys.modules.keys() - modules.keys():
        del sys.modules[name]
    sys.modules.update(modules)


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", ["plain", "random", "torch", "tokenizers", "my file", "v1.2", "__main__"])
def test_a_file_of_any_name_is_a_module_that_hides_none(tmp_path, name):
    write(tmp_path, **{name: PLAIN})
    mine = load(f"{name}.py")
    size = mine.Size(5)
    assert mine.HERE == tmp_path
    assert pickle.loads(pickle.dumps(size)) == size
    assert typing.get_type_hints(mine.Size) == {"width": int}
    assert inspect.getsource(mine.build) == "def build(*_):\n    return Size()\n"
    code = "import random, tokenizers, torch; random.random, tokenizers.Tokenizer, torch.nn"
    exec(code, {})
    assert sys.modules["random"] is random
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.parametrize("text", [USES, LATE])
def test_each_file_has_the_siblings_of_its_own_folder(tmp_path, text):
    write(tmp_path, blocks=SHIFT.format("'here'"))
    for folder in ("a", "b"):
        write(tmp_path / folder, mine=text, blocks=SHIFT.format(repr(folder)))
    for folder in ("a", "b", "a"):
        assert function_of(f"{folder}/mine.py:build")() == folder
    (tmp_path / "a" / "blocks.py").write_text(SHIFT.format("'c'"), encoding="utf-8")  # as long, in the same second
    assert function_of("a/mine.py:build")() == "c"


def test_a_sibling_may_load_a_file_while_it_is_imported(tmp_path):
    write(tmp_path, mine="from helper import build", other=PLAIN,
          helper="from transformer_lib.loading import load\nbuild = load('other.py').build")  # fmt: skip
    assert function_of("mine.py:build")().width == 3


def test_a_sibling_hides_neither_a_standard_module_nor_a_package(tmp_path):
    write(tmp_path, mine="import glob, tokenizers, filelock", glob="1 / 0", tokenizers="1 / 0", filelock="1 / 0")
    assert load("mine.py").tokenizers.Tokenizer


def test_a_file_in_a_package_imports_relatively(tmp_path):
    write(tmp_path / "pack", __init__="", mine=USES.replace("blocks", ".blocks"), blocks=SHIFT.format(7))
    write(tmp_path / "loose", mine=USES.replace("blocks", ".blocks"), blocks=SHIFT.format(8))
    write(tmp_path / "whole", __init__=USES.replace("blocks", ".blocks"), blocks=SHIFT.format(9))
    names = ["pack/mine.py", "loose/mine.py", "whole/__init__.py", "pack.mine", "loose.mine", "whole"]
    assert [function_of(f"{name}:build")() for name in names] == [7, 8, 9, 7, 8, 9]


def test_a_factory_has_one_answer_by_every_name(tmp_path, monkeypatch):
    write(tmp_path / "sub", mine=PLAIN.replace("width: int = 3", "width: int = value").replace(
        "HERE", "from blocks import value\nHERE"), blocks="value = 4")  # fmt: skip
    said = [function_of(f"{tmp_path}/sub/mine.py:build")(), function_of("sub.mine:build")()]
    monkeypatch.chdir(tmp_path / "sub")
    said += [function_of("mine.py:build")(), function_of("mine:build")()]
    assert [size.width for size in said] == [4] * 4


def test_the_command_line_runs_beside_files_of_any_name(tmp_path):
    write(tmp_path, random="1 / 0", torch="1 / 0")
    words = ["translate", "--model", "multi30k-en-de", "A man plays the guitar."]
    command = [sys.executable, "-m", "transformer_lib", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "Ein Mann spielt Gitarre.\n"), done.stderr


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"# -*- coding: latin-1 -*-\n# gr\xfc\xdfe\n", b"# one\r\n"])
def test_every_encoding_of_python_s_is_read_and_kept(tmp_path, mark):
    file, end = tmp_path / own_file.NAME, b"\r\n" if b"\r" in mark else b"\n"
    file.write_bytes(mark + b"def attention(*_):" + end + b"    return 1" + end)
    before = file.read_bytes()
    assert (load(file).attention(), source_of(f"{file}:build")) == (1, before)
    own_file.start(tmp_path, update=True)
    assert file.read_bytes().startswith(before.rstrip())
    assert file.read_bytes().count(b"\n") - file.read_bytes().count(end) == 0
    assert "causal_mask" in [getattr(node, "name", "") for node in read(file).tree.body]


@pytest.mark.parametrize(
    ("text", "words"),
    [(b"x = 1\n1 / 0\n", r"mine.py cannot be run: ZeroDivisionError: division by zero \(mine.py:2\)"),
        (b"import blocks\n", r"mine.py cannot be run: KeyError: 'k' \(blocks.py:2\)"),
        (b"\nx = (\n", r"mine.py, line 2: '\(' was never closed; mend this line first"),
        (b"x = 1\n# \xfc\n", "mine.py, line 2: not in utf-8; save the file as UTF-8"),
        (b"# coding: nonsense\n", "mine.py, line 1: unknown encoding: nonsense; mend this line first")],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(tmp_path, text, words):
    write(tmp_path, blocks="\n{}['k']")
    (tmp_path / "mine.py").write_bytes(text)
    for name in ("mine.py:build", "mine:build"):
        with pytest.raises(InputError, match=f"^{words}$"):
            function_of(name)
    assert "mine" not in sys.modules
