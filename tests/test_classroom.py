"""A class as it is: every submission has a row, marks outlive an interruption, and the table is safe to open."""

import csv
import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from small import ROOT

from transformer_lib import __main__ as command_line
from transformer_lib.checks import Finding, Report
from transformer_lib.exercises import classroom, own_file
from transformer_lib.exercises.grading import rows
from transformer_lib.files import printable
from transformer_lib.loading import NEEDED, SWITCHES

NAME = "my_transformer.py"


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def write(*names, text="x = 1\n"):
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")


ROWS = {  # what lies in the folder: the names of the rows, in order; with ? those that cannot be marked
    "anna.py BERT.PY": "BERT.PY anna.py",
    "anna/my_transformer.py anna/test_it.py anna/notes.ipynb": "anna/my_transformer.py",
    "anna/my_transformer.py anna/old/my_transformer.py": "anna/my_transformer.py anna/old/my_transformer.py",
    "anna/my_transformer(1).py anna/MY-Transformer.Py": "anna/MY-Transformer.Py anna/my_transformer(1).py",
    "anna/main.py anna/pack/layers.py anna/pack/my_transformer.py": "anna/pack/my_transformer.py",
    "one/anna/my_transformer.py one/bert/ one/carl/answer.py two/dora/x.ipynb":
        "one/anna/my_transformer.py ?one/bert one/carl/answer.py ?two/dora/x.ipynb",
    "anna.zip bert/work.tar.gz carl.py.txt dora/my_transformer.py.txt":
        "?anna.zip ?bert/work.tar.gz ?carl.py.txt ?dora/my_transformer.py.txt",
    "anna/venv/pyvenv.cfg anna/venv/my_transformer.py anna/__pycache__/x.py anna/.git/x.py anna/README.pdf": "?anna",
    "anna.py __MACOSX/._anna.py ._anna.py .git/hook.py .DS_Store notes.txt": "anna.py",
}  # fmt: skip


@pytest.mark.parametrize("names", ROWS)
def test_every_submission_has_a_row(names):
    for name in names.split():
        Path("c", name).mkdir(parents=True) if name.endswith("/") else write(f"c/{name}")
    found = classroom.submissions("c")
    assert ["?" * isinstance(what, str) + name for name, what in found] == ROWS[names].split()


def table():
    with Path("m.csv").open(encoding="utf-8-sig", newline="") as file:
        return [*csv.DictReader(file)]


def test_what_is_left_out_is_counted(capsys, monkeypatch):
    monkeypatch.setattr(classroom, "mark", lambda path, seconds: {})
    write("c/anna.py", "c/._anna.py", "c/bert/my_transformer.py", "c/bert/._x", "c/notes.txt", "c/.DS_Store")
    assert command_line.main(["grade", "c", "--csv", "m.csv"]) == 0
    assert [row["file"] for row in table()] == ["anna.py", "bert/my_transformer.py"]
    assert capsys.readouterr().err.splitlines() == [
        "left out: 2 that macOS adds, such as ._anna.py",
        "left out: 1 of another kind, such as notes.txt",
    ]


def test_no_cell_is_a_formula_and_a_plain_one_stays_as_it_is():
    for text in ("=1+2", "+1", "-1", "@sum(1)", "\t=1", "\n=1", " =1", "\uff1d1"):
        made = classroom.table([(text, {"attention": text, "error": text})])
        assert made.startswith("\ufeff")
        _, (name, *rest) = csv.reader(made.removeprefix("\ufeff").splitlines())
        assert all(cell[0] in "'\\" for cell in (name, rest[4], rest[5]))
    text = "failed: it should be -1; it is =1, «é», 1 + 1"
    assert classroom.cell(text) == text


def test_the_marks_so_far_are_in_the_table():
    """While the second file runs for ever."""
    write("c/a.py")
    write("c/b.py", text="while True: pass\n")
    command = [sys.executable, "-u", "-m", "transformer_lib", "grade", "c", "--csv", "m.csv"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:  # fmt: skip
        assert process.stdout.readline().startswith("a.py")
        while not Path("m.csv").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
    assert [row["file"] for row in table()] == ["a.py"]
    assert process.returncode != 0


def test_gradescope_gets_its_results(capsys):
    """In the form of its documentation: tests with name, score, max_score, status and output."""
    code = {name: code for _, name, code in own_file.parts()}
    wrong = "def attention(q, k, v, mask=None):\n    return v, q"
    write("mine.py", text=f"import torch\n{code['causal_mask']}\n\n{wrong}\n")
    write("broken.py", text="def f(:")
    for name, points, words in (("mine.py", 1, "failed: q has no effect"), ("broken.py", 0, "broken.py, line 1: ")):
        assert command_line.main(["grade", name, "--results", "results.json"]) == 0
        found = json.loads(Path("results.json").read_text("utf-8"))
        assert [test["name"] for test in found["tests"]] == [part.name for part in own_file.gaps()]
        assert all({*test} == {"name", "score", "max_score", "status", "output"} for test in found["tests"])
        assert sum(test["score"] for test in found["tests"]) == points
        assert all(test["status"] == ("passed" if test["score"] == 1 else "failed") for test in found["tests"])
        assert {test["max_score"] for test in found["tests"]} == {1}
        assert words in found["tests"][0]["output"]
        assert (words in found["output"]) == (points == 0)
    assert command_line.main(["grade", "mine.py", "--results", "r.json", "--only", "attention"]) == 2
    assert "--results does not go with --only" in capsys.readouterr().err


def test_a_file_has_its_processor_time_and_ten_times_as_long_by_the_clock():
    write("asks.py", text="import resource\nraise ValueError(resource.getrlimit(resource.RLIMIT_CPU))\n")
    assert "(7, 7)" in classroom.mark(Path("asks.py"), seconds=7)["error"]
    write("asleep.py", text="import time\nwhile True: time.sleep(9)\n")
    assert "it was ended after 1 seconds" in classroom.mark(Path("asleep.py"), seconds=1)["error"]


WITHOUT_MARKS = {
    "anna.ipynb": "a notebook", "bert": "there is no my_transformer.py", "carl.zip": "packed",
    "dora.py.txt": "let it end in .py",
}  # fmt: skip


def test_a_row_without_marks_says_what_to_do(capsys):
    write("c/anna.ipynb", "c/carl.zip", "c/dora.py.txt", text="{}")
    Path("c/bert").mkdir()
    assert command_line.main(["grade", "c", "--csv", "m.csv"]) == 0
    out = capsys.readouterr().out
    assert [row["file"] for row in table()] == [*WITHOUT_MARKS]
    for row in table():
        assert [row[kind] for kind in own_file.KINDS] == ["0"] * 4
        assert WITHOUT_MARKS[row["file"]] in row["error"] in out


@pytest.mark.parametrize(("words", "said"), [
    ("grade x.ipynb", "x.ipynb is a notebook: save its functions in a file, such as my_transformer.py, and name that"),
    ("grade renamed.py", "renamed.py is a notebook"), ("check x.ipynb:build", "x.ipynb is a notebook"),
    ("grade c", "c is a folder: name a file, such as c/my_transformer.py, or mark all files in it with --csv"),
    ("grade x.ipynb --csv m.csv", "no files in x.ipynb: --csv marks a folder"),
    ("grade c --csv m.csv", "no files in c"),
    ("grade none.py", "there is no none.py: `python -m transformer_lib start` makes one in this folder"),
])  # fmt: skip
def test_what_is_no_file_of_python_gets_one_line(capsys, words, said):
    write("x.ipynb", "renamed.py", text='{"cells": [null], "metadata": {"x": null}}')
    Path("c").mkdir()
    assert command_line.main(words.split()) == 2
    assert capsys.readouterr().err.startswith(f"error: {said}")
    assert not Path("m.csv").exists()


NASTY = "\x1b[2J\x00\x9b\u202e\ufffe\x07\ud800é\u3042\xa0"


def test_somebody_s_text_reaches_no_terminal_and_no_table(capsys):
    """Nor does a name that is not in UTF-8, which some disks refuse, stop the marking."""
    file = f"c/{os.fsdecode('Zoé'.encode('latin-1')) if sys.platform == 'linux' else 'Zoé'}.py"
    write(file, text='raise Exception("\\x1b[2J\\u202egone\\x9b")\n')
    assert command_line.main(["grade", "c", "--csv", "m.csv"]) == 0
    assert command_line.main(["grade", file]) == 2
    said = capsys.readouterr()
    (row,) = table()
    assert row["file"] == "Zoé.py"
    for text in (said.out, said.err, *row.values()):
        assert text == printable(text)
    assert r"\x1b[2J\u202egone\x9b" in row["error"]
    assert printable(NASTY) == r"\x1b[2J\x00\x9b\u202e\ufffe\x07\ud800" + "é\u3042\xa0"
    write("mine.py", text='def attention(*_):\n    raise NotImplementedError("\\x1b[2J")\n')
    said = classroom.grade_file("mine.py", 2)[2]["attention"]
    assert said == r"failed: it raised NotImplementedError: \x1b[2J (line 2)"
    report = Report((Finding("causality", "fail", NASTY, traceback=NASTY),))
    assert repr(report) == printable(repr(report).replace("\n", "␤")).replace("␤", "\n")


def state():
    """Of this process, everything that a file may switch; what is no number or text, by its own text."""
    modes = [type(mode).__name__ for mode in torch.overrides._get_current_function_mode_stack()]
    read = [read for read in {**SWITCHES, **NEEDED} if read.__name__ != "_modes"]
    found = [str(each()) for each in read] + [str(warnings.filters), str(torch.zeros(1)), str(modes)]
    return [*found, str(torch.get_default_device()), str(torch.is_grad_enabled())]


@pytest.mark.parametrize(("line", "more"), rows(str(ROOT / "tests/answers/switches.tsv")))
def test_switches_of_a_file_or_of_a_part_that_is_called_neither_spoil_the_next_part_nor_leak(line, more):
    before, solution = state(), own_file.solution()
    switched = solution.replace("import torch\n", f"import torch\n{line}\n", 1)
    assert switched != solution

    def called(name):
        return f"{solution}\n\ndef {name}(*_):\n    {line}\n    return 1\n"

    cases = [(switched, 5, []), (called("split_heads"), 3, [0])]  # others are graded after the one that is called
    if more:
        cases += [(switched, 3, []), (switched, 9, []), (called("LayerNorm"), 6, [0])]
    for text, chapter, wrong in cases:
        write(NAME, text=text)
        said = [*own_file.grade_file(NAME, chapter)[chapter].values()]
        assert [number for number, each in enumerate(said) if each != "passed"] == wrong, said
        if chapter == 3 and not wrong:
            assert own_file.with_parts(chapter=3).yours[-1] == "MultiHeadAttention"
    assert state() == before


def test_what_a_notebook_has_switched_spoils_no_verdict_and_stays():
    Path(NAME).write_text(own_file.solution(), encoding="utf-8")
    with torch.device("meta"), torch.no_grad():
        before = state()
        assert own_file.grade_file(NAME, 9)[9]["training_step"] == "passed"
        assert state() == before


def test_functions_of_a_file_find_what_it_has_prepared():
    write("data/helper.py", text="from pathlib import Path\nTABLE = Path('table.txt').read_text()\n")
    write("data/table.txt", text="1")
    begun = "import os, sys\nos.chdir('data')\nsys.path.insert(0, '.')\nsys.setrecursionlimit(5000)\n"
    deep = "def deep(n):\n    return n and 1 + deep(n - 1)\n"
    uses = "from helper import TABLE\n    assert TABLE == '1' and deep(3000)\n    return torch.ones"
    write(NAME, text=begun + deep + own_file.planted("causal_mask", "return torch.ones", uses))
    assert own_file.grade_file(NAME, 5)[5]["causal_mask"] == "passed"


def test_a_file_is_graded_anew_when_one_that_it_imports_has_changed():
    write(NAME, text="from helper import causal_mask\n")
    for end, said in ((".tril()", "passed"), ("", "failed: it hides nothing")):
        mask = f"    return torch.ones(1, 1, length, length, dtype=torch.bool){end}\n"
        write("helper.py", text=f"import torch\n\n\n{DEF}{mask}")
        os.utime("helper.py", (1e9, 1e9))  # some disks do not tell two changes within a second apart
        assert own_file.grade_file(NAME, 5)[5]["causal_mask"] == said


def test_check_judges_a_model_whose_file_switches_gradients_off(capsys):
    small = own_file.solution().replace("num_layers=4", "num_layers=1").replace("d_model=128", "d_model=16")
    write("mine.py", text=small.replace("import torch\n", "import torch\ntorch.set_grad_enabled(False)\n", 1))
    command_line.main(["check", "mine.py:build", "--no-training"])
    assert " 0 fail" in capsys.readouterr().out


GAP, DEF = '    raise NotImplementedError("chapter 5: write causal_mask")\n', "def causal_mask(length):\n"
RIGHT = "    return torch.ones(1, 1, length, length, dtype=torch.bool).tril()\n"
STILL = "failed: line 4 still raises NotImplementedError"
GAPS = {  # a file with one gap: what is said of it
    f"{DEF}    'a gap'\n    ...\n{GAP}    pass\n": "not attempted", f"{DEF}{GAP}\n{DEF}{RIGHT}": "passed",
    f"{DEF}    'text'\n{GAP}{RIGHT}": STILL, f"{DEF}    mask = 1\n{GAP}": STILL,
    f"{DEF}{RIGHT}\n{DEF}{GAP}": "failed: causal_mask is defined in lines 2 and 5, and only the last one counts",
    f"{DEF}{RIGHT}\n{DEF}    return 1\n":
        "failed: the causal mask should be a tensor; it is of type int; causal_mask is defined in lines 2 and 5",
}  # fmt: skip


@pytest.mark.parametrize("text", GAPS)
def test_a_forgotten_gap_is_told_with_its_place(text):
    write(NAME, text=f"import torch\n{text}")
    said = own_file.grade_file(NAME, 5)[5]["causal_mask"]
    assert said.startswith(GAPS[text]) if ":" in GAPS[text] else said == GAPS[text]


def test_a_method_that_stands_twice_is_told_with_its_place():
    gap = '\n    def forward(self, x):\n        raise NotImplementedError("chapter 6: write LayerNorm")\n'
    write(NAME, text=own_file.solution().replace("\n\nclass FeedForward", f"{gap}\n\nclass FeedForward"))
    assert "forward is defined in lines " in own_file.grade_file(NAME, 6)[6]["LayerNorm"]
