"""The exercises: stubs are not attempted, solutions pass, plausible wrong answers fail, and nothing ever raises."""

import json
import re

import numpy as np
import pytest
import torch
from IPython.core.formatters import DisplayFormatter
from small import ROOT, stored_cells

from transformer_lib.__main__ import main
from transformer_lib.exercises import grade, own_file
from transformer_lib.exercises.progress import progress
from transformer_lib.files import InputError

LABEL = re.compile(r"^:label: ex-(\d\d[a-z]?-\d)$", re.MULTILINE)
PAGES = sorted((ROOT / "chapters").glob("*.md"))
GRADED = [path for path in PAGES if re.search(r"^def grade_\d", path.read_text("utf-8"), re.MULTILINE)]
BUILT = {f"{part.chapter:02}-1" for part in own_file.gaps()} | {"09-3", "09-4", "10-3"}  # in one's own file
EXERCISES = [name for path in GRADED for name in LABEL.findall(path.read_text("utf-8")) if name not in BUILT]
VERDICTS = re.compile(r"^(\d\d[a-z]?-\d): (not attempted|passed|failed: .+)$", re.MULTILINE)


def verdicts(path):
    """What a stored notebook says about each exercise, in order. (nbval runs it again and compares.)"""
    found = {}
    for cell in stored_cells(path.stem):
        for output in cell.get("outputs", []):
            for name, verdict in VERDICTS.findall("".join(output.get("text", []))):
                found.setdefault(name, []).append(verdict.partition(":")[0])
    return found


@pytest.mark.parametrize("path", GRADED, ids=lambda path: path.stem)
def test_stub_solution_and_wrong_answer_get_their_verdicts_and_hints_stand_between(path):
    """In the source: the exercise, its stub, two hints or more, the folded solution, the grader."""
    text, found = path.read_text("utf-8"), verdicts(path)
    names = [name for name in LABEL.findall(text) if name not in BUILT]
    assert 1 <= len(names) <= 6
    for name in names:
        first, second, *others = found[name]
        assert (first, second) == ("not attempted", "passed"), name
        assert set(others) | {"passed"} == {"failed", "passed"}, f"{name}: no wrong answer fails"
        part = text.partition(f":label: ex-{name}\n")[2]
        stub, _, rest = part.partition(f"{{solution-start}} ex-{name}\n")
        assert "return NotImplemented" in stub
        assert f'grade("{name}", ' in stub
        assert stub.count("{dropdown} Hint ") >= 2, name
        solution, _, after = rest.partition("{solution-end}")
        assert solution.startswith(":class: dropdown\n")
        assert f"def grade_{name.replace('-', '_')}(answer: Answer) -> None:" in after, name


def garbage():
    """Answers that no grader may accept, and none may choke on."""

    def raises(*_, **__):
        raise RuntimeError("no idea")

    values = [None, "two", True, 0, -1, float("nan"), [], {}, torch.tensor(float("nan")), torch.zeros(0)]
    values += [torch.zeros(1), torch.ones(2, 2), torch.full((2, 3, 4), torch.nan), (torch.zeros(1),) * 2, print]
    return [raises, *(lambda *_, value=value, **__: value for value in values), lambda: 1, "not a function", None]


@pytest.mark.parametrize("name", EXERCISES)
def test_garbage_fails_and_never_raises(name, capsys):
    for answer in garbage():
        grade(name, answer)
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith(f"{name}: failed: "), lines
        assert all(line.startswith("    ") for line in lines[1:]), "one paragraph"
        assert all(len(line) <= 110 or " " not in line.strip() for line in lines), "wrapped"


def test_the_zero_of_a_number_may_be_left_out_and_an_unknown_exercise_is_named(capsys):
    for name in ("2-2", "02-2"):
        grade(name, lambda *_: NotImplemented)
        assert capsys.readouterr().out == "02-2: not attempted\n"
    for name in ("99-1", "02-9", "two", "", "../02-1"):
        grade(name, lambda: None)
        assert capsys.readouterr().out == f"{name}: there is no such exercise\n"


def test_the_first_failure_is_told_with_its_case_and_the_verdict_holds_it(capsys):
    """A notebook shows it once."""
    grade("00-0", lambda x: x + 2 if x < 3 else 2 * x)
    assert capsys.readouterr().out == "00-0: failed: the answer should be 0; called with (0), it returned 2\n"
    raised = grade("00-0", lambda x: 1 / x)
    assert "called with (0), it raised; ZeroDivisionError: division by zero" in capsys.readouterr().out
    assert (raised.args, raised.options, raised.result) == ((0,), {}, None)
    verdict = grade("03-2", lambda W_O, b_V, b_O: b_V + b_O)  # without W_O in between
    assert " ".join(capsys.readouterr().out.split()) == f"03-2: {verdict.text}"
    W_O, b_V, b_O = verdict.args
    assert torch.equal(verdict.result, b_V + b_O)
    assert not torch.allclose(verdict.result, b_V @ W_O + b_O, rtol=0, atol=0.01)
    assert DisplayFormatter().format(verdict) == ({}, {})


def notebook(folder, name, *cells):
    """A notebook in which these cells, (source, printed text), were run."""
    stored = [{"cell_type": "code", "source": [code], "outputs": [{"text": [text]}]} for code, text in cells]
    (folder / f"{name}.ipynb").write_text(json.dumps({"cells": stored}), encoding="utf-8")


@pytest.mark.parametrize(("last", "expected"), [
    ("passed", "passed"),
    ("not attempted: LayerNorm", "not attempted"),
    ("LayerNorm: passed; FeedForward: not attempted", "begun"),
    ("LayerNorm: passed; FeedForward: failed: no ReLU;\n    EncoderLayer: blocked by FeedForward: it", "failed"),
    ("LayerNorm: passed; EncoderLayer: blocked\n    by FeedForward: it; DecoderLayer: not attempted", "blocked"),
])  # fmt: skip
def test_progress_takes_the_last_verdict_on_a_part_that_is_graded_after_each_step(tmp_path, last, expected):
    said = ["not attempted: LayerNorm", "LayerNorm: failed: no\n    mean; FeedForward: not attempted", last]
    steps = [("grade('06-1')", f"06-1: {each}\n") for each in said]
    notebook(tmp_path, "06_layers", *steps, ('grade("06-1")', ""), ("grade('06-2', f)", "06-2: failed: it should\n"))
    assert progress(tmp_path) == {"06_layers": {"06-1": expected, "06-2": "failed"}}


def test_progress_counts_every_exercise_of_the_book_once():
    done = {name: verdict for verdicts in progress(ROOT / "book").values() for name, verdict in verdicts.items()}
    assert set(done) == {*EXERCISES, *BUILT}
    assert set(done.values()) == {"not attempted"}


UNREADABLE = ['{"cells": 3}', "", '{"cells": [3]}', "[" * 99_999]


def test_a_notebook_that_cannot_be_read_is_a_line_beside_the_others(tmp_path, capsys):
    """Alone, it is why there are no exercises."""
    for number, text in enumerate(UNREADABLE):
        (tmp_path / f"{number}.ipynb").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"no notebook with exercises.*; .*0.ipynb is not a notebook.*: save it anew"):
        progress(tmp_path)
    with pytest.raises(InputError, match=r"no notebook with exercises in .*nowhere; expected"):
        progress(tmp_path / "nowhere")
    notebook(tmp_path, "good", ("grade('2-1', mine)", "02-1: passed\n"))
    assert main(["progress", str(tmp_path)]) == 0
    *bad, good, counts = capsys.readouterr().out.splitlines()
    told = [f"{number}.ipynb is not a notebook that can be read (" in line for number, line in enumerate(bad)]
    assert told == [True] * len(UNREADABLE)
    assert (good.split(), counts.split()[:3]) == (["good", "passed:", "02-1"], ["all", "passed:", "1;"])


def small_added(scores, mask):
    exponentials = (scores - scores.amax(dim=1, keepdim=True)).exp() * mask
    return exponentials / (exponentials.sum(dim=1, keepdim=True) + 1e-9)


TYPE = "the values are right, the type is wrong: got "


@pytest.mark.parametrize(("name", "answer", "told"), [
    ("00-1", lambda x: x.mean(dim=1), "this is the mean of each token"),
    ("01-1", lambda g, states: (states @ g / len(g)).softmax(dim=0) @ states, "divided by d, not by its root"),
    ("02b-1", small_added, "1e-09 is added to the sum"),
    ("03-2", lambda W_O, b_V, b_O: W_O @ b_V + b_O, "the transpose of W_O"),
    ("05a-1", lambda p: -(p * p.log()).sum(), "0 · ln 0 should count as 0"),
    ("17a-1", lambda c, r, bins: sum(abs(a - b) for a, b in zip(r, c)) / len(r), "compared with its own outcome"),
    ("00-0", lambda x: np.float32(2 * x), TYPE + "numpy.float32, expected int"),
    ("00-1", lambda x: x.mean(dim=0).tolist(), TYPE + "list of float, expected tensor of float64"),
    ("00-1", lambda x: x.mean(dim=0).float(), "in torch.float32 instead of torch.float64"),
    ("08b-1", lambda n, *_: torch.arange(n), TYPE + "tensor of int64, expected list"),
    ("08b-1", lambda n, *_: tuple(range(n)), TYPE + "tuple, expected list"),
])  # fmt: skip
def test_a_wrong_answer_is_told_what_is_wrong(name, answer, told):
    said, _, case = grade(name, answer).text.partition("; called with (")
    assert said.startswith("failed: ")
    assert told in said
    assert case
    assert TYPE not in grade(name, lambda *case: "something else").text
