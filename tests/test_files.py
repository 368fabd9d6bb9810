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
from torch import nn

from transformer_lib.model import Transformer
from transformer_lib.serialization import (
    InputError,
    atomic_path,
    atomic_write,
    directory_lock,
    load_state,
    load_weights,
    remove_parts,
    save_state,
    save_weights,
    weights_of,
)


def failure(number):
    """What the operating system raises, as a function that takes anything."""

    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    return fail


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def one_line(caught, *words):
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert str(word) in message
    return message


# --- atomic writing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "stored"), [(b"\x00\xff", b"\x00\xff"), ("grün\n", b"gr\xc3\xbcn\n")])
def test_what_is_written_is_there_and_nothing_else(tmp_path, data, stored):
    atomic_write(str(tmp_path / "a"), data)
    atomic_write(tmp_path / "a", data)
    assert content(tmp_path) == {"a": stored}


def test_missing_folders_are_made(tmp_path):
    atomic_write(tmp_path / "some" / "where" / "a", "x")
    assert content(tmp_path / "some" / "where") == {"a": b"x"}


def test_nobody_sees_a_half_written_file(tmp_path):
    """While the block runs, the old content stands; the temporary name lies in the same folder."""
    target = tmp_path / "a"
    atomic_write(target, "old")
    with atomic_path(target) as part:
        part.write_text("new, ha")
        assert target.read_text() == "old"
        assert part.parent == tmp_path
        part.write_text("new, whole")
    assert content(tmp_path) == {"a": b"new, whole"}


def test_it_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    steps = []
    fsync, rename = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda file: (steps.append("fsync"), fsync(file)))
    monkeypatch.setattr(Path, "replace", lambda self, path: (steps.append("rename"), rename(self, path))[1])
    atomic_write(tmp_path / "a", "x")
    assert steps == ["fsync", "rename", "fsync"]  # the file; its name; the folder's list of names


def test_a_folder_whose_list_cannot_be_pushed_is_no_error(tmp_path, monkeypatch):
    """Some network file systems refuse; the file itself is there."""
    fsync = os.fsync

    def refuse(file):
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        fsync(file)

    monkeypatch.setattr(os, "fsync", refuse)
    atomic_write(tmp_path / "a", "x")
    assert content(tmp_path) == {"a": b"x"}


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_a_file_keeps_its_permissions(tmp_path, mode):
    """A private file stays private, and one that can only be read is replaced by such a one."""
    atomic_write(tmp_path / "a", "old")
    (tmp_path / "a").chmod(mode)
    atomic_write(tmp_path / "a", "new")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode
    assert content(tmp_path) == {"a": b"new"}
    save_weights(tmp_path / "b", nn.Linear(2, 2))
    atomic_write(tmp_path / "c", "x")
    assert (tmp_path / "b").stat().st_mode == (tmp_path / "c").stat().st_mode  # a new file has a new file's


@pytest.mark.parametrize("error", [KeyError("x"), KeyboardInterrupt(), InputError("x")])
def test_an_exception_inside_leaves_the_old_file_and_passes_unchanged(tmp_path, error):
    atomic_write(tmp_path / "a", "old")

    def write_half():
        with atomic_path(tmp_path / "a") as part:
            part.write_text("new, ha")
            raise error

    with pytest.raises(type(error)) as caught:
        write_half()
    assert caught.value is error
    assert content(tmp_path) == {"a": b"old"}


@pytest.mark.parametrize(
    ("owner", "name", "number"),
    [
        (os, "fsync", errno.ENOSPC),
        (os, "fsync", errno.EIO),
        (Path, "write_bytes", errno.ENOSPC),
        (Path, "replace", errno.ENOSPC),
        (Path, "replace", errno.EROFS),
        (Path, "mkdir", errno.EACCES),
    ],
)
def test_a_disk_that_refuses_is_one_line_and_leaves_the_old_file(tmp_path, monkeypatch, owner, name, number):
    atomic_write(tmp_path / "a", "old")
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, failure(number))
        with pytest.raises(InputError) as caught:
            atomic_write(tmp_path / "a", "new")
    one_line(caught, "cannot write", tmp_path / "a", os.strerror(number))
    assert content(tmp_path) == {"a": b"old"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_folder_is_one_line(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(InputError) as caught:
        atomic_write(tmp_path / "a", "new")
    tmp_path.chmod(0o700)
    one_line(caught, tmp_path / "a")
    assert content(tmp_path) == {}


def test_a_file_where_a_folder_should_be_and_the_other_way_round(tmp_path):
    atomic_write(tmp_path / "file", "old")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "a", tmp_path / "folder"):
        with pytest.raises(InputError) as caught:
            atomic_write(path, "new")
        one_line(caught, path)
    assert (tmp_path / "file").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert content(tmp_path / "folder") == {}


def test_a_user_error_is_a_value_error():
    assert issubclass(InputError, ValueError)


def test_only_what_killed_writers_left_is_removed(tmp_path):
    for name in (".a.1.part", ".b.22.part", "c.part", ".d", "e", ".download.iso.part"):
        (tmp_path / name).write_text("x")
    (tmp_path / ".f.3.part").mkdir()
    remove_parts(tmp_path)
    remove_parts(tmp_path / "nowhere")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".d", ".download.iso.part", ".f.3.part", "c.part", "e"]


# --- the lock of a directory -------------------------------------------------------------------------------------


def in_another_thread(function, *arguments):
    """What the function raises there, or None."""
    raised = []

    def call():
        try:
            function(*arguments)
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def take(folder):
    with directory_lock(folder):
        pass


def test_a_lock_is_for_one_at_a_time_and_leaves_nothing(tmp_path, monkeypatch):
    """The one who has it may take it again, under another name of the folder too; other folders are free."""
    monkeypatch.chdir(tmp_path)
    atomic_write("run/a", "x")
    with directory_lock("run"):
        with directory_lock(tmp_path / "run"):
            pass
        before = content(tmp_path / "run")
        refused = in_another_thread(take, tmp_path / "run")
        assert content(tmp_path / "run") == before
        assert in_another_thread(take, tmp_path / "new" / "run") is None
    assert isinstance(refused, InputError)
    assert str(refused).startswith(f"another process is training into {tmp_path / 'run'}: ")
    assert "\n" not in str(refused)
    assert in_another_thread(take, "run") is None
    assert content(tmp_path / "run") == {"a": b"x"}
    assert content(tmp_path / "new" / "run") == {}


def test_the_lock_of_one_who_has_just_ended_is_no_lock(tmp_path, monkeypatch):
    """The file is removed between opening and locking: somebody else would make a new one, and lock that."""
    monkeypatch.setattr("fcntl.flock", lambda *_: (tmp_path / ".lock").unlink())
    with pytest.raises(InputError, match="another process is training"):
        take(tmp_path)


def test_a_file_system_without_locks_is_no_obstacle(tmp_path, monkeypatch):
    monkeypatch.setattr("fcntl.flock", failure(errno.ENOLCK))
    take(tmp_path)
    assert content(tmp_path) == {}


def test_a_lock_that_cannot_be_made_is_one_line(tmp_path):
    atomic_write(tmp_path / "file", "old")
    with pytest.raises(InputError) as caught:
        take(tmp_path / "file")
    one_line(caught, "cannot write", tmp_path / "file")
    assert content(tmp_path) == {"file": b"old"}


# --- weights -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_weights_come_back_bit_for_bit(tmp_path, dtype):
    model = small_model(dtype)
    model.register_buffer("counter", torch.tensor(3))
    save_weights(tmp_path / "new" / "m", model)
    loaded = Transformer(model.config).to(dtype)
    loaded.register_buffer("counter", torch.tensor(0))
    load_weights(tmp_path / "new" / "m", loaded)
    for (name, stored), (_, value) in zip(model.state_dict().items(), loaded.state_dict().items(), strict=True):
        assert torch.equal(stored, value), name
    assert os.listdir(tmp_path / "new") == ["m"]


def test_a_shared_matrix_is_stored_once(tmp_path):
    sizes = {}
    for tie in ("none", "target", "all"):
        config = small_config(tie_embeddings=tie, source_vocab_size=2000, target_vocab_size=2000)
        save_weights(tmp_path / tie, Transformer(config))
        sizes[tie] = (tmp_path / tie).stat().st_size
    matrix = 2000 * 12 * 4
    assert sizes["none"] - sizes["target"] == pytest.approx(matrix, abs=300)  # and a line or two in the header
    assert sizes["target"] - sizes["all"] == pytest.approx(matrix, abs=300)


def test_weights_are_no_pickle(tmp_path):
    save_weights(tmp_path / "m", nn.Linear(2, 2))
    data = (tmp_path / "m").read_bytes()
    assert data[8:9] == b"{"  # eight bytes of length, then a JSON header
    assert int.from_bytes(data[:8], "little") < len(data)


def test_a_full_disk_keeps_the_old_weights(tmp_path, monkeypatch):
    save_weights(tmp_path / "m", nn.Linear(2, 2))
    before = content(tmp_path)
    monkeypatch.setattr(os, "fsync", failure(errno.ENOSPC))
    with pytest.raises(InputError) as caught:
        save_weights(tmp_path / "m", nn.Linear(3, 3))
    one_line(caught, tmp_path / "m", os.strerror(errno.ENOSPC))
    assert content(tmp_path) == before


def test_weights_that_cannot_be_written_at_all(tmp_path):
    atomic_write(tmp_path / "file", "old")
    with pytest.raises(InputError) as caught:
        save_weights(tmp_path / "file" / "m", nn.Linear(2, 2))
    one_line(caught, tmp_path / "file" / "m")


def test_an_error_of_the_safetensors_library_while_writing(tmp_path, monkeypatch):
    import safetensors

    def fail(*_, **__):
        raise safetensors.SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr("transformer_lib.serialization.save_file", fail)
    with pytest.raises(InputError) as caught:
        save_weights(tmp_path / "m", nn.Linear(2, 2))
    one_line(caught, tmp_path / "m", "No space left")
    assert content(tmp_path) == {}


def test_missing_weights(tmp_path):
    for path in (tmp_path / "m", tmp_path):
        with pytest.raises(InputError) as caught:
            load_weights(path, nn.Linear(2, 2))
        one_line(caught, path, "no file")


@pytest.mark.parametrize("kept", [0, 4, 8, 60, 0.5, -1])
def test_truncated_weights(tmp_path, kept):
    """Cut inside the length, after it, inside the header, inside the numbers, before the last byte."""
    model = small_model()
    save_weights(tmp_path / "m", model)
    data = (tmp_path / "m").read_bytes()
    (tmp_path / "m").write_bytes(data[: int(kept * len(data)) if isinstance(kept, float) else kept])
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(InputError) as caught:
        load_weights(tmp_path / "m", model)
    one_line(caught, tmp_path / "m", "cut short")
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters()))


@pytest.mark.parametrize("junk", [b"hello, this is text\n" * 9, b"\xff" * 200, b"PK\x03\x04" + bytes(200)])
def test_a_file_of_something_else(tmp_path, junk):
    (tmp_path / "m").write_bytes(junk)
    with pytest.raises(InputError) as caught:
        load_weights(tmp_path / "m", small_model())
    one_line(caught, tmp_path / "m", "damaged")


@pytest.mark.parametrize(
    "change",
    [
        {"num_encoder_layers": 1}, {"num_decoder_layers": 3}, {"d_model": 24}, {"d_ff": 8}, {"norm_first": True},
        {"source_vocab_size": 14}, {"target_vocab_size": 12}, {"tie_embeddings": "target"}, {"tie_embeddings": "all"},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("backwards", [False, True])
def test_weights_of_another_configuration(tmp_path, change, backwards):
    configs = [small_config(), replace(small_config(), **change)]
    stored, wanted = reversed(configs) if backwards else configs
    save_weights(tmp_path / "m", Transformer(stored))
    model = Transformer(wanted)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(InputError) as caught:
        load_weights(tmp_path / "m", model)
    one_line(caught, tmp_path / "m", "another configuration")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())  # not half filled


def test_what_the_shapes_do_not_tell(tmp_path):
    """Other heads fit all shapes; what the weights do not depend on may change; a file that does not say fits."""
    model = Transformer(small_config(num_heads=4))
    save_weights(tmp_path / "m", model)
    with pytest.raises(InputError) as caught:
        load_weights(tmp_path / "m", Transformer(small_config(num_heads=3)))
    one_line(caught, tmp_path / "m", "another configuration", "num_heads = 4, not 3")
    others = small_config(num_heads=4, dropout=0.5, attention_dropout=0.5, max_len=99)
    loaded = Transformer(others)
    load_weights(tmp_path / "m", loaded)
    assert torch.equal(loaded.output_projection.weight, model.output_projection.weight)
    save_file(load_file(tmp_path / "m"), tmp_path / "m")
    load_weights(tmp_path / "m", Transformer(small_config(num_heads=3)))


@pytest.mark.parametrize("words", ["", "[]", "7", "{", "[" * 10**5, "9" * 5000])
def test_a_damaged_configuration_in_the_weights(tmp_path, words):
    save_weights(tmp_path / "m", small_model())
    save_file(load_file(tmp_path / "m"), tmp_path / "m", metadata={"config": words})
    with pytest.raises(InputError) as caught:
        load_weights(tmp_path / "m", small_model())
    one_line(caught, tmp_path / "m", "damaged")


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.bool])
def test_whole_numbers_are_no_weights(tmp_path, dtype):
    """A counter among the buffers may be one."""
    model = nn.BatchNorm1d(3)
    save_weights(tmp_path / "m", model)
    load_weights(tmp_path / "m", nn.BatchNorm1d(3))
    tensors = load_file(tmp_path / "m")
    save_file(tensors | {"weight": tensors["weight"].to(dtype)}, tmp_path / "m")
    with pytest.raises(InputError) as caught:
        load_weights(tmp_path / "m", model)
    one_line(caught, tmp_path / "m", "weight is stored as", "floating point")


SAVES = """
import sys
import torch
from transformer_lib.serialization import save_weights
torch.manual_seed(0)
layers = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(4)))
for layer in layers:
    layer.weight = layers[0].weight
for path in sys.argv[1:]:
    save_weights(path, layers)
"""


def test_the_same_weights_give_the_same_bytes(tmp_path):
    """With many names for a matrix, each time and whatever the hash seed."""
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent.parent)}
        paths = [tmp_path / f"{seed}.{number}" for number in range(8)]
        subprocess.run([sys.executable, "-c", SAVES, *paths], env=environment, check=True)
    assert len(content(tmp_path)) == 16
    assert len(set(content(tmp_path).values())) == 1


# --- the state of a run ------------------------------------------------------------------------------------------


def stepped(kind, **options):
    """A model and its optimiser after one step."""
    model = nn.Linear(2, 2)
    optimizer = kind(model.parameters(), lr=0.1, **options)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_moments_that_the_optimiser_refuses_change_nothing(tmp_path):
    """Adam takes the moments of gradient descent over before it misses its own."""
    save_state(tmp_path / "s", *stepped(torch.optim.SGD, momentum=0.9), {})
    model, adam = stepped(torch.optim.AdamW)
    before = repr(model.state_dict()), repr(adam.state_dict())
    with pytest.raises(InputError) as caught:
        load_state(tmp_path / "s", model, adam)
    one_line(caught, tmp_path / "s", "step")
    assert (repr(model.state_dict()), repr(adam.state_dict())) == before


def test_a_state_that_is_not_there(tmp_path):
    with pytest.raises(InputError) as caught:
        load_state(tmp_path / "s", *stepped(torch.optim.AdamW))
    one_line(caught, "there is no file", tmp_path / "s")


def test_a_state_comes_back(tmp_path):
    model, adam = stepped(torch.optim.AdamW)
    model.weight.data = model.weight.data.T.contiguous().T  # lies in memory column by column
    save_state(tmp_path / "s", model, adam, {"step": 1}, recent=[weights_of(model)])
    loaded, other = stepped(torch.optim.AdamW)
    progress, (recent,) = load_state(tmp_path / "s", loaded, other)
    assert progress == {"step": 1}
    for ours, theirs in zip(adam.state.values(), other.state.values(), strict=True):
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    for name, value in model.named_parameters():
        assert torch.equal(dict(loaded.named_parameters())[name], value)
        assert torch.equal(recent[name], value)
