"""The notebook for a GPU: from an empty folder to a score, and what it does when something is refused."""

import errno
import gzip
import hashlib
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import types
import venv
from functools import partial
from pathlib import Path

import execute
import nbformat
import notebooks
import pytest
import torch
from nbclient import NotebookClient
from small import ENGLISH, GERMAN, MICRO, ROOT

from transformer_lib import notebook
from transformer_lib.data import ParallelCorpus, Tokenizer, corpora, toy_corpus
from transformer_lib.exercises import own_file
from transformer_lib.model import TransformerConfig, evaluation
from transformer_lib.own_model import architecture
from transformer_lib.recipes import train_translator
from transformer_lib.translation import KEPT, Translator

PAIRS = ParallelCorpus(ENGLISH, GERMAN)


def train(run, steps, **options):
    preset = MICRO | {"training": MICRO["training"] | {"steps": steps, "evaluate_every": 2, "average": 2}}
    return train_translator(PAIRS, PAIRS, preset, run, resume=True, **options)


def no_time(log):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in log]


def test_a_run_whose_machine_is_taken_away_goes_on_elsewhere(tmp_path, monkeypatch, capsys):
    """Whatever file the copy stopped at: what was kept is whole, and the run ends as if nothing had happened."""
    whole, kept = train(tmp_path / "undisturbed", 6), tmp_path / "drive"
    copy = shutil.copyfile
    for stopped in ("model.safetensors", "log.jsonl", "state.safetensors"):
        first = tmp_path / f"lost with {stopped}" / "run"
        train(first, 2)
        assert notebook.keep(first, kept)
        train(first, 4)

        def full(source, target, stopped=stopped):
            if Path(source).name == stopped:
                Path(target).write_bytes(b"half")
                raise OSError(errno.ENOSPC, "No space left on device")
            return copy(source, target)

        monkeypatch.setattr(shutil, "copyfile", full)
        capsys.readouterr()
        assert not notebook.keep(first, kept)
        said = f"not kept in {kept / 'run'}: No space left on device; free some space there. The training goes on.\n"
        assert capsys.readouterr().out == said
        monkeypatch.undo()
        second = tmp_path / f"found after {stopped}" / "run"
        notebook.bring_back(second, kept)
        assert not list(second.glob("*.part"))
        assert no_time(train(second, 6)) == no_time(whole)
        shutil.rmtree(kept)


def test_drive_may_be_refused(tmp_path, monkeypatch, capsys):
    def refuse(place):
        raise ValueError("mount failed:\ncredential propagation was unsuccessful")

    def colab(mount):
        google = types.ModuleType("google")
        google.colab = types.SimpleNamespace(drive=types.SimpleNamespace(mount=mount))
        monkeypatch.setitem(sys.modules, "google", google)
        monkeypatch.setitem(sys.modules, "google.colab", google.colab)

    monkeypatch.chdir(tmp_path)
    colab(refuse)
    assert notebook.drive() is None
    assert re.fullmatch(r"no Google Drive \(ValueError: .*unsuccessful\): download the .*\n", capsys.readouterr().out)
    colab(lambda place: Path(place, "MyDrive").mkdir(parents=True))
    assert notebook.drive() == tmp_path / "drive" / "MyDrive" / "translator"


def test_the_model_is_yours_if_its_parts_can_be_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert notebook.find_my_transformer(None, tmp_path / "nowhere") is None
    assert capsys.readouterr().out == "there is no my_transformer.py here: the model is the library's\n"
    mine = own_file.start("drive", solved_to=5)
    assert notebook.find_my_transformer(None, Path("drive")) is None
    assert "is not finished" in capsys.readouterr().out
    mine.write_text(own_file.template(10), encoding="utf-8")
    assert notebook.find_my_transformer(None, Path("drive")) == f"{mine}:build"
    *_, run = notebook.plan(notebook.Sentences("toy", PAIRS, PAIRS, PAIRS), f"{mine}:build")
    assert (run / KEPT).read_text("utf-8") == own_file.template(10)


def test_attention_of_a_file_of_ones_own_is_seen(tmp_path):
    """Source and target have equally many tokens, so that only the padding tells which attention is which."""
    mine = own_file.start(tmp_path, solved_to=10)
    tokenizer = Tokenizer.train(ENGLISH + GERMAN, 300)
    config = TransformerConfig(tokenizer.vocab_size, tokenizer.vocab_size, tokenizer.pad_id)
    translator = Translator(architecture(f"{mine}:build")(config), tokenizer)
    sentence, answer = "a dog runs", "a dog runs"
    translator.n_best = lambda *_, **__: [(0.0, answer)]
    looked = notebook.attended(translator, sentence)
    source = torch.tensor([tokenizer.encode(sentence)])
    n = source.size(1)
    assert looked.weights.shape == (4, 4, n, n)
    own, expected = translator.model.model, []
    space = type(own).forward.__globals__
    for layer in own.decoder_layers:  # by hand: what goes into each attention to the memory
        layer.cross_attention.register_forward_hook(lambda module, given, _: expected.append((module, given)))
    with evaluation(own):
        own(source, torch.cat([torch.tensor([[tokenizer.bos_id]]), source[:, :-1]], dim=1))
        for got, (module, (query, key, *_)) in zip(looked.weights, expected, strict=True):
            q, k = module.query_projection(query), module.key_projection(key)
            q, k = (space["split_heads"](x, module.num_heads) for x in (q, k))
            weights = space["attention"](q, k, k)[1][0]
            torch.testing.assert_close(got, weights, rtol=1e-4, atol=1e-6)
    assert looked.source == looked.target == translator._pieces(source[0].tolist())


def test_the_plan_says_what_there_is_and_how_long_it_takes(monkeypatch, capsys):
    data = notebook.Sentences("multi30k", PAIRS, PAIRS, PAIRS)
    device, preset, _ = notebook.plan(data)
    assert (device, preset["training"]["steps"]) == ("cpu", 240)
    assert capsys.readouterr().out == "cpu: a shortened training, a few minutes\n"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda _: None)  # it would stay for later tests
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Tesla T4")
    device, preset, run = notebook.plan(data)
    assert (device, run, preset["training"]["patience"]) == ("cuda", Path("runs", "multi30k-library"), 10)
    assert capsys.readouterr().out == "Tesla T4: the whole training, about 9 minutes (predicted)\n"


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A web server with files in Multi30k's layout, and what the library has to know of it."""
    folder, sums = tmp_path / "host", {}
    folder.mkdir()
    for split, part in {"train": ("train", 3000), "val": ("val", 60), "test_2016_flickr": ("test", 120)}.items():
        pairs = toy_corpus(part[0], size=part[1])
        for language, lines in (("en", pairs.source), ("de", pairs.target)):
            data = gzip.compress("".join(f"{line}\n" for line in lines).encode())
            (folder / f"{split}.{language}.gz").write_bytes(data)
            sums[split, language] = hashlib.sha256(data).hexdigest()
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", sums
        server.shutdown()


def test_captions_are_uploaded_or_else_those_of_the_toy_corpus(host, tmp_path, monkeypatch, capsys):
    """They are downloaded in the run from nothing."""
    url, sums = host
    (here := tmp_path / "here").mkdir()
    monkeypatch.chdir(here)
    monkeypatch.delenv("TRANSFORMER_LIB_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(corpora, "MULTI30K_SHA256", sums)
    monkeypatch.setattr(corpora, "MULTI30K_URL", f"{url}/gone")
    found = notebook.captions()
    assert (found.name, found.test) == ("toy", toy_corpus("test"))
    said = capsys.readouterr().out
    assert said.startswith(f"Multi30k is missing: cannot download {url}/gone/train.en.gz: HTTP Error 404")
    assert "Upload its files into a folder multi30k beside this notebook" in said
    shutil.copytree(tmp_path / "host", here / "multi30k")
    assert notebook.captions().test == toy_corpus("test", size=120)
    assert capsys.readouterr().out.endswith("3,000 pairs to train on, 60 for validation, 120 for the test\n")


def course(folder):
    """The course as a repository of git."""
    folder.mkdir()
    for name in ("transformer_lib", "tools", "chapters", "book", "records", "pyproject.toml", "README.md", "LICENSE"):
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, folder / name)
    git = ["git", "-C", folder, "-c", "user.name=nobody", "-c", "user.email=nobody@localhost"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "the course"]):
        subprocess.run([*git, *command], check=True)
    return folder


def test_it_runs_from_nothing(host, tmp_path, monkeypatch):
    """In an environment that has a PyTorch and no course, from an empty folder; git takes a folder for the address."""
    monkeypatch.setattr(notebooks.address, "repository", lambda: "https://github.com/You/course")
    plain = notebooks.Page(ROOT / "book" / "17d_recipes.ipynb").notebook()
    url, sums = host
    elsewhere = f"from transformer_lib.data import corpora\ncorpora.MULTI30K_URL = {url!r}\n"
    elsewhere += f"corpora.MULTI30K_SHA256 = {sums!r}\nprint(corpora.__file__)\n"
    elsewhere += 'from transformer_lib.notebook import SHORT\nSHORT |= {"steps": 100, "warmup_steps": 40}'
    plain.cells.insert(1, nbformat.v4.new_code_cell(elsewhere))
    environment, empty = tmp_path / "environment", tmp_path / "empty"
    empty.mkdir()
    venv.create(environment, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    kernel = tmp_path / "jupyter" / "kernels" / "own"
    kernel.mkdir(parents=True)
    start = [str(environment / "bin" / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": start, "display_name": "own", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    own = {
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_VALUE_0": "https://github.com/You/course",
        "GIT_CONFIG_KEY_0": f"url.{course(tmp_path / 'course').as_uri()}.insteadOf",
        "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "XDG_CACHE_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    client = NotebookClient(
        plain, timeout=None, startup_timeout=execute.PATIENCE, iopub_timeout=execute.PATIENCE, kernel_name="own",
        resources={"metadata": {"path": empty}}, coalesce_streams=True,
    )  # fmt: skip
    left_out = "PYTHONPATH", "TRANSFORMER_LIB_DATA"  # so that the captions are downloaded
    client.execute(env={name: value for name, value in os.environ.items() if name not in left_out} | own)
    said = "\n".join(output.get("text", "") for cell in plain.cells for output in cell.get("outputs", []))
    assert str(site / "transformer_lib") in said
    assert "multi30k: 3,000 pairs to train on, 60 for validation, 120 for the test" in said
    assert "100/100" in said
    cased, papers = map(float, re.search(r"yours, 100 sentences +([\d.]+) +([\d.]+)\n", said).groups())
    assert min(cased, papers) > 5
    assert re.search(r"published +41.0\n", said)
    assert "\nmulti30k-library-short.zip is what to keep" in said
    assert [file.name for file in empty.iterdir()] == ["multi30k-library-short.zip"]
