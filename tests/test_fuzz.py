"""Bad input of every kind, made at random: one line that names the file, or a result; never anything else.

Every reader and the command line get arbitrary bytes, damaged copies of good files, JSON of the wrong kind and strange
text. Nothing may escape but a InputError of one line, nothing that existed may change, and nobody may reach for
pickle. A few cases run with the unit tests, thousands with `make test-long`.
"""

import json
import pickle
import resource
import shutil
import struct
import unicodedata
from copy import deepcopy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small import MICRO, call, files_below, write_texts

from transformer_lib import recipes, translation
from transformer_lib.data import Tokenizer, read_lines
from transformer_lib.decoding import beam_search
from transformer_lib.files import InputError

pytestmark = pytest.mark.filterwarnings("always")


def cases(few, many):
    """How many cases to try: a few with the unit tests, many in the long run."""
    return pytest.mark.parametrize("number", [few, pytest.param(many, marks=pytest.mark.long)])


def search(claim, strategy, number):
    """Hold a claim for many cases."""
    settings(max_examples=number, suppress_health_check=list(HealthCheck))(given(strategy)(claim))()


def briefly(model, source, **options):
    """Of the nonsense that an untrained model says, three tokens are enough."""
    return beam_search(model, source, **options | {"max_length": min(3, model.config.max_len)})


@pytest.fixture(autouse=True)
def _no_pickle_no_flood(monkeypatch):
    """Whoever unpickles is noted; who wants 24 GiB gets an error."""
    called = []
    for module, names in ((pickle, ("load", "loads", "Unpickler", "_Unpickler")), (torch, ("load",))):
        for name in names:
            monkeypatch.setattr(module, name, lambda *_, **__: called.append(1))
    monkeypatch.setattr(translation, "beam_search", briefly)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (24 * 2**30, hard))
    monkeypatch.setitem(recipes.PRESETS, "tiny", MICRO)
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert called == []


EMOJI, ARABIC, COMBINING = "👩‍👩‍👧🦘", "كلب\u200f ينام", "e\u0301\u0300\u0327" * 5
odd_text = st.lists(
    st.one_of(st.sampled_from([EMOJI, ARABIC, COMBINING, "\0", "\u2028", "\u2029", "\x85", "\ufeff", "\r", "\x0c", " ",
                         "a dog", "<eos>", "<pad>", "ß", "\U0010ffff", "\ufffd", "dog " * 30, "q" * 200]),
        st.text(max_size=8)),
    max_size=4,
).map("".join)  # fmt: skip
odd_bytes = st.lists(
    st.one_of(st.binary(max_size=12), odd_text.map(str.encode),
        st.sampled_from([b"\n", b"\n", b"\r", b"\r\n", b"a", "\u2028".encode(), b"\xef\xbb\xbf"]),
        st.sampled_from([b"\xed\xa0\x80", b"\xff\xfe", b"\xc0\x80", b"\xf4\x90\x80\x80"])),
    max_size=6,
).map(b"".join)  # fmt: skip


@st.composite
def damaged(draw, data):
    """A good file's bytes, cut, flipped, overwritten, swapped or repeated; or something else altogether."""
    at = draw(st.integers(0, max(0, len(data) - 1)))
    at = min(at, draw(st.sampled_from([len(data), 8, 200])))  # often near the beginning
    some = draw(st.binary(min_size=1, max_size=16))
    flipped = bytes([data[at] ^ 1 << draw(st.integers(0, 7))])
    return draw(st.sampled_from([
        data[:at], data[:at] + flipped + data[at + 1 :], data[:at] + some + data[at + len(some) :],
        data[:at] + some + data[at:], data[:at] + data[at + len(some) :], data[:at] + data, some,
    ]))  # fmt: skip


HUGE, DEEP, DEEPER = "@huge@", "@deep@", "@deeper@"
odd_values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), odd_text,
    st.sampled_from([
        0, -1, 1, 2, 10**6, 2**31, 2**40, 2**63, 2**64, 10**30, -(10**30), 1e308, -0.0, 0.5, float("nan"), float("inf"),
        HUGE, DEEP, DEEPER, "", "x" * 3000, [], {}, [[]], {"a": 1}, [1, 2], "8", "float32", "F32", "I64", "F64"]),
)  # fmt: skip


@st.composite
def mutated(draw, tree):
    """A JSON value with one of its parts replaced, removed or added."""
    value = deepcopy(draw(odd_values))
    if not (isinstance(tree, dict | list) and tree):
        return value
    tree, key = deepcopy(tree), draw(st.sampled_from([*tree] if isinstance(tree, dict) else range(len(tree))))
    kind = draw(st.sampled_from(["within", "within", "replace", "remove", "add"]))
    if kind == "within":
        tree[key] = draw(mutated(tree[key]))
    elif kind == "replace":
        tree[key] = value
    elif kind == "remove":
        del tree[key]
    elif isinstance(tree, dict):
        tree[draw(odd_text)] = value
    else:
        tree.insert(key, value)
    return tree


def dump(tree):
    """JSON, of a kind that json.dumps would not write by itself."""
    text = json.dumps(tree)
    for mark, meant in ((HUGE, "9" * 5000), (DEEP, "[" * 900 + "]" * 900), (DEEPER, "[" * 99_999 + "]" * 99_999)):
        text = text.replace(json.dumps(mark), meant)
    return text.encode()


def broken_json(data):
    return st.one_of(damaged(data), mutated(json.loads(data)).map(dump))


@st.composite
def broken_safetensors(draw, data):
    """A damaged file, or a good one but for its header, for the text in its metadata, or for its numbers."""
    kind = draw(st.sampled_from(["bytes", "header", "metadata", "numbers"]))
    if kind == "bytes":
        return draw(damaged(data))
    (length,) = struct.unpack("<Q", data[:8])
    header, numbers = json.loads(data[8 : 8 + length]), data[8 + length :]
    if kind == "header":
        header = draw(mutated(header))
    elif kind == "numbers":
        filled = draw(damaged(numbers)).ljust(len(numbers), draw(st.sampled_from([b"\0", b"\xff", b"\x7f"])))
        numbers = filled[: len(numbers)]
    else:
        ((entry, text),) = header["__metadata__"].items()
        header["__metadata__"] = {entry: draw(broken_json(text.encode())).decode("latin-1")}
    text = dump(header)
    return struct.pack("<Q", len(text)) + text + numbers


def refused(function, *arguments, names=()):
    """The result of a call, or None where it raised the one error that it may raise, with these names in it."""
    try:
        return function(*arguments)
    except InputError as error:
        message = " ".join(str(error).split())
        assert len(message) < 2000, message
        assert all(str(name) in message for name in names), message
        return None


def command(arguments, *, names=(), folder):
    """Run a command: success, or status 2 and one line with these names, and nothing changed below the folder."""
    before = files_below(folder)
    status, out, err = call(*arguments)
    assert status in (0, 2), (status, out, err)
    if status == 2:
        lines = [line for line in err.splitlines() if not line.startswith(("warning: ", "38 pairs", "step "))]
        assert len(lines) == 1, err
        assert lines[0].startswith("error: "), err
        assert len(lines[0]) < 2000, err
        assert out == ""
        assert all(str(name) in lines[0] for name in names), err
        assert files_below(folder) == before
    return status, out, err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with two texts and a run of two steps."""
    folder = tmp_path_factory.mktemp("fuzz")
    write_texts(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(recipes.PRESETS, "tiny", MICRO)
        status, _, err = call(*training(folder, 2))
    assert status == 0, err
    return folder


def training(folder, steps, out="run"):
    files = ["--source", folder / "en", "--target", folder / "de", "--preset", "tiny", "--device", "cpu"]
    return ["train", *files, "--out", folder / out, "--steps", steps]


@cases(100, 5000)
def test_lines(number):
    def claim(data):
        lines = refused(read_lines, "some.txt", data, names=["some.txt, line ", "UTF-8"])
        if lines is None:
            assert b"\0" in data or data.decode(errors="ignore").encode() != data
        else:
            whole = data.decode().removeprefix("\ufeff")
            end = "\n" if "\n" in whole else "\r"
            pieces = whole.removesuffix(end).split(end)
            assert lines == [line.removesuffix("\r") for line in pieces if whole]

    search(claim, odd_bytes, number)


@cases(30, 2000)
def test_tokenizer_files(number, trained, tmp_path):
    path = tmp_path / "tokenizer.json"

    def claim(data):
        path.write_bytes(data)
        tokenizer = refused(Tokenizer.load, path, names=[path])
        if tokenizer is not None:
            for text in ("a dog", EMOJI, COMBINING, "<eos>", "\0\ufffd", ""):
                ids = tokenizer.encode(text)
                assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)
                assert all(3 <= number < tokenizer.vocab_size for number in ids[:-1])
            tokenizer.decode(range(tokenizer.vocab_size))
        assert path.read_bytes() == data

    good = (trained / "run" / "tokenizer.json").read_bytes()
    search(claim, broken_json(good), number)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@cases(25, 1000)
def test_model_directories(number, trained, tmp_path, name):
    folder = tmp_path / "run"
    shutil.copytree(trained / "run", folder)
    path = folder / name

    def claim(data):
        path.write_bytes(data)
        command(["translate", "--model", folder, "--beam", 2, "a dog", ""], names=[folder], folder=folder)

    broken = broken_safetensors if name.endswith("safetensors") else broken_json
    search(claim, broken(path.read_bytes()), number)


@pytest.mark.parametrize("name", ["config.json", "state.safetensors", "log.jsonl"])
@cases(12, 500)
def test_going_on_with_a_damaged_run(number, trained, tmp_path, name):
    path = tmp_path / "run" / name
    for file in ("en", "de"):
        shutil.copy(trained / file, tmp_path / file)

    def claim(data):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        shutil.copytree(trained / "run", tmp_path / "run")
        path.write_bytes(data)
        _, _, err = command([*training(tmp_path, 3), "--resume"], folder=tmp_path)
        diverged = name == "state.safetensors" and " at step 3 (" in err  # a number may be another, and still one
        assert "error: " not in err or str(tmp_path / "run") in err or diverged

    good = (trained / "run" / name).read_bytes()
    broken = broken_safetensors if name.endswith("safetensors") else broken_json
    search(claim, st.one_of(broken(good), damaged(good)) if name != "log.jsonl" else broken_log(good), number)


def broken_log(data):
    row = json.loads(data.splitlines()[0])
    lines = st.lists(st.one_of(mutated(row).map(dump), st.just(data), odd_bytes), max_size=3)
    return st.one_of(damaged(data), lines.map(b"\n".join))


@pytest.mark.parametrize("field", ["d_ff", "num_encoder_layers", "num_decoder_layers", "max_len", ""])
def test_numbers_that_are_too_large(field, trained, tmp_path):
    """Page A shows d_model, and weights that are no numbers."""
    folder = shutil.copytree(trained / "run", tmp_path / "run")
    path = folder / ("config.json" if field else "model.safetensors")
    good = path.read_bytes()
    too_large = [good[:-8000] + struct.pack("<f", 3e38) * 2000]
    if field:
        too_large = [dump(json.loads(good) | {field: number}) for number in (10**7, 10**30)]
    for data in too_large:
        path.write_bytes(data)
        assert command(["translate", "--model", folder, "a"], names=[folder], folder=folder)[0] == 2
