"""Files are whole or not there, weights come back bit for bit, and what goes wrong is said in one line."""

import errno
import os
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from reference import small_config, small_model
from safetensors.torch import load_file, save_file
from small import ENVIRONMENT, refused
from torch import nn

from transformer_lib.files import atomic_path, atomic_write, folder_lock
from transformer_lib.model import Transformer
from transformer_lib.training.state import load_recent, load_state, save_recent, save_state
from transformer_lib.weights import load_weights, save_weights


def failure(number):

    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    return fail


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_it_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    """Some network file systems refuse to push the folder's list of names: no error, as the file itself is there."""
    steps, fsync, rename = [], os.fsync, Path.replace

    def push(file):
        steps.append("folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file")
        if steps[-1] == "folder":
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(file)

    monkeypatch.setattr(os, "fsync", push)
    monkeypatch.setattr(Path, "replace", lambda self, path: (steps.append("rename"), rename(self, path))[1])
    atomic_write(tmp_path / "a", "x")
    assert steps == ["file", "rename", "folder"]
    assert content(tmp_path) == {"a": b"x"}


@pytest.mark.parametrize("mode", [0o600, 0o444])
def test_a_file_keeps_its_permissions(tmp_path, mode):
    atomic_write(tmp_path / "a", "old")
    (tmp_path / "a").chmod(mode)
    atomic_write(tmp_path / "a", "new")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode
    assert content(tmp_path) == {"a": b"new"}
    save_weights(tmp_path / "b", nn.Linear(2, 2))
    atomic_write(tmp_path / "c", "x")
    assert (tmp_path / "b").stat().st_mode == (tmp_path / "c").stat().st_mode  # a new file has a new file's


def test_writers_of_one_file_do_not_meet(tmp_path):
    with atomic_path(tmp_path / "a") as part, atomic_path(tmp_path / "a") as other:
        part.write_text("the outer one")
        other.write_text("the inner one")
        assert part != other
    assert content(tmp_path) == {"a": b"the outer one"}


def test_what_a_link_leads_to_is_replaced_and_the_link_stays(tmp_path):
    """Also a link to a link, and one to a file that is not there yet."""
    (tmp_path / "files").mkdir()
    (tmp_path / "link").symlink_to(Path("files", "a"))
    (tmp_path / "again").symlink_to("link")
    for place in ("link", "again"):
        atomic_write(tmp_path / place, place)
        assert content(tmp_path / "files") == {"a": place.encode()}
        assert (tmp_path / place).is_symlink()
    (tmp_path / "ring").symlink_to("ring")
    refused(["cannot write", tmp_path / "ring", os.strerror(errno.ELOOP)], atomic_write, tmp_path / "ring", "x")


def test_a_device_or_a_pipe_is_written_into_and_stays(tmp_path, monkeypatch):
    """A rename onto it would be the end of it; so nothing at all is renamed. Nobody waits for a pipe's reader."""
    monkeypatch.setattr(Path, "replace", failure(errno.EPERM))
    (tmp_path / "null").symlink_to("/dev/null")
    for place in ("/dev/null", tmp_path / "null"):
        atomic_write(place, "x")
    if Path("/dev/full").exists():  # not on a Mac
        full = ["cannot write /dev/full", os.strerror(errno.ENOSPC), "free some space"]
        refused(full, atomic_write, "/dev/full", "x")
    os.mkfifo(pipe := tmp_path / "pipe")
    refused(["nobody reads the pipe", pipe], atomic_write, pipe, "lost")
    with subprocess.Popen(["head", "-c", "3", pipe], stdout=subprocess.PIPE) as head:
        descriptor = os.open(pipe, os.O_WRONLY)  # waits for the reader
        atomic_write(pipe, b"abc" + bytes(2**20))  # more than a pipe holds, and than it wants
        os.close(descriptor)
        assert head.stdout.read() == b"abc"
    with (tmp_path / "a").open("wb", buffering=0) as file:  # as /dev/stdout, and what a shell makes of >(…)
        file.write(b"before, ")
        atomic_write(f"/dev/fd/{file.fileno()}", "here, ")
        file.write(b"after")
    assert (tmp_path / "a").read_bytes() == b"before, here, after"
    assert pipe.is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["a", "null", "pipe"]


@pytest.mark.parametrize(("owner", "name", "number"), [
    (os, "fsync", errno.ENOSPC), (Path, "write_bytes", errno.EIO), (Path, "replace", errno.EROFS),
    (Path, "mkdir", errno.EACCES),
])  # fmt: skip
def test_a_disk_that_refuses_is_one_line_and_leaves_the_old_file(tmp_path, monkeypatch, owner, name, number):
    atomic_write(tmp_path / "a", "old")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failure(number))
        refused(["cannot write", tmp_path / "a", os.strerror(number)], atomic_write, tmp_path / "a", "new")
    assert content(tmp_path) == {"a": b"old"}


def test_a_file_where_a_folder_should_be_and_the_other_way_round(tmp_path):
    atomic_write(tmp_path / "file", "old")
    (tmp_path / "folder").mkdir()
    refused(["cannot write", tmp_path / "file" / "a"], atomic_write, tmp_path / "file" / "a", "new")
    refused([tmp_path / "folder", "is a directory; expected a file"], atomic_write, tmp_path / "folder", "new")
    refused(["cannot write", tmp_path / "file"], take, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "old"
    assert content(tmp_path / "folder") == {}


def take(folder):
    with folder_lock(folder):
        pass


def test_a_lock_is_for_one_at_a_time_and_leaves_nothing(tmp_path, monkeypatch):
    """Under any name of the folder. What killed writers left in it is removed, and no other file."""
    monkeypatch.chdir(tmp_path)
    kept = {"a": b"x", "c.part": b"x", ".d": b"x", ".download.iso.part": b"x"}
    for name in [*kept, ".a.1.part", ".b.22.part"]:
        atomic_write(f"run/{name}", "x")
    with folder_lock("run"):
        refused([f"another process is writing into {tmp_path / 'run'}: "], take, tmp_path / "run")
    assert content(tmp_path / "run") == kept
    monkeypatch.setattr("filelock.FileLock.acquire", failure(errno.EACCES))  # as of another user's
    refused(["cannot write", tmp_path / "run" / ".lock"], take, tmp_path / "run")


@pytest.mark.filterwarnings("ignore:flock not supported")
def test_a_file_system_without_locks_is_no_obstacle(tmp_path, monkeypatch):
    monkeypatch.setattr("fcntl.flock", failure(errno.ENOSYS))
    for wait in (False, True):
        with folder_lock(tmp_path, wait=wait):
            atomic_write(tmp_path / "a", "x")
        assert content(tmp_path) == {"a": b"x"}


def test_others_wait_for_the_one_who_builds(tmp_path):
    happened = []

    def wait():
        with folder_lock(tmp_path, wait=True):
            happened.append((tmp_path / "built").read_text())

    other = threading.Thread(target=wait)
    with folder_lock(tmp_path, wait=True):
        other.start()
        atomic_write(tmp_path / "built", "by the first")
        happened.append("built")
    other.join()
    assert happened == ["built", "by the first"]


@pytest.mark.parametrize("views", [
    lambda base: (base[:4], base[2:]), lambda base: (base, base.view(2, 3).T), lambda base: (base[::2], base[1::2]),
])  # fmt: skip
def test_views_of_one_memory_are_stored_each_by_itself(tmp_path, views):

    def made(numbers):
        model = nn.Module()
        model.one, model.other = map(nn.Parameter, views(numbers))
        return model

    model, loaded, again = made(torch.arange(6.0)), made(torch.zeros(6)), made(torch.zeros(6))
    save_weights(tmp_path / "m", model)
    load_weights(tmp_path / "m", loaded)
    save_state(tmp_path / "s", model, torch.optim.AdamW(model.parameters()), {})
    load_state(tmp_path / "s", again, torch.optim.AdamW(again.parameters()))
    checksum = save_recent(tmp_path / "r", dict(model.state_dict()))
    recent = load_recent(tmp_path / "r", checksum)
    for name, value in model.state_dict().items():
        assert all(torch.equal(found[name], value) for found in (loaded.state_dict(), again.state_dict(), recent))
    refused(["r is damaged, or from another run"], load_recent, tmp_path / "r", checksum + 1)


def test_a_buffer_that_nothing_can_fill_is_named(tmp_path):
    model = nn.Linear(2, 2)
    model.register_buffer("ones", torch.ones(1).expand(3))
    save_weights(tmp_path / "m", model)
    nn.init.zeros_(model.weight)
    refused(["ones", "clone()"], load_weights, tmp_path / "m", model)
    assert (model.weight == 0).all()


def test_weights_of_another_configuration_are_refused_and_the_model_is_not_half_filled(tmp_path):
    """Other heads fit all shapes; what the weights do not depend on may change; a file that does not say fits."""
    for change in ({"num_encoder_layers": 1}, {"norm_first": True}, {"tie_embeddings": "all"}, {"num_heads": 4}):
        models = [Transformer(config) for config in (small_config(), replace(small_config(), **change))]
        for stored, wanted in (models, reversed(models)):
            save_weights(tmp_path / "m", stored)
            before = {name: value.clone() for name, value in wanted.state_dict().items()}
            refused([tmp_path / "m", "another configuration"], load_weights, tmp_path / "m", wanted)
            assert all(torch.equal(value, before[name]) for name, value in wanted.state_dict().items())
    save_file(load_file(tmp_path / "m"), tmp_path / "m")
    load_weights(tmp_path / "m", models[0])
    save_weights(tmp_path / "m", models[1])
    loaded = Transformer(replace(models[1].config, dropout=0.5, attention_dropout=0.5, max_len=99))
    load_weights(tmp_path / "m", loaded)
    assert torch.equal(loaded.output_projection.weight, models[1].output_projection.weight)


def test_what_is_no_file_of_weights_changes_nothing(tmp_path):
    """Missing, something else, cut in the length, the header or the numbers, or with a damaged configuration."""
    model = small_model()
    save_weights(tmp_path / "m", model)
    data = (tmp_path / "m").read_bytes()
    before = [parameter.clone() for parameter in model.parameters()]
    for damaged in (data[:4], data[:60], data[:-1], b"text\n" * 40):
        (tmp_path / "m").write_bytes(damaged)
        refused([tmp_path / "m", "damaged or cut short"], load_weights, tmp_path / "m", model)
    for words in ("", "[]", "[" * 10**5):
        save_file(model.state_dict(), tmp_path / "m", metadata={"config": words})
        refused([tmp_path / "m", "damaged"], load_weights, tmp_path / "m", model)
    refused([tmp_path / "n", "no file"], load_weights, tmp_path / "n", model)
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters()))


def test_whole_numbers_are_no_weights(tmp_path):
    model = nn.BatchNorm1d(3)
    save_weights(tmp_path / "m", model)
    load_weights(tmp_path / "m", nn.BatchNorm1d(3))
    tensors = load_file(tmp_path / "m")
    save_file(tensors | {"weight": tensors["weight"].to(torch.int8)}, tmp_path / "m")
    refused([tmp_path / "m", "weight is (3,) in whole numbers"], load_weights, tmp_path / "m", model)


SAVES = """
import sys, torch
from transformer_lib.data import toy_corpus
from transformer_lib.weights import save_weights
torch.manual_seed(0)
layers = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(4)))
for layer in layers:
    layer.weight = layers[0].weight
for path in sys.argv[1:]:
    save_weights(path, layers)
print(toy_corpus("test", size=30))
"""


def test_the_same_weights_give_the_same_bytes_and_the_toy_corpus_is_the_same(tmp_path):
    said = set()
    for seed in "12":
        program = [sys.executable, "-c", SAVES, *(str(tmp_path / f"{seed}{number}") for number in range(6))]
        environment = ENVIRONMENT | {"PYTHONHASHSEED": seed}
        said.add(subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(said) == 1
    assert len(content(tmp_path)) == 12
    assert len(set(content(tmp_path).values())) == 1


def stepped():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_a_state_that_does_not_fit_changes_nothing(tmp_path):
    """Of another model, cut short, with one bit or the text changed, or not there; of SGD, page B has it."""
    model, adam = stepped()
    before = repr(model.state_dict()), repr(adam.state_dict())
    wider = nn.Linear(2, 3)
    save_state(tmp_path / "s", wider, torch.optim.AdamW(wider.parameters()), {})
    refused([tmp_path / "s", "another model or optimiser"], load_state, tmp_path / "s", model, adam)
    save_state(tmp_path / "s", *stepped(), {"step": 1})
    data = (tmp_path / "s").read_bytes()
    place = data.replace(b'step\\": 1', b'step\\": 0')
    for damaged in (b"", data[:-1], b"text" * 99, data[:-1] + bytes([data[-1] ^ 1]), place):
        assert damaged != data
        (tmp_path / "s").write_bytes(damaged)
        refused([tmp_path / "s", "damaged"], load_state, tmp_path / "s", model, adam)
    for metadata in ({}, {"state": "{"}, {"state": "[1]"}):
        (tmp_path / "s").write_bytes(data)
        save_file(load_file(tmp_path / "s"), tmp_path / "s", metadata=metadata)
        refused([tmp_path / "s", "damaged"], load_state, tmp_path / "s", model, adam)
    refused(["there is no file", tmp_path / "t"], load_state, tmp_path / "t", model, adam)
    assert (repr(model.state_dict()), repr(adam.state_dict())) == before
