"""The reader's parts in the translator: in three styles, each alone, spoilt, wrong, and missing."""

import re
from pathlib import Path

import pytest
import torch

from transformer_lib import __main__ as command_line
from transformer_lib.exercises import own_file, try_parts
from transformer_lib.exercises.trying import BREAKS, DOGS, SENTENCE, translator
from transformer_lib.files import InputError
from transformer_lib.notebook import every_attention

ANSWERS = Path(__file__).parent / "answers"
GERMAN = "Ein Mann spielt auf der Straße Gitarre."
SOLUTION = own_file.solution()
INSIDE = [part.name for part in own_file.gaps() if part.chapter < 8]
SPOILT = {
    "scale": "Ein Mann spieltEine Straße auf der Straße.", "heads": "Ein Mann spielt.",
    "merge": "Ein Mann spielt auf einer Straße.", "positions": "Ein schwarzer Hund jagt einen weißen Hund.",
    "padding": "Eine Frau kocht in der Küche Wäter.", "residual": "einer einer einer",
    "causal": "Ein alter Mann an einem sonnigen Tag wirft einen Ball.", "norm": "auf auf auf auf auf auf das das",
    "shift": "der der der", "slots": "Ein schwarz-weißer Hund schwimmt in klarem Wasser.",  # shift: after a training
}  # fmt: skip


@pytest.fixture(autouse=True)
def _empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    return own_file.start(tmp_path_factory.mktemp("solved"), solved_to=10)


@pytest.fixture(scope="module")
def third(tmp_path_factory):
    """The third style, with the solutions of what it lacks."""
    file = tmp_path_factory.mktemp("third") / own_file.NAME
    file.write_text("import math\n" + (ANSWERS / "third_style.py").read_text("utf-8"), "utf-8")
    return own_file.start(file.parent, solved_to=10, update=True)


@pytest.mark.parametrize("chapter", [3, 10])
def test_all_parts_of_a_file_translate(solved, chapter):
    tried = try_parts(SENTENCE, chapter=chapter, file=solved)
    assert tried.translations[0] == GERMAN
    assert tried.yours == [p.name for p in own_file.gaps() if p.chapter <= min(chapter, 7) or p.chapter == chapter]
    if chapter == 3:
        for name, seen in every_attention(translator(), SENTENCE).items():
            torch.testing.assert_close(tried.attentions[name].weights, seen.weights, rtol=0, atol=1e-5)
            assert tried.attentions[name][:2] == seen[:2]
    if chapter == 10:
        assert tried.text.count("the same") == 2


@pytest.mark.parametrize("odd", [0, 1])
def test_every_second_part(tmp_path, odd):
    text = own_file.template(0)
    for chapter, part, code in own_file.parts():
        if part in INSIDE[odd::2]:
            text = text.replace(own_file.emptied(chapter, part, code), code)
    (tmp_path / "mine.py").write_text(text, "utf-8")
    tried = try_parts(file="mine.py")
    assert (tried.yours, tried.translations) == (INSIDE[odd::2], [GERMAN])


def test_another_style():
    tried = try_parts(file=ANSWERS / "another_style.py")  # post-norm, which other weights belong to
    assert (tried.translations, tried.yours) == ([GERMAN], INSIDE[:-3])
    assert "EncoderLayer stays out" in tried.text


def test_the_keys_may_have_no_biases():
    text, number = re.subn(r"(self.key.*nn.Linear\(\w+, \w+)\)", r"\1, bias=False)", SOLUTION)
    Path("my_transformer.py").write_text(text, "utf-8")
    tried = try_parts()
    assert (number, tried.yours, tried.translations) == (1, INSIDE, [GERMAN])


@pytest.mark.parametrize("mistake", [
    pytest.param(name, marks=[pytest.mark.long] * (own.chapter > 8)) for name, own in BREAKS.items()
])  # fmt: skip
def test_each_mistake_spoils_the_german(mistake, third):
    tried = try_parts(without=mistake, file=third)
    assert {*INSIDE} <= {*tried.yours}
    assert SPOILT[mistake] in tried.translations[0]
    assert not re.search(r"\S…", tried.text), "a line ends within a word"
    assert not tried.unchanged


def test_wrong_parts():
    wrong = SOLUTION.replace("/ math.sqrt(q.size(-1))", "").replace("unbiased=False", "unbiased=True")
    Path("my_transformer.py").write_text(wrong, "utf-8")
    tried = try_parts(chapter=7)
    assert not {"attention", "LayerNorm"} & {*tried.yours}
    assert "`grade` says what is wrong: attention, LayerNorm" in tried.text
    assert "sinusoidal_table" in tried.yours
    assert tried.translations == [GERMAN]


@pytest.mark.parametrize("raised", ["raise SystemExit", "return torch.zeros(1)"])
def test_a_part_that_fails_at_work_is_one_line(raised):
    end = "    return weights @ v, weights"
    text = SOLUTION.replace(end, f"    if q.size(-1) == 32:\n        {raised}\n{end}")
    Path("my_transformer.py").write_text(text, "utf-8")
    tried = try_parts()
    assert "attention" not in tried.yours
    assert tried.text.count("attention stays out") == 1
    assert tried.translations == [GERMAN]


def test_a_file_that_cannot_be_run():
    Path("my_transformer.py").write_text("def attention(q:\n", "utf-8")
    tried = try_parts()
    assert tried.lines[1].startswith("my_transformer.py, line 1:")
    assert tried.translations == [GERMAN]


def test_what_is_not_there_is_named(capsys):
    for options, words in (({"without": "hope"}, "expected one of scale, heads"), ({"chapter": 11}, "from 2 to 10"),
                           ({"sentence": " "}, "a blank one")):  # fmt: skip
        with pytest.raises(InputError, match=words):
            try_parts(**options)
    assert command_line.main(["try", "--without", "hope"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert command_line.main(["try", "my_transformer.py", DOGS, "--without", "positions"]) == 0
    assert SPOILT["positions"] in capsys.readouterr().out


def test_an_argument_that_is_no_file_is_the_sentence(capsys):
    own_file.start(solved_to=2)
    assert command_line.main(["try", "A man sleeps."]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("Yours: attention.")
    assert "\nA man sleeps.\n  Ein Mann schläft.\n" in said.out
    assert command_line.main(["try", "mine.py", "A man sleeps."]) == 0
    assert "\nthere is no mine.py: " in capsys.readouterr().out


@pytest.mark.parametrize(("words", "here", "told"), [
    ([], "", "my_transformer.py: `cd course` first, which has a"),
    (["course/my_transformer.py"], "course", "course/my_transformer.py: this folder has a"),
])  # fmt: skip
def test_a_file_that_lies_in_another_folder_is_named(capsys, monkeypatch, words, here, told):
    own_file.start("course")
    monkeypatch.chdir(Path(here))
    for command in ("try", "grade"):
        assert command_line.main([command, *words]) == 2
        assert capsys.readouterr().err == f"error: there is no {told} my_transformer.py\n"


def test_with_parts_joins_both(capsys):
    Path("my_transformer.py").write_text(own_file.template(5), "utf-8")
    module = own_file.with_parts()
    assert module.yours == INSIDE[: INSIDE.index("causal_mask") + 1]
    assert capsys.readouterr().out.startswith("Yours: attention, split_heads")
    assert module.Transformer(9, 9, 0, d_model=8, num_heads=2).forward.__globals__["attention"] is module.attention
