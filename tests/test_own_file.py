"""The reader's own file: how it begins, its graders, and what they say of answers that are right or wrong."""

import csv
import json
import re
from pathlib import Path

import jupytext
import pytest
import torch

from transformer_lib import __main__ as command_line
from transformer_lib.exercises import grade, grading, own_file
from transformer_lib.exercises.grading import by_part, rows
from transformer_lib.exercises.own_file import variants
from transformer_lib.files import InputError
from transformer_lib.own_model import architecture
from transformer_lib.translation import Translator

SOLUTION = own_file.solution()

ROOT = Path(__file__).resolve().parent.parent
ANSWERS = ROOT / "tests" / "answers"
CASES = [(name, *fault) for name, faults in by_part("wrong.tsv").items() for fault in faults]


def verdict(tmp_path, text, name):
    """What the grader of one part says of a file."""
    file = tmp_path / "my_transformer.py"
    file.write_text(text, encoding="utf-8")
    ((said,),) = [found.values() for found in own_file.grade_file(file, only=name).values()]
    return said


def test_every_part_has_wrong_answers():
    found = by_part("wrong.tsv")
    assert [*found] == [part.name for part in own_file.gaps()]
    assert min(map(len, found.values())) >= 4


@pytest.mark.parametrize(("name", "old", "new", "words"), [
    pytest.param(*case, id=f"{case[0]}-{n}", marks=[pytest.mark.long] * (n % (32 if "former" in case[0] else 8) > 0))
    for n, case in enumerate(CASES)
])  # fmt: skip
def test_a_plausible_wrong_answer_is_told_what_it_did(tmp_path, name, old, new, words):
    text = own_file.planted(name, old, new)
    assert text != SOLUTION
    said = verdict(tmp_path, text, name)
    assert re.search(f"^failed: .*({words})", said), said


def test_memory_that_nobody_wrote_never_holds_the_right_answer_by_luck(tmp_path):
    made = "table = torch.empty(length, d_model)"
    text = own_file.planted("sinusoidal_table", made, f"{made}\n    assert table.isnan().all()")
    assert verdict(tmp_path, text, "sinusoidal_table") == "passed"
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", sorted({name for name, *_ in rows("mistakes.tsv")}))
def test_known_mistakes_are_told_in_their_own_words(tmp_path, name, every):
    """Or in those of a mistake above them in the table, which gives the same. A part has no fewer than eight."""
    before = set()
    for number, (_, old, new, sentence) in enumerate(row for row in rows("mistakes.tsv") if row[0] == name):
        before.add(sentence)
        if number % every:
            continue
        said = verdict(tmp_path, own_file.planted(name, old, new), name)
        assert said.startswith("failed: "), (new, said)
        seen = "the model is ", "max_length", "length of other", "who reads which value", "with 3 queries and 4 keys"
        assert any(words in said for words in (*before, *seen)), (new, said)


def test_a_layer_may_have_its_network_written_out(tmp_path):
    maps = "self.a, self.b = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)"
    text = SOLUTION.replace("self.feed_forward = FeedForward(d_model, d_ff)", maps)
    text, count = re.subn(r"self\.feed_forward\((self\.norm\d\(z2?\))\)", r"self.b(torch.relu(self.a(\1)))", text)
    assert count == 2
    assert {verdict(tmp_path, text, name) for name in ("EncoderLayer", "DecoderLayer")} == {"passed"}


@pytest.mark.parametrize(("name", "cuts", "told"), [
    ("Transformer", ("embed", "forward"), "step 2, embed (step 1, __init__, is right)"),
    ("Transformer", "forward",
        "step 3, the encoder's half of forward (of steps 1 and 2, what is tried is right)"),
    ("Transformer", (), "step 4, the decoder's half of forward (of the steps before, what is tried is right)"),
    ("MultiHeadAttention", "forward", "forward (__init__ is right)"),
    ("EncoderLayer", "forward", "forward (__init__ is right)"),
    ("DecoderLayer", "forward", "forward (__init__ is right)"),
])  # fmt: skip
def test_a_class_is_graded_step_by_step(tmp_path, name, cuts, told):
    """What is written so far is right, and what comes next is named."""
    ((chapter, _, code),) = [part for part in own_file.parts() if part[1] == name]
    methods = zip(*(text.split("\n    def ") for text in (code, own_file.emptied(chapter, name, code))))
    begun = [gap if own.startswith(cuts) else own.partition("        y = self.embed(")[0] for own, gap in methods]
    text = SOLUTION.replace(code, "\n    def ".join(begun))
    assert verdict(tmp_path, text, name) == f"not attempted: {told}"


@pytest.mark.parametrize(("name", "old", "new", "told"), [
    ("attention", "if mask is None:", "if True:", "step 2, the mask (step 1 is right)"),
    ("beam_search", "if tokens[-1] == eos_id:", "if False:", "step 2, the slots (step 1 is right)"),
])  # fmt: skip
def test_the_first_step_of_a_function_is_told_as_such(tmp_path, name, old, new, told):
    assert verdict(tmp_path, own_file.planted(name, old, new), name) == f"not attempted: {told}"


HEADS = ("(num_heads, -1)).transpose(1, 2)", "(num_heads, -1))")
NORM = (" / torch.sqrt(variance + 1e-5)", "")
NO_SUM = ("= x + self.dropout(self.self_attention(", "= self.dropout(self.self_attention(")
OWN = ("return weights @ v, weights", "return weights @ v"), ("output, _ = attention", "output = attention")
LACKS = ("self.output_projection(merge_heads(output))", "merge_heads(output)")


@pytest.mark.parametrize(("changes", "told"), [
    ([HEADS, NORM, NO_SUM], {"split_heads": "failed: the heads", "LayerNorm": "failed: the mean is",
        "EncoderLayer": "failed: the output of a", "DecoderLayer": "failed"}),
    (OWN, {"attention": "failed: it should return two"}),
    ([*OWN, LACKS], {"attention": "failed", "MultiHeadAttention": "blocked by attention: with the right one in"}),
    ([("self.norm1(x)", "self.norm(x)"), NORM], {"LayerNorm": "failed",
        "EncoderLayer": "failed: something is used", "DecoderLayer": "failed: something is used"}),
    ([("    return weights @ v, weights", '    raise NotImplementedError("chapter 3: write merge_heads")')],
        {"attention": "blocked by merge_heads: it is not written yet"}),
])  # fmt: skip
def test_a_part_is_graded_with_the_solutions_in_place_of_those_that_do_not_pass(tmp_path, changes, told):
    """One mistake does not hide the next; a part that fits only wrong parts of the reader's own is blocked."""
    text = SOLUTION
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (mine := tmp_path / "mine.py").write_text(text, "utf-8")
    found = [own_file.grade_file(mine, chapter)[chapter] for chapter in range(2, 7)]
    wrong = {name: said for chapter in found for name, said in chapter.items() if said != "passed"}
    assert list(wrong) == list(told)
    assert all(wrong[name].startswith(said) for name, said in told.items()), wrong


def test_ten_files_to_debug(tmp_path, monkeypatch, capsys):
    """Each has one fault, in a part of its own; another seed draws others, and the same seed the same."""
    monkeypatch.chdir(tmp_path)
    assert command_line.main(["start", "--debug", "1"]) == 0
    assert [path.name for path in sorted(Path().iterdir())] == [f"debug_{n:02}.py" for n in range(1, 11)]
    texts = [path.read_text("utf-8") for path in own_file.debug("again", 1)]
    assert texts == [path.read_text("utf-8") for path in sorted(Path().glob("*.py"))]
    assert texts != [path.read_text("utf-8") for path in own_file.debug("others", 2)]
    changed = [[name for _, name, code in own_file.parts() if code not in text] for text in texts]
    names = [name for (name,) in changed]
    assert len(set(names)) == 10
    capsys.readouterr()
    assert command_line.main(["start", "--debug", "3"]) == 2
    assert "debug_01.py exists, and stays as it is" in capsys.readouterr().err
    number = next(n for n, name in enumerate(names, start=1) if name != "Transformer")
    assert command_line.main(["grade", f"debug_{number:02}.py"]) == 1
    failed = [line.split()[1] for line in capsys.readouterr().out.splitlines() if " passed" not in line]
    assert failed == [names[number - 1]]


STYLES = rows(str(ANSWERS / "variants.tsv"))


@pytest.mark.parametrize("number", [
    pytest.param(number, id=name, marks=[pytest.mark.long] * (name == "DecoderLayer"))  # as for the EncoderLayer
    for number, (name, *_) in enumerate(STYLES[::2])
])  # fmt: skip
def test_a_variant_holds_a_part_to_a_formula_of_its_own(tmp_path, monkeypatch, number):
    """In other styles, too; the usual answer, which is public, is told what is asked, whatever it does to the line."""
    name, *change = [text.replace("{n}", "3") for text in rows("variants.tsv")[number]]
    monkeypatch.setattr(own_file, "variants", lambda seed: {name: change} if seed == 7 else {})
    text = own_file.template(10, 7)
    assert f"Your variant, whatever else is said here: {change[2]}." in " ".join(text.split())
    assert verdict(tmp_path, text, name) == "passed"
    for style in STYLES[2 * number : 2 * number + 2]:
        assert verdict(tmp_path, f"VARIANT = 7\n{own_file.planted(*style)}", name) == "passed", style
    trick = re.sub(r'^( +)"""$', r'\1"""\n\1global VARIANT\n\1VARIANT = None', SOLUTION, flags=re.MULTILINE)
    for spoilt in (SOLUTION, trick):
        said = verdict(tmp_path, f"VARIANT = 7\n{spoilt}", name)
        assert re.fullmatch(rf"failed: this is (the usual {name}|pre-norm); your variant: {re.escape(change[2])}", said)


def test_a_file_of_variants_belongs_to_its_seed(tmp_path, monkeypatch, capsys):
    """Parts that use one of them are graded with the usual one, which the course's translator needs, too."""
    monkeypatch.chdir(tmp_path)
    own = {part.name: part for part in own_file.gaps() if part.name != "Transformer"}  # which takes most of the time
    monkeypatch.setattr(own_file, "GAPS", own)
    assert command_line.main(["start", "--variant", "17", "--solved-to", "10"]) == 0
    assert command_line.main(["grade", "--variant", "17"]) == 0
    assert capsys.readouterr().out.count(" passed\n") == len(own)
    assert {*own_file.with_parts().yours} == own.keys() - variants(17)
    Path("my_transformer.py").write_text(SOLUTION, "utf-8")  # without the line
    assert command_line.main(["grade", "--variant", "17"]) == 1
    assert capsys.readouterr().out.count("; your variant: ") == len(variants(17))
    for given, told, wrong in ((["--variant", "17"], "17 (the file names none)", variants(17)), ([], "none", [])):
        assert command_line.main(["grade", "--results", "r.json", *given]) == 0
        found = json.loads(Path("r.json").read_text("utf-8"))
        assert found["output"] == f"variant: {told}"
        assert sum(test["score"] for test in found["tests"]) == len(own) - len(wrong)
    assert {len(variants(seed)) for seed in range(30)} == {2, 3, 4}


def test_the_file_begins_once_and_grows_where_it_lacks_a_part(tmp_path):
    file = own_file.start(tmp_path / "new", solved_to=3)
    assert list(own_file.grade_file(file, 3)[3].values()) == ["passed"] * 3
    assert own_file.grade_file(file, 4) == {4: {"sinusoidal_table": "not attempted"}}
    mine = file.read_text("utf-8").replace("def causal_mask", "def causal_mask_of_mine")
    file.write_text(mine, encoding="utf-8")
    with pytest.raises(InputError, match="exists, and stays as it is"):
        own_file.start(tmp_path / "new")
    own_file.start(tmp_path / "new", update=True)
    assert file.read_text("utf-8").startswith(mine.rstrip())
    assert own_file.grade_file(file, 5)[5]["causal_mask"] == "not attempted"


(LAYER_NORM,) = [code for _, name, code in own_file.parts() if name == "LayerNorm"]
BEGUN = own_file.template(5).replace(own_file.emptied(6, "LayerNorm", LAYER_NORM), LAYER_NORM)


@pytest.mark.parametrize(("name", "text", "words"), [
    ("2-1", None, "not attempted: there is no my_transformer.py here"),
    ("2-1", "def attention(q:\n", "failed: my_transformer.py, line 1: .*; mend this line first"),
    ("2-1", "import sys\nsys.exit()\n", "failed: my_transformer.py cannot be run: SystemExit"),
    ("2-1", "\0", "failed: "),
    ("2-1", "", "attention: failed: there is no attention in the file"),
    ("2-1", "def attention(*_):\n    raise NotImplementedError", "not attempted: attention"),
    ("2-1", "def attention(*_):\n    raise SystemExit", "attention: failed: it raised SystemExit"),
    ("6-1", BEGUN, "LayerNorm: passed; FeedForward: not attempted$"),  # of several parts the next one is named
    ("9-3", "def learning_rate(*_):\n    return 0.0", "learning_rate: failed: "),  # though another part comes first
])  # fmt: skip
def test_a_notebook_grades_the_file_beside_it(tmp_path, monkeypatch, capsys, name, text, words):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        Path("my_transformer.py").write_text(text, encoding="utf-8")
    grade(name)
    assert re.match(f"0{name}: {words}", " ".join(capsys.readouterr().out.split()))


def test_a_grader_that_a_notebook_shows_does_not_judge():
    before = own_file.gaps()
    exec("@gap(2, 'attention')\ndef grade_attention(mine): 1 / 0", {"__name__": "__main__", "gap": grading.gap})
    assert own_file.gaps() == before


def test_the_command_line_starts_and_grades_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command_line.main(["start", "--solved-to", "2"]) == 0
    assert command_line.main(["grade", "--json", "verdicts.json"]) == 0
    assert re.search(r"^ 2  attention +passed\n 3  split_heads +not attempted$", capsys.readouterr().out, re.MULTILINE)
    report = json.loads(Path("verdicts.json").read_text("utf-8"))
    assert report["schema"] == 1
    assert report["parts"][0] == {"chapter": 2, "part": "attention", "verdict": "passed", "why": ""}
    assert [part["verdict"] for part in report["parts"][1:]] == ["not attempted"] * (len(own_file.gaps()) - 1)
    mine = Path(own_file.NAME)
    mine.write_text('print("hello")\n' + mine.read_text("utf-8").replace("/ math.sqrt", "* math.sqrt"), "utf-8")
    assert command_line.main(["grade"]) == 1
    said = capsys.readouterr()
    assert "attention            failed: the scores are multiplied by the root of d_k; divide by it" in said.out
    assert said.err == "hello\n"
    assert command_line.main(["grade", "--only", "causal_mask"]) == 0
    assert capsys.readouterr().out == " 5  causal_mask          not attempted\n"
    assert command_line.main(["grade", "--only", "Attention"]) == 2
    assert "there is no part Attention: expected one of attention, split_heads" in capsys.readouterr().err


PAGES = {"11_translation": "sec-translation-yours", "17_multi30k": "sec-multi30k-twenty"}  # the label of the lines
FEWER = {  # what makes them shorter
    "steps=300": "steps=2", ".source[:20]": ".source[:1]", "(pairs, 1024)": "(pairs[::99], 1024)", "eos, 60": "eos, 3",
    "step < 200": "step < 2", "(50, 100)": "(2,)", "else 20": "else 1", "eos, 50": "eos, 3",
    "numbers(data.train)": "numbers(data.train)[::99]", "numbers(data.val)": "numbers(data.val)[:9]",
}  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_the_lines_in_which_everything_is_yours_run_alone(tmp_path, monkeypatch, capsys, page):
    """In an empty notebook beside a file in another style: all parts are that file's."""
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", "")
    monkeypatch.setattr("myst_nb.glue", lambda *_, **__: None)  # it makes this process a notebook, for all later tests
    monkeypatch.chdir(tmp_path)
    Path("my_transformer.py").write_bytes((ANSWERS / "another_style.py").read_bytes())
    text = (ROOT / f"chapters/{page}.md").read_text("utf-8").partition(f"({PAGES[page]})=\n")[2]
    text = text[: text.index("\n## ", 5)]  # to the next heading
    cells = [cell.source for cell in jupytext.reads(text, fmt="md:myst").cells if cell.cell_type == "code"]
    code = "\n".join(cells[:3] if page == "11_translation" else cells)
    for old, new in FEWER.items():
        code = code.replace(old, new)
    exec(code, alone := {})
    mine = alone.get("mine") or alone["parts"]
    assert mine.yours == [part.name for part in own_file.gaps()]
    assert all(target.count(alone["bos"]) == 1 for _, target in alone["pairs"])
    said = capsys.readouterr().out
    assert "loss" in said
    assert str(tmp_path) not in said
    assert [file.name for file in Path().iterdir()] == ["my_transformer.py"]


def test_a_file_of_ones_own_is_trained_and_translates(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text, mine = SOLUTION.replace("num_layers=4", "num_layers=1").replace("d_model=128", "d_model=16"), Path("mine.py")
    mine.write_text(text, "utf-8")
    Path("a").write_text("a dog sleeps\nthe cat\n" * 30, "utf-8")
    Path("b").write_text("ein Hund schläft\ndie Katze\n" * 30, "utf-8")
    train = "train --source a --target b --preset tiny --vocab-size 280 --out run --architecture mine.py:build"
    assert command_line.main([*train.split(), *"--learning-rate 0.01 --warmup 10 --steps 40".split()]) == 0
    translate = ["translate", "--model", "run", "a dog"]
    capsys.readouterr()
    assert command_line.main([*translate, "--architecture", "mine.py:build"]) == 0
    said = capsys.readouterr()
    assert "this model has no cache" in said.err
    translator = Translator.from_pretrained("run", build=architecture("mine.py:build"))
    (_, best), *_ = translator.n_best("a dog")
    assert said.out == f"{best}\n"
    tokenizer, source = translator.tokenizer, torch.tensor([translator.tokenizer.encode("a dog")])
    limit = 2 * source.size(1) + 10
    own = own_file.load(mine).beam_search(translator.model.model, source, tokenizer.bos_id, tokenizer.eos_id, limit)
    assert best == " ".join(tokenizer.decode(own).split())
    mine.write_text(text + "# changed\n", "utf-8")
    assert command_line.main([*translate, "--architecture", "mine.py:build"]) == 0
    assert "is not what the model was trained with" in capsys.readouterr().err
    assert command_line.main([*train.split(), "--resume"]) == 2
    assert "is not what the run began with" in capsys.readouterr().err
    for name, words in (("mine:build", "expected FILE.py:FUNCTION"), ("mine.py:nothing", "cannot import mine.py:")):
        assert command_line.main([*translate, "--architecture", name]) == 2
        assert words in capsys.readouterr().err


def test_a_class_is_marked(tmp_path, capsys):
    """Seven files as the page on teaching has them; one prints, and one ends as at its limit."""
    complete = own_file.template(10)
    files = {
        "anna/my_transformer.py": own_file.template(), "broken.py": "def attention(q",
        "complete.py": complete + "print('{}')\n", "exits.py": "import os; os._exit(0)",
        "half.py": own_file.template(5, 17), "loops.py": "import os; os.kill(os.getpid(), 9)",
        "wrong.py": complete.replace(" / math.sqrt(q.size(-1))", ""),
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert command_line.main(["grade", str(tmp_path), "--csv", str(tmp_path / "marks.csv"), "--seconds", "20"]) == 0
    page = (ROOT / "book/teaching.md").read_text(encoding="utf-8").partition("```text\n")[2].partition("```")[0]
    assert capsys.readouterr().out.replace(f"{tmp_path}/", "") == page
    with (tmp_path / "marks.csv").open(encoding="utf-8-sig", newline="") as file:
        marked = {row["file"]: row for row in csv.DictReader(file)}
    assert list(marked) == sorted(files)
    counts = {name: [row[kind] for kind in own_file.KINDS] for name, row in marked.items()}
    assert counts["anna/my_transformer.py"] == ["0", "0", "0", "19"]
    assert (counts["complete.py"], counts["wrong.py"]) == (["19", "0", "0", "0"], ["18", "1", "0", "0"])
    assert [name for name, row in marked.items() if row["variant"] == "17"] == ["half.py"]
    assert marked["wrong.py"]["attention"] == "failed: the scores are not divided by the root of d_k"
