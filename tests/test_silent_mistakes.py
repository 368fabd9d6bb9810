"""What would be answered wrongly without a word: sentences by label, forms of letters, options given twice, copies."""

import random
import unicodedata
from types import SimpleNamespace

import numpy as np
import pytest
from small import ENGLISH, GERMAN, MICRO, files_below, nonsense, write_texts
from small import call as run

from transformer_lib import recipes
from transformer_lib.data import ParallelCorpus, Tokenizer
from transformer_lib.data import tokenizer as tokenizers
from transformer_lib.data.corpora import fingerprint
from transformer_lib.files import InputError
from transformer_lib.recipes import read_corpus, training_data
from transformer_lib.scores import evaluate_bleu, papers_form

GIVEN = ["a dog runs", "the old cat", "a woman reads a book"]


class Labelled:
    """A column of pandas: iteration goes by place, and square brackets by label."""

    def __init__(self, values, labels):
        self.values, self.labels = values, labels

    def __iter__(self):
        return iter(self.values)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, label):
        return self.values[self.labels.index(label)]

    def __add__(self, other):
        return [a + b for a, b in zip(self.values, other.values)]


def scalar(text):
    """A text of pyarrow."""
    return SimpleNamespace(as_py=lambda: text)


COLUMNS = {
    "labels": lambda texts: Labelled(texts, [2, 0, 1]), "generator": iter,
    "numpy": np.array, "numpy bytes": lambda texts: np.array([text.encode() for text in texts]),
    "pyarrow": lambda texts: [*map(scalar, texts)],
}  # fmt: skip


@pytest.fixture(scope="module")
def speaker(tmp_path_factory):
    return nonsense(tmp_path_factory.mktemp("speaker"))


@pytest.mark.parametrize("kind", COLUMNS)
def test_sentences_are_taken_by_their_places(kind, speaker):
    column = COLUMNS[kind]
    assert speaker.translate(column(GIVEN), beam_size=1) == speaker.translate(GIVEN, beam_size=1)
    corpus = ParallelCorpus(column(GIVEN), column(GIVEN[::-1]))
    assert (corpus.source, corpus.target) == (GIVEN, GIVEN[::-1])
    assert all(type(text) is str for text in corpus.source + corpus.target)
    assert evaluate_bleu(column(GIVEN), column(GIVEN))["chrf"] == pytest.approx(100, abs=1e-9)
    assert evaluate_bleu(column(GIVEN), column(GIVEN[::-1])) == evaluate_bleu(GIVEN, GIVEN[::-1])
    assert Tokenizer.train(column(GIVEN), 270).to_json() == Tokenizer.train(GIVEN, 270).to_json()
    assert speaker.tokenizer.encode_batch(column(GIVEN)) == speaker.tokenizer.encode_batch(GIVEN)


TABLE = type("Table", (), {"columns": ("en", "de"), "__iter__": lambda _: iter(("en", "de"))})()  # as of pandas
NO_SENTENCES = [
    ("a dog", "got one string, 'a dog': put it into a list"), (b"a dog", "got one string, 'a dog'"),
    ("corpus.txt", r"got one string, 'corpus.txt': a file's lines are"),
    (TABLE, "got a Table: give one column"), ({"en": "a dog"}, "got a dict: give one column"),
    ({"a dog"}, "got a set, which has no order"), (None, "got None"), (np.array("a dog"), "got array"),
    (["a dog", None], "got None at place 1.*leave it out"), (["a dog", float("nan")], "got nan at place 1"),
    ([scalar("a dog"), scalar(None)], "got None at place 1"), ([b"\xff"], "expected UTF-8; got .* at place 0"),
    ([["a dog"]], r"got \['a dog'\] at place 0.*references\[0\]"),
    (np.array([["a dog"], ["a cat"]]), "at place 0.*one flat list"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "words"), NO_SENTENCES, ids=[str(n) for n in range(len(NO_SENTENCES))])
def test_what_has_no_sentences_is_refused_in_one_line(given, words, speaker):
    for function, *arguments in (
        (speaker.translate, given), (speaker.tokenizer.encode_batch, given), (Tokenizer.train, given, 300),
        (evaluate_bleu, given, GIVEN), (evaluate_bleu, GIVEN, given), (papers_form, given, "en"),
        (ParallelCorpus, given, GIVEN), (ParallelCorpus, GIVEN, given),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=words) as caught:
            function(*arguments)
        assert "\n" not in str(caught.value)


def test_a_file_as_a_sentence_gets_a_hint(tmp_path, monkeypatch):
    nonsense(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.en").write_text("a dog\n")
    status, out, err = run("translate", "--model", "run", "--beam", 1, "a dog", "lines.en", "x" * 300, "\0")
    assert (status, out.count("\n")) == (0, 4)
    assert [line for line in err.splitlines() if "is a file" in line] == [
        "warning: lines.en is a file, and its name was taken as a sentence: for its lines, write < lines.en"
    ]
    assert "is a file" not in run("translate", "--model", "run", "--beam", 1, "a dog")[2]


COMPOSED = {
    "German": ["Ein Mädchen läuft über die grüne Straße.", "Fünf Bären hören größere Vögel."],
    "Vietnamese": ["Một người đàn ông đang chơi đàn ghi ta.", "Hai phụ nữ đang ngồi trên ghế."],
    "Bengali": ["\u09b8\u09c7 \u09ac\u09be\u09dc\u09bf \u09af\u09be\u09df \u0964"],  # in a form that NFC lacks
    "Korean": ["한국어 문장 하나 더 있다", "또 다른 문장 이 있다"],
}  # fmt: skip


@pytest.mark.parametrize("language", COMPOSED)
@pytest.mark.parametrize("form", ["NFC", "NFD", "as typed"])
def test_scores_do_not_depend_on_the_form_of_a_letter(language, form):
    typed = COMPOSED[language]
    ours = typed if form == "as typed" else [unicodedata.normalize(form, text) for text in typed]
    best = Tokenizer.train([], 259)
    for theirs in (typed, [best.decode(best.encode(text)) for text in typed]):
        for tokenize in ("13a", "intl", "char"):
            for hypotheses, references in ((ours, theirs), (theirs, ours)):
                scores = evaluate_bleu(hypotheses, references, tokenize=tokenize)
                assert [scores["bleu"], scores["chrf"], scores["ter"]] == pytest.approx([100, 100, 0], abs=1e-9)
        assert papers_form(ours, "en") == papers_form(theirs, "en")


def test_evaluate_says_what_it_normalised(tmp_path):
    nonsense(tmp_path / "run")
    forms = {form: [unicodedata.normalize(form, text) for text in GERMAN] for form in ("NFC", "NFD")}
    scores = {}
    for form, target in forms.items():
        files = write_texts(tmp_path, ENGLISH, target)
        status, scores[form], err = run("evaluate", "--model", tmp_path / "run", "--beam", 1, *files)
        assert status == 0
        assert ("16 references were brought into NFC" in err) == (form == "NFD")
    assert scores["NFC"] == scores["NFD"]


TWICE = [
    ("train", "--source a --source b --target a --out r", "--source is given 2 times; expected once, put several"),
    ("train", "--corpus toy --out r --steps 1 --resume --steps 1 --steps 2", "--steps is given 3 times"),
    ("check", "a:b --sizes 8 8 --sizes 9 9", "--sizes is given 2 times"),
]


@pytest.mark.parametrize(("command", "options", "words"), TWICE)
def test_an_option_given_twice_is_refused(command, options, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        (tmp_path / name).write_text("a dog\n")
    status, out, err = run(command, *options.split())
    assert (status, out, len(files_below(tmp_path)), err.count("\n")) == (2, "", 2, 1)
    assert words in err


@pytest.mark.parametrize("store", [False, True])
def test_a_tokenizer_that_could_not_be_read_again_is_refused_before_the_training(store, tmp_path, monkeypatch):
    size = len(Tokenizer.train(ENGLISH + GERMAN, 300).to_json().encode())
    monkeypatch.setattr(tokenizers, "LARGEST", size // 2)
    more = ["--store", tmp_path / "store"] if store else []
    options = ["--preset", "tiny", "--vocab-size", 300, "--steps", 1, "--out", tmp_path / "run"]
    status, _, err = run("train", *write_texts(tmp_path), *options, *more)
    assert status == 2
    assert "the tokenizer is too large: 300 tokens" in err
    assert "--vocab-size" in err
    assert not [*(tmp_path / "run").glob("model*")]
    monkeypatch.setattr(tokenizers, "LARGEST", size)
    Tokenizer.train(ENGLISH + GERMAN, 300).save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json").vocab_size == 300
    monkeypatch.setattr(tokenizers, "LARGEST", size - 1)
    with pytest.raises(InputError, match="expected at most"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def corpus_files(folder, pairs, name="train"):
    """A directory as a corpus."""
    folder.mkdir(exist_ok=True)
    for side, ending in enumerate(("en", "de")):
        (folder / f"{name}.{ending}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return folder


def parts(folder, store):
    """The pairs to train on and those put aside of a corpus in a directory, with a store or without."""
    train, val = training_data(str(folder), folder / "run", str(folder / "store") if store else None, **EN_DE)
    if store:
        opened = train.open(max_len=64, vocab_size=300)
        lines = read_corpus("train", str(folder), **EN_DE)
        val = opened.held_out
        kept = {fingerprint(*pair) for pair in zip(val.source, val.target)}
        rows = [pair for pair in zip(lines.source, lines.target) if fingerprint(*pair) not in kept]
        assert [fingerprint(*pair) for pair in rows] == opened.fingerprints.tolist()
        assert len(opened) == len(rows)
        return rows, [*zip(val.source, val.target)]
    return [*zip(train.source, train.target)], [*zip(val.source, val.target)]


EN_DE = {"source": "en", "target": "de"}
ROWS = {
    "shuffled copies": random.Random(0).sample([(f"a {n % 40}", f"ein {n % 40}") for n in range(400)], 400),
    "copies in a row": [(f"a {n // 4}", f"ein {n // 4}") for n in range(400)],
    "other capitals": [([f"A Dog {n // 2}", f"a dog  {n // 2} "][n % 2], f"ein {n // 2}") for n in range(400)],
    "other forms": [(unicodedata.normalize(["NFC", "NFD"][n % 2], f"é {n // 2}"), f"ein {n // 2}") for n in range(400)],
    "several translations": [(f"a {n // 5}", f"ein {n}") for n in range(400)],
    "five sentences": [(f"a {n % 5}", f"ein {n % 5}") for n in range(400)],
    "one that half of all are": [(f"a {n * (n % 2)}", f"ein {n}") for n in range(400)],
    "blank ones": [(f"a {n}" * (n % 2), f"ein {n}") for n in range(400)],
}


@pytest.mark.parametrize("kind", ROWS)
def test_copies_stay_on_one_side_with_a_store_and_without(kind, tmp_path):
    train, val = parts(corpus_files(tmp_path, ROWS[kind]), store=False)
    assert 15 <= len(val) <= 20 or (kind == "five sentences" and len(val) == 80)
    assert len(train) + len(val) == 400
    assert not {fingerprint(source) for source, _ in train} & {fingerprint(source) for source, _ in val}
    if kind != "blank ones":  # the store skips them
        assert tuple(map(sorted, parts(tmp_path, store=True))) == (sorted(train), sorted(val))


@pytest.mark.parametrize("turn", [2, 21])
def test_data_in_turns_are_put_aside_from_every_turn(turn, tmp_path):
    rows = [(f"kind {n % turn} number {n}", f"Art {n % turn} Nummer {n}") for n in range(20 * max(turn, 100))]
    train, val = parts(corpus_files(tmp_path, rows), store=False)
    kinds = [{source.split()[1] for source, _ in side} for side in (train, val)]
    assert len(kinds[0]) == turn
    assert len(kinds[1]) > 0.5 * turn
    assert sorted(parts(corpus_files(tmp_path, rows[::-1]), store=False)[1]) == sorted(val)  # in whatever order


def test_what_repeats_and_what_was_trained_on_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(recipes.PRESETS, "tiny", MICRO)
    monkeypatch.chdir(tmp_path)
    pairs = [*zip(ENGLISH, GERMAN)]
    corpus_files(tmp_path / "c", pairs + [(f" {a.upper()}", b) for a, b in pairs[:3]])
    corpus_files(tmp_path / "c", [*pairs[:4], ("a new dog", "ein neuer Hund")], "val")
    corpus_files(tmp_path / "c", [("a cow", "eine Kuh"), *pairs[5:7]], "test")
    options = ["train", "--corpus", "c", "--preset", "tiny", "--steps", 1, "--out"]
    for out, more in (("list", []), ("store", ["--store", "s"])):
        status, _, err = run(*options, out, *more)
        assert status == 0
        assert "warning: 4 of 5 pairs for validation are trained on, too" in err
        assert "3 of 43 pairs to train on repeat an earlier one\n" in err
        scored = ["evaluate", "--beam", 1, "--model", out, "--corpus", "c", "--split"]
        assert "warning: 2 of 3 pairs are among those that the model was trained on" in run(*scored, "test")[2]
    assert (tmp_path / "list" / "trained-on.bin").read_bytes() == (tmp_path / "store" / "trained-on.bin").read_bytes()
    corpus_files(tmp_path / "d", [("a cow", "eine Kuh")] * 2 + [(f"a cow {n}", f"eine Kuh {n}") for n in range(9)])
    corpus_files(tmp_path / "d", [("two cows", "zwei Kühe")], "val")
    status, _, err = run("train", "--corpus", "d", "--steps", 1, "--start-from", "list", "--out", "more")
    assert status == 0
    assert "for validation are trained on" not in err
    scored[4] = "more"
    assert "3 of 3 pairs are among those" in run(*scored, "test")[2]  # also what the first run was trained on
    corpus_files(tmp_path / "c", [("a new cow", "eine neue Kuh")], "test")
    assert "trained on" not in run(*scored, "test")[2]
    (tmp_path / "more" / "trained-on.bin").unlink()
    assert "trained on" not in run(*scored, "train")[2]


def test_another_validation_set_is_refused_on_resuming(tmp_path, monkeypatch):
    monkeypatch.setitem(recipes.PRESETS, "tiny", MICRO)
    monkeypatch.chdir(tmp_path)
    corpus_files(tmp_path / "c", [*zip(ENGLISH, GERMAN)])
    options = ["train", "--corpus", "c", "--preset", "tiny", "--resume", "--out", "run", "--steps"]
    for steps, german, expected in ((1, "ein neuer Hund", 0), (2, "ein neues Tier", 2), (2, "ein neuer Hund", 0)):
        before = files_below(tmp_path / "run")
        corpus_files(tmp_path / "c", [("a new dog", german)], "val")
        status, _, err = run(*options, steps)
        assert status == expected, err
        if status:
            assert "trained with another set of pairs for validation: use the same" in err
            assert files_below(tmp_path / "run") == before
