"""The command line: what it answers, and one line with exit status 2 for every mistake that is not its own."""

import gzip
import json
import re
import shlex
import subprocess
import sys
import unicodedata
import warnings
from collections import Counter
from copy import deepcopy
from importlib import metadata
from pathlib import Path

import pytest
import torch
from small import ENGLISH, ENVIRONMENT, GERMAN, MICRO, files_below, nonsense, recorded_training, refused, write_texts
from small import call as run

import transformer_lib
from transformer_lib import __main__ as command_line
from transformer_lib import recipes, translation
from transformer_lib.checks import Finding, Report
from transformer_lib.data import ParallelCorpus, Tokenizer, toy_corpus
from transformer_lib.decoding import Hypothesis
from transformer_lib.engine import EngineSearch, load
from transformer_lib.files import InputError, folder_lock
from transformer_lib.scores import evaluate_bleu
from transformer_lib.translation import Translator


@pytest.fixture(autouse=True)
def _small(monkeypatch, tmp_path):
    wider = deepcopy(MICRO)
    wider["model"]["d_ff"] = 24
    for name, preset in {"small": MICRO, "tiny": MICRO, "base": wider}.items():
        monkeypatch.setitem(recipes.PRESETS, name, preset)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # as outside of the tests; `main` decides how they look
        warnings.filterwarnings("ignore", ".* were cut off;")  # nonsense is
        yield


@pytest.fixture
def fails(tmp_path):
    """Run a command that must fail: status 2, no output, one line with these words, no file made or changed."""

    def fails(*arguments, words=(), stdin=None):
        before = files_below(tmp_path)
        status, out, err = run(*arguments, stdin=stdin)
        assert (status, out) == (2, "")
        assert err.startswith("error: ")
        assert len(err.splitlines()) == 1, err
        assert err.endswith("\n")
        for word in words:
            assert str(word) in err
        assert files_below(tmp_path) == before
        return err

    return fails


def write(path, lines, end="\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


@pytest.fixture
def own(tmp_path):
    return write_texts(tmp_path)


@pytest.fixture
def model(tmp_path):
    nonsense(tmp_path / "model", max_len=40)
    return tmp_path / "model"


def test_train_translate_evaluate(own, tmp_path):
    status, out, err = run("train", *own, "--out", "runs/first", "--steps", 3)
    row = json.loads(out)
    assert (status, row["step"], err) == (0, 3, "38 pairs to train on, 2 for validation; skipped 0\n")
    assert {"train_loss", "val_loss"} <= row.keys()
    folder = tmp_path / "runs" / "first"
    names = ["config.json", "log.jsonl", "model.safetensors", "state.safetensors", "tokenizer.json", "trained-on.bin"]
    assert sorted(path.name for path in folder.iterdir()) == names
    status, out, err = run("translate", "--model", folder, "a dog", "the cat")
    assert (status, err) == (0, "")
    assert out.splitlines() == Translator.from_pretrained(folder).translate(["a dog", "the cat"])
    write(tmp_path / "corpus" / "test.de", GERMAN[:4])
    write(tmp_path / "corpus" / "test.en", ENGLISH[:4])
    for data in (own, ["--corpus", "corpus", "--split", "test"]):
        status, out, err = run("evaluate", "--model", folder, *data)
        assert status == 0
        assert re.fullmatch(r"warning: (38 of 40|. of 4) pairs are among those that the model was trained on.*\n", err)
        assert json.loads(out).keys() == {"bleu", "chrf", "ter", "signature", "chrf_signature"}


def test_as_a_program(model):
    """Each line is answered before the next one comes, in whatever pieces. For errors, see closed streams."""
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    translate = [sys.executable, "-m", "transformer_lib", "translate", "--model", model, "--beam", "1"]
    with subprocess.Popen(translate, env=ENVIRONMENT, **streams) as process:
        for line in ("a dog\r\n", "\r\n", "\ufeffthe cat\n", "a Männ\n"):
            for byte in line.encode():
                process.stdin.write(bytes([byte]))
                process.stdin.flush()
            (answer,) = Translator.from_pretrained(model).translate([line.strip()], beam_size=1)
            assert process.stdout.readline().decode() == f"{answer}\n"
        _, err = process.communicate(b"the \xff cat\n")
    *warned, error = err.decode().splitlines()
    assert process.returncode == 2
    assert "from line 4 on, line 2: got the byte 0xff; expected UTF-8" in error
    assert all(line.startswith("warning: 1 of 1 translations were cut off;") for line in warned)


def test_training_starts_from_a_translator(fails, own, model, tmp_path):
    from_it = ["train", *own, "--start-from", model, "--warmup", 3, "--seed", 5]
    assert run(*from_it, "--out", "near", "--steps", 1, "--learning-rate", 1e-9)[0] == 0
    assert (tmp_path / "near" / "tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()
    first, near = (Translator.from_pretrained(folder).model for folder in (model, tmp_path / "near"))
    assert near.config == first.config
    torch.testing.assert_close(near.state_dict(), first.state_dict(), rtol=0, atol=1e-8)  # Adam moves each by the rate
    for out, steps in (("whole", 4), ("parts", 2), ("parts", 4)):
        assert run(*from_it, "--out", out, "--steps", steps, "--resume")[0] == 0
    whole, in_parts = ((tmp_path / out / "model.safetensors").read_bytes() for out in ("whole", "parts"))
    assert whole == in_parts
    for option in (("--dropout", 0.2), ("--vocab-size", 290)):
        fails(*from_it, *option, "--out", "new", words=(option[0], "--start-from"))


def test_an_existing_run_is_not_overwritten(fails, own, tmp_path):
    with folder_lock("run"):  # as one has it that is still at work
        fails("train", *own, "--out", "run", "--steps", 1, words=["another process is writing into run: "])
    said = run("train", *own, "--out", "run", "--steps", 1)[2]
    assert "warning: this was step 1, and the learning rate was still rising, up to step 2" in said
    fails("train", *own, "--out", "run", "--steps", 1, words=["run already holds a run", "resume it"])
    wider = ["--preset", "base", "--resume"]
    fails("train", *own, "--out", "run", "--steps", 2, *wider, words=["d_ff = 16, not 24", "take the preset"])
    (tmp_path / "run" / "state.safetensors").unlink()
    fails("train", *own, "--out", "run", "--steps", 1, words=["run already holds a run"])
    assert "resume it" not in fails("train", *own, "--out", "run", "--steps", 1, "--resume")  # it was given


def test_a_run_that_began_while_another_read_its_data_stays(own, tmp_path, monkeypatch):
    encode = recipes.encode_pairs

    def meanwhile(*arguments, **options):
        write(tmp_path / "run" / "state.safetensors", ["another run's"])
        return encode(*arguments, **options)

    monkeypatch.setattr(recipes, "encode_pairs", meanwhile)
    for options, words in ([], "run already holds a run: resume it"), (["--resume"], "another run began in run"):
        status, out, err = run("train", *own, "--out", "run", "--steps", 1, *options)
        assert (status, out, err.count("\n"), err.startswith(f"error: {words}")) == (2, "", 1, True), err
        assert files_below(tmp_path / "run") == {tmp_path / "run" / "state.safetensors": b"another run's\n"}
        (tmp_path / "run" / "state.safetensors").unlink()


@pytest.mark.parametrize(("count", "source", "target", "counted"), [
    (40, ["", "one", "  ", "long " * 200, "short"], ["leer", "", "x", "kurz", "lang " * 200], (38, 2, 5)),
    (19, [""], [""], (18, 1, 1)), (19, ["long " * 200], ["kurz"], (18, 1, 1)),  # a blank one is never put aside
])  # fmt: skip
def test_empty_and_long_pairs_are_skipped_and_counted(tmp_path, count, source, target, counted):
    write(tmp_path / "a", [*ENGLISH[:count], *source], end="\r\n")
    write(tmp_path / "b", [*GERMAN[:count], *target], end="\r\n")
    status, out, err = run("train", "--source", "a", "--target", "b", "--out", "run", "--steps", 2)
    train, val, skipped = counted
    why = "blank on a side, or longer than 128 tokens"
    assert err == f"{train} pairs to train on, {val} for validation; skipped {skipped} ({why})\n"
    assert (status, "val_loss" in json.loads(out)) == (0, val > 0)


@pytest.mark.parametrize(("count", "aside"), [(19, 0), (20, 1), (39, 1), (10_020, 500)])
def test_one_pair_in_twenty_is_put_aside_and_500_at_most(tmp_path, monkeypatch, count, aside):
    seen = recorded_training(monkeypatch)
    files = [write(tmp_path / name, [f"{name} {n}" for n in range(count)]) for name in ("a", "b")]
    assert run("train", "--source", files[0], "--target", files[1], "--out", "run", "--steps", 1)[0] == 0
    tokenizer = Tokenizer.load("run/tokenizer.json")
    train, val = ([tokenizer.decode(pair[0]) for pair in seen[name]] for name in ("pairs", "val_pairs"))
    assert (len(train), len(val)) == (count - aside, aside)
    assert {*train, *val} == {f"a {n}" for n in range(count)}
    tenths = Counter(10 * int(text[2:]) // count for text in val)
    assert aside < 500 or all(30 <= tenths[n] <= 71 for n in range(10)), tenths


def test_a_directory_as_corpus(fails, monkeypatch, tmp_path):
    seen = recorded_training(monkeypatch)
    train = ["train", "--corpus", "corpus", "--steps", 1, "--out"]
    for split, count in (("train", 40), ("val", 3)):
        write(tmp_path / "corpus" / f"{split}.en", ENGLISH[:count])
        write(tmp_path / "corpus" / f"{split}.de", GERMAN[:count])
    for direction, texts in (["en", "de"], (ENGLISH, GERMAN)), (["de", "en"], (GERMAN, ENGLISH)):
        assert run(*train, direction[0], "--source", direction[0], "--target", direction[1])[0] == 0
        assert (len(seen["pairs"]), len(seen["val_pairs"])) == (40, 3)
        read = Tokenizer.load(f"{direction[0]}/tokenizer.json").decode
        assert [(read(source), read(target)) for source, target in seen["val_pairs"]] == [*zip(*texts)][:3]
    (tmp_path / "corpus" / "val.de").unlink()
    fails(*train, "other", words=["val.de"])
    (tmp_path / "corpus" / "val.en").unlink()
    assert run(*train, "third")[0] == 0
    assert (len(seen["pairs"]), len(seen["val_pairs"])) == (38, 2)
    fails(*train, "other", "--target", "fr", words=["train.fr"])


def test_the_toy_corpus(monkeypatch):
    seen = recorded_training(monkeypatch)
    monkeypatch.setattr(recipes, "toy_corpus", lambda split: toy_corpus(split, size={"train": 50, "val": 7}[split]))
    for options, minutes, seed in ((["--minutes", 2.5, "--seed", 9], 2.5, 9), ([], 30.0, 0)):
        assert run("train", "--corpus", "toy", "--out", f"run{seed}", "--device", "cpu", *options)[0] == 0
        assert (seen["config"].minutes, seen["config"].seed, seen["config"].steps) == (minutes, seed, None)
    assert (len(seen["pairs"]), len(seen["val_pairs"]), seen["device"]) == (50, 7, "cpu")


@pytest.mark.parametrize(("text", "count"), [
    (b"", 0), (b"\n", 1), (b"a dog", 1), (b"a dog\r\n\r\n  \r\nthe cat\r\n", 4),
    ("a\u2028dog\x0b\x1c runs\n\n".encode(), 2), (b"\xef\xbb\xbfa dog\n", 1),
])  # fmt: skip
def test_a_line_in_a_line_out(model, text, count):
    status, out, err = run("translate", "--model", model, stdin=text)
    lines = text.decode("utf-8-sig").replace("\r", "").split("\n")[:count]
    said = "".join(f"{answer}\n" for answer in Translator.from_pretrained(model).translate(lines))
    assert (status, out, err) == (0, said, "")


def test_long_sentences_are_cut_with_one_warning(model, monkeypatch):
    monkeypatch.setattr(translation, "beam_search", lambda model, source, **_: [[Hypothesis([70], 0.0)]] * len(source))
    lines = ["a dog", "q" * 50, ""] * 700 + ["q" * 99] * 3
    status, out, err = run("translate", "--model", model, stdin="".join(f"{line}\n" for line in lines).encode())
    assert (status, out.count("\n")) == (0, len(lines))
    assert err.startswith("warning: ")
    assert err.count("\n") == 1, err
    assert "40 tokens" in err


def test_an_exported_model_translates_and_scores(fails, own, model, tmp_path):
    pytest.importorskip("ctranslate2")
    command = ["export", "--model", model, "--to", "ctranslate2", "--quantization", "int8", "--out"]
    assert run(*command, "fast") == (0, "", "")
    answers = load("fast").translate(["a dog", "", "the cat"])
    assert run("translate", "--model", "fast", "a dog", "", "the cat") == (0, "\n".join(answers) + "\n", "")
    assert run("evaluate", "--model", "fast", *own)[0] == 0
    for out in ("fast", model):
        fails(*command, out, words=[out, "already holds files"])


def test_without_the_engine_one_line_says_what_to_install(fails, model, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    fails("export", "--model", model, "--to", "ctranslate2", "--out", "new", words=["pip install", "ctranslate2"])
    refused(["pip install ", "ctranslate2"], EngineSearch, model, Tokenizer.load(model / "tokenizer.json"))


def test_multi30k_in_both_directions(monkeypatch):
    seen, asked = recorded_training(monkeypatch), []
    monkeypatch.setattr(recipes, "load_multi30k", lambda *given, **sides: asked.append((given, sides)) or corpus)
    corpus = ParallelCorpus(ENGLISH, GERMAN)
    for options, source, target in (([], "en", "de"), (["--source", "de", "--target", "en"], "de", "en")):
        assert run("train", "--corpus", "multi30k", *options, "--out", source, "--steps", 1)[0] == 0
        assert asked[-2:] == [((split,), {"source": source, "target": target}) for split in ("train", "val")]
        assert (len(seen["pairs"]), len(seen["val_pairs"])) == (40, 40)


KINDS = {unicodedata.category(letter): letter for letter in map(chr, range(0x110000))}  # the last of each category
LETTERS = [
    *(letter for kind, letter in KINDS.items() if kind != "Cs"),
    *"\t\x0b\x1c\x85\xa0\xad\u200b\u202f\u2060\u2028\u3000\ufeff",
]
BLANK = ["", " \t", "\u00a0\u3000", "\u200b", "\u2060\u00ad", "\ufeff\u200d", "\u0301", "\u3164\u2800"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_kind_of_character_goes_through_and_lines_of_invisible_ones_are_blank(tmp_path, monkeypatch, end):
    """Of each Unicode category: read, stored, encoded and answered as it was, but for line ends and NFC."""
    texts = [f"a{letter}b" for letter in LETTERS]
    data = ("\ufeff" + "".join(f"{text}{end}" for text in texts + BLANK)).encode()
    (tmp_path / "text").write_bytes(data)
    seen, whole = recorded_training(monkeypatch), [unicodedata.normalize("NFC", text) for text in texts]
    files = ["--source", "text", "--target", "text"]
    for name, store in (("list", []), ("stored", ["--store", "store"])):
        status, _, err = run("train", *files, "--out", name, "--batch-tokens", 9999, "--steps", 1, *store)
        assert (status, err.count("skipped 8 (")) == (0, 1), err
        read, pairs = Tokenizer.load(f"{name}/tokenizer.json").decode, [*seen["val_pairs"]]
        for batch in seen["pairs"].batches(9999) if store else [zip(*seen["pairs"])]:
            pairs += zip(*(side.tolist() if store else side for side in batch))
        assert {(read(a), read(b)) for a, b in pairs} == {(text, text) for text in whole}
    nonsense(tmp_path / "model")
    monkeypatch.setattr(translation, "beam_search", lambda _, source, **__: [
        [Hypothesis(row[row > 0].tolist()[:-1], 0.0)] for row in source  # the sentence itself
    ])  # fmt: skip
    lines = [re.sub("[\t\x0b\x1c\x85\u2028\u2029]", " ", text) for text in whole]
    answers = "".join(f"{line}\n" for line in lines + [""] * 8)
    assert run("translate", "--model", "model", stdin=data) == (0, answers, "")
    status, _, err = run("evaluate", "--model", "model", *files, "--output", "again")
    assert (status, "warning: source and target are the same" in err) == (0, True)
    assert (tmp_path / "again").read_bytes() == answers.encode()


def test_a_source_that_is_its_target_is_told_and_long_targets_get_room(own, tmp_path):
    """From files and from a store alike; a translator without a ratio, an older one, keeps the rule of before."""
    target = " ".join(GERMAN[:9])
    long = ["--target", write(tmp_path / "long", [target] * 38 + GERMAN[:2])]
    for store in ([], ["--store", "store"]):
        for name, options in (("same", ["--target", own[1]]), ("long", long)):
            status, _, err = run("train", *own[:2], *options, "--out", f"{name}{len(store)}", "--steps", 1, *store)
            told = "warning: source and target are the same in 38 of 38 pairs; expected translations: " in err
            assert (status, told) == (0, name == "same"), err
        folder = tmp_path / f"long{len(store)}"
        config, translator = json.loads((folder / "config.json").read_text()), Translator.from_pretrained(folder)
        fewest = min(len(translator.tokenizer.encode(text)) for text in ENGLISH)
        needed = (len(translator.tokenizer.encode(target)) - 10) / fewest
        assert 2 < needed <= translator.length_ratio == config.pop("length_ratio") < needed + 0.01
        (folder / "config.json").write_text(json.dumps(config))
        assert Translator.from_pretrained(folder).length_ratio == 2


DATA = ("train --out run --steps 1", "evaluate --model model")
ALL = (*DATA, "translate --model model")
BAD = [  # some commands, options that are wrong, words of the line that says so
    (DATA, "", "corpus source target"), (DATA, "--source en --target nothing.txt", "nothing.txt"),
    (DATA, "--source en --target bad.txt", "bad.txt line 7 UTF-8"), (DATA, "--source '' --target ''", "--source empty"),
    (["train --out run --store store", "train --out run"], "--source en --target none.txt", "none.txt is empty line"),
    (["train --out run"], "--corpus multi30k --store store", "store text files of your own"),
    (["train --out run"], "--source blank.txt --target blank.txt", "no usable pair among 3: blank"),
    (["train --out run"], "--source long.txt --target long.txt", "no usable pair among 30: longer"),
    (DATA, "--source utf16.txt --target de", "utf16.txt line 1: NUL UTF-16; expected UTF-8"),
    (DATA, "--source en --target gzip.txt", "gzip.txt compressed (gzip); expected UTF-8: unpack"),
    (ALL[2:], "--output nowhere/new a", "nowhere; expected make"), (ALL[2:], "--output model a", "directory; expected"),
    (ALL[2:], "--max-length 41 a", "41 expected 40"), (ALL[2:], "'- a dog'", "-- sentence dash --help"),
    (["export --to ctranslate2 --out new --model", "train --source en --target de --out new --start-from"], "exported",
     "exported model; expected trained train"),
    (DATA[1:], "--corpus wmt --split test", "wmt toy multi30k"),
    (DATA[1:], "--corpus toy --split tests", "tests test long"), (DATA[1:], "--corpus toy", "--split test_2016_flickr"),
    (DATA[1:], "--corpus multi30k --split val --source fr", "fr de"),
    (ALL, "--device cuda", "--device cuda cpu"), (["translate"], "--model ''", "--model empty"),
    (["train --source en --target de"], "--out bad.txt", "is a file bad.txt"),
    (["train --source en --target de"], "--out bad.txt/deep/run", "cannot write bad.txt/deep/run"),
    (ALL[2:], "'a \udcff'", "model Unicode"),  # half a character: an argument that the system could not decode
    # The system refuses even the question whether there is such a file; a newline in a name makes no second line.
    (["translate"], "--model '" + "x\n" * 200 + "'", "x x x"),
    (["train --source en --target de"], f"--out {'x' * 300}", "x" * 100),
]  # fmt: skip


@pytest.mark.parametrize(("commands", "options", "words"), BAD)
def test_bad_input_is_one_line(fails, own, model, tmp_path, monkeypatch, commands, options, words):
    (tmp_path / "bad.txt").write_bytes(b"good\n" * 6 + b"gr\xfcn\n" + b"good\n" * 33)
    (tmp_path / "utf16.txt").write_bytes("a dog\n".encode("utf-16-le") * 40)
    (tmp_path / "gzip.txt").write_bytes(gzip.compress(b"a dog\n" * 40))
    write(tmp_path / "exported" / "model.bin", [])
    for name, lines in {"none": [], "blank": ["", " ", "\t"], "long": ["long " * 200] * 30}.items():
        write(tmp_path / f"{name}.txt", lines)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for command in commands:
        fails(*shlex.split(command), *shlex.split(options), words=words.split(), stdin=b"a dog\n")


WRONG = [
    "", "train", "check", "teach", "train --out run --fast", "check m:f --max-len 0", "check m:f --sizes 29 7",
    "check m:f --json ''", "export --model run --to onnx --out new", "translate --model run --beam 1001 a",
    *(f"train --corpus toy --out run {option}" for option in (
        "--steps 0", "--minutes nan", "--minutes inf", "--preset huge", "--seed x", f"--seed {2**63}", "--device tpu")),
]  # fmt: skip


@pytest.mark.parametrize("command", WRONG)
def test_a_wrong_command_is_one_line_without_the_usage(fails, command):
    assert "--help" in fails(*shlex.split(command))


@pytest.mark.parametrize("script", ["bin/tested-transformer", "Scripts/tested-transformer.exe", "__main__.py"])
def test_help_and_errors_name_the_program_and_nothing_that_a_wheel_lacks(script, monkeypatch):
    monkeypatch.setattr(sys, "argv", [script])
    program = "tested-transformer" if "tested" in script else "python -m transformer_lib"
    for arguments in (["--help"], ["train", "--help"], ["check", "-h"]):
        status, out, err = run(*arguments)
        assert (status, err, ".md" in out) == (0, "", False)
        assert out.startswith(" ".join(["Usage:", program, *arguments[:-1]]))
    assert f"(see {program} check --help)" in run("check", "--steps", "5")[2]


def raising(error):
    def fail(*_, **__):
        raise error

    return fail


def test_an_error_of_the_user_is_one_line_and_ours_is_not_hidden(fails, model, monkeypatch):
    """A traceback, one line behind it, and a status that nobody takes for the answer of `check`, which is 1."""
    monkeypatch.setattr(Translator, "translate", raising(InputError("one\n  two\n\nthree")))
    assert fails("translate", "--model", model, "a", words=[model]).endswith(": one two three\n")
    monkeypatch.setattr(Translator, "translate", raising(ValueError("two\nlines")))
    status, out, err = run("translate", "--model", model, "a")
    assert (status, out) == (2, "")
    assert err.startswith("Traceback (most recent call last):\n")
    assert err.splitlines()[-1].startswith("error: ValueError: two lines")


def test_closed_streams(fails, model, monkeypatch):
    """Standard error closed: nothing of it in the output. The reader of standard output gone: no traceback."""
    program = f"{sys.executable} -m transformer_lib translate"
    common = {"env": ENVIRONMENT, "shell": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "check": False}
    done = subprocess.run(f"{program} --model nothing a 2>&-", **common)
    assert (done.returncode, done.stdout) == (2, b"")
    done = subprocess.run(f"({program} --model {model} --beam 1 a; echo $? >&2) | true", **common)
    assert done.stderr.splitlines()[-1:] == [b"0"]
    assert b"Traceback" not in done.stderr
    monkeypatch.setattr(sys, "stdin", None)
    fails("translate", "--model", model, words=["standard input is closed"])


def test_too_little_memory(fails, model, monkeypatch):
    for error in (MemoryError(), torch.OutOfMemoryError("CUDA"), RuntimeError("[enforce] can't allocate memory: 9")):
        monkeypatch.setattr(Translator, "translate", raising(error))
        fails("translate", "--model", model, "a", words=["not enough memory", "--beam"])


def test_ctrl_c_before_the_first_step(own, monkeypatch):
    monkeypatch.setattr(recipes, "encode_pairs", raising(KeyboardInterrupt()))
    assert run("train", *own, "--out", "run", "--steps", 1) == (130, "", "stopped by Ctrl-C\n")


MINE = """
from torch import nn
from transformer_lib import Transformer, TransformerConfig
from transformer_lib.checks import Adapted

print("a module that talks")

def good(source, target, pad):
    sizes = dict(d_model=16, num_heads=2, d_ff=32, num_encoder_layers=1, num_decoder_layers=1, max_len=20)
    return Transformer(TransformerConfig(source, target, pad, **sizes))

class Bad(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        self.model = good(*sizes)

    def forward(self, source, target):
        return self.model(source, target).softmax(dim=-1)

def flat(*sizes):
    return Adapted(good(*sizes), lambda model, *tokens: model(*tokens).flatten(0, 1))

def raises(source, target, pad):
    raise RuntimeError("first line\\nsecond line")



class Tuple(Bad):
    def forward(self, source, target):
        return super().forward(source, target), None

class OneSided(Bad):
    def forward(self, tokens):
        return super().forward(tokens, tokens)

model, not_a_function = Bad(29, 29, 3), 3
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    name = f"mine_{tmp_path.name}"
    write(tmp_path / f"{name}.py", MINE.splitlines())
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield name
    sys.modules.pop(name, None)


def test_a_dash_is_the_standard_output_of_every_command(tmp_path):
    """It then has nothing else; what else there is to say is on the error stream. Of `check`, see below."""
    nonsense(tmp_path / "model")
    model = ["--model", "model", "--beam", 1]
    said = run("translate", *model, "a dog runs", "a cat")[1]
    assert run("translate", *model, "--output", "-", "a dog runs", "a cat")[:2] == (0, said)
    write(tmp_path / "en", ["a dog runs", "a cat"])
    evaluate = ["evaluate", *model, "--source", "en", "--target", "en"]
    scores = run(*evaluate)[1]
    status, out, err = run(*evaluate, "--output", "-")
    assert (status, out, err.splitlines(keepends=True)[-1]) == (0, said, scores)
    write(tmp_path / "class" / "anna.py", ["def softmax(scores):", "    pass"])
    for command, option in ((["grade", "class/anna.py"], "--json"), (["grade", "class"], "--csv")):
        status, told, _ = run(*command, option, "table")
        assert run(*command, option, "-") == (status, (tmp_path / "table").read_text("utf-8"), told)
    assert not (tmp_path / "-").exists()


def test_check_tells_the_faults_and_writes_files(mine, tmp_path, monkeypatch):
    """With status 1. With JSON on the output, there is nothing else, and the words are on the error stream."""
    command = ["check", f"{mine}:Bad", "--no-training", "--pad-id", 3]
    examine, reports = command_line.check_transformer, []

    def once(*arguments, **options):
        reports[:] = reports or [examine(*arguments, **options)]
        return reports[0]

    monkeypatch.setattr(command_line, "check_transformer", once)
    status, out, err = run(*command, "--json", "-")
    found = json.loads(out)
    assert (status, found["holds"]) == (1, False)
    passed = {finding["name"]: finding["verdict"] for finding in found["findings"]}
    assert (passed.pop("logits not probabilities"), passed.pop("too long raises")) == ("fail", "not applicable")
    assert set(passed.values()) == {"pass"}
    told = err.removeprefix("a module that talks\n")
    assert run(*command, "--json", tmp_path / "found.json") == (1, told, "a module that talks\n")
    assert json.loads((tmp_path / "found.json").read_text("utf-8")) == found
    first, *rest = told.splitlines()
    assert first.startswith("fail           logits not probabilities: ")
    assert rest[0].endswith("(gallery: softmax)")
    assert len(rest) == 3


def test_check_hands_on_what_is_asked_for(mine, monkeypatch):
    asked, report = {}, Report((Finding("padding", "pass", "hidden", pad_id=0),))
    monkeypatch.setattr(command_line, "check_transformer", lambda _, **options: asked.update(options) or report)
    said = run("check", f"{mine}:good")[1]
    assert said.startswith("if the padding is meant to be 0, run again with --pad-id 0\n1 pass")
    assert run("check", f"{mine}:good", "--sizes", 30, 41, "--seed", 7, "--pad-id", 5, "--max-len", 20)[0] == 0
    wanted = {"source_vocab_size": 30, "target_vocab_size": 41, "seed": 7, "pad_id": 5, "max_len": 20, "training": True}
    assert wanted.items() <= asked.items()


def test_check_shows_where_the_factory_raised(mine):
    status, out, err = run("check", f"{mine}:raises", "--no-training")
    *traceback, error = err.splitlines()
    assert (status, out) == (2, "")
    assert "Traceback (most recent call last):" in traceback
    assert f"{mine}.py" in err
    assert "first line second line" in error


@pytest.mark.parametrize(("factory", "words"), [
    ("{}:flat", ["cannot run", "logits must be", "(18, 29)"]), ("{}:not_a_function", ["cannot run", "not callable"]),
    ("{}:model", ["got a model: write def build(*sizes): return Bad(…)"]),
    ("{}:Tuple", ["got tuple", "Adapted(model, lambda model, *x: model(*x)[0])"]),
    ("{}:OneSided", ["3 were given", "try --family decoder"]),
    ("{}:good --family decoder", ["missing 1", "try --family encoder-decoder"]),
    ("{}:good --template decoder", ["expected MODULE:FACTORY, such as mine:build, or --template"]),
    ("{}:god", ["cannot import", "god"]), ("{}", ["module:factory"]),
    ("no_such_module:good", ["cannot import", "no_such_module"]),
])  # fmt: skip
def test_check_that_cannot_run_is_one_line(mine, factory, words):
    status, out, err = run("check", *factory.format(mine).split(), "--no-training")
    assert (status, out) == (2, "")
    (line,) = err.removeprefix("a module that talks\n").splitlines()
    assert line.startswith("error: ")
    assert all(word in line for word in words), line


def test_version_and_env_print_versions_device_and_threads():
    assert run("--version") == (0, f"tested-transformer, version {transformer_lib.__version__}\n", "")
    said = dict(line.split(maxsplit=1) for line in run("env")[1].splitlines())
    assert (said["tested-transformer"], said["torch"]) == (transformer_lib.__version__, metadata.version("torch"))
    assert said["threads"] == str(torch.get_num_threads())


def test_options_of_the_search(own, model, tmp_path):
    translator, source = Translator.from_pretrained(model), ["a dog", "the cat"]
    assert run("translate", "--model", model, "--output", "out.de", "--beam", 2, *source) == (0, "", "")
    assert (tmp_path / "out.de").read_text("utf-8").splitlines() == translator.translate(source, beam_size=2)
    asked = ["--n-best", 3, "--length-penalty", 0, source[0], "", source[1]]
    status, out, _ = run("translate", "--model", model, *asked)
    found = [(int(n), float(score), text) for n, score, text in (row.split("\t") for row in out.splitlines())]
    best = [(n, pair) for n, text in zip((1, 3), source) for pair in translator.n_best(text, length_penalty=0)[:3]]
    assert best[0][1][0] != translator.n_best(source[0])[0][0]
    assert (status, found) == (0, [(n, pytest.approx(score, rel=0, abs=5e-5), text) for n, (score, text) in best])
    status, out, _ = run("evaluate", "--model", model, *own, "--output", "said.de", "--beam", 1)
    answers = translator.translate(ENGLISH, beam_size=1)
    assert (tmp_path / "said.de").read_text("utf-8") == "".join(f"{answer}\n" for answer in answers)
    assert json.loads(out) == evaluate_bleu(answers, GERMAN)
    status, out, _ = run("evaluate", "--model", model, *own, "--protocol", "papers", "--beam", 1)
    assert json.loads(out) == evaluate_bleu(answers, GERMAN, papers="de") != evaluate_bleu(answers, GERMAN)


def test_values_of_a_preset_may_be_set(fails, own, monkeypatch):
    seen = recorded_training(monkeypatch)
    assert run("train", *own, "--out", "plain", "--steps", 1)[0] == 0
    config = seen["config"]
    assert (config.evaluate_every, config.average, config.patience, config.minutes) == (500, 1, None, None)
    options = ("--dropout", 0.25, "--batch-tokens", 77, "--learning-rate", 0.01, "--accumulate", 5, "--cooldown", 4)
    options += ("--evaluate-every", 7, "--average", 3, "--patience", 2, "--vocab-size", 290)
    assert run("train", *own, "--out", "run", "--steps", 6, *options)[0] == 0
    config = seen["config"]
    assert (seen["model"].config.dropout, config.batch_tokens, config.peak_lr, config.accumulate) == (0.25, 77, 0.01, 5)
    assert (config.cooldown_steps, config.evaluate_every, config.average, config.patience) == (4, 7, 3, 2)
    assert Tokenizer.load("run/tokenizer.json").vocab_size <= 290 < Tokenizer.load("plain/tokenizer.json").vocab_size
    fails("train", *own, "--out", "no", "--cooldown", 5, "--steps", 4, words=["--cooldown"])


def test_without_a_terminal_each_validation_is_a_line(own):
    status, _, err = run("train", *own, "--out", "run", "--steps", 4, "--evaluate-every", 2)
    assert status == 0
    rows = [json.loads(row) for row in Path("run/log.jsonl").read_text("utf-8").splitlines()]
    assert [row["step"] for row in rows] == [2, 4]
    for row in rows:
        assert f"step {row['step']}: train_loss {row['train_loss']:.3f}, val_loss {row['val_loss']:.3f}, " in err
