"""Killed, stopped, on a full disk, or in several processes: a run ends as the undisturbed one, bit for bit."""

import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing import forkserver
from types import SimpleNamespace

import pytest
import torch
from record import log_of
from safetensors.torch import load_file
from small import ENGLISH, ENVIRONMENT, MICRO, ROOT, call, files_below, write_texts
from test_training import CONFIG, PAIRS, VAL_PAIRS, compare_states, fresh_model, in_step, same, state_of, tensors_of

from transformer_lib import recipes
from transformer_lib.data import token_batches
from transformer_lib.files import InputError
from transformer_lib.training import loop as training
from transformer_lib.training import train
from transformer_lib.training.distributed import process_group

MODEL = {"dropout": 0.2, "tie_embeddings": "all", "norm_first": True}
SETTINGS = {"steps": 8, "evaluate_every": 3, "accumulate": 2, "average": 2}
DEFAULTS = {"model": MODEL, "config": SETTINGS}  # of a job in a process of its own
FILES = ["log.jsonl", "model.safetensors", "recent-8.safetensors", "state.safetensors"]


@pytest.fixture(autouse=True)
def _ctrl_c_arrives():
    """A shell makes what it starts in the background deaf to Ctrl-C; the others would be the end of the tests."""

    def unexpected(number, _):
        raise AssertionError(f"nobody took signal {number}")

    kinds = {signal.SIGINT: signal.default_int_handler}
    kinds |= dict.fromkeys([signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU], unexpected)
    before = {number: signal.signal(number, handler) for number, handler in kinds.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def children():
    """Run a job in as many processes as it says; get their statuses and answers."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["children"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(str(ROOT / name) for name in ("", "tests", "experiments")))
        patch.setenv("CUDA_VISIBLE_DEVICES", "")  # autograd's threads for a GPU would not survive a fork
        forkserver.ensure_running()
    from children import child

    def run(**job):
        job, pipes = DEFAULTS | job, [context.Pipe(duplex=False) for _ in range(job.get("ranks", 1))]
        processes = [context.Process(target=child, args=(job, rank, send)) for rank, (_, send) in enumerate(pipes)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        answers = [receive.recv() if receive.poll() else None for receive, _ in pipes]
        return [*zip((process.exitcode for process in processes), answers)]

    return run


def trained(out, config=SETTINGS, *, seed=0, model=MODEL, **options):
    model = fresh_model(seed=seed, **model)
    log = train(model, PAIRS, replace(CONFIG, **config), val_pairs=VAL_PAIRS, out=out, **options)
    return model, log


def timeless(log):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in log]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    for steps in (3, 6, 8):
        model, log = trained(folder / str(steps), SETTINGS | {"steps": steps})
    return SimpleNamespace(folder=folder, out=folder / "8", log=timeless(log), weights=tensors_of(model))


def ends_like(whole, out):
    """Resume in `out`, with other weights if there is a state: all becomes what the undisturbed run had."""
    model, log = trained(out, seed=9 if (out / "state.safetensors").exists() else 0, resume=True)
    assert same(tensors_of(model), whole.weights)
    assert timeless(log) == whole.log == timeless(log_of(out))
    compare_states(out, whole.out)
    assert same(load_file(out / "model.safetensors"), load_file(whole.out / "model.safetensors"))
    assert sorted(path.name for path in out.iterdir()) == FILES


# What is written, in this order: log, state; then at steps 3, 6 and 8 the best model so far, own weights, log, state.
@pytest.mark.parametrize(("at", "number", "step", "rows"), [
    ("half", 1, None, 0), ("step", 6, 3, 1),  # the very first state; before the weights change
    ("written", 5, 3, 1), ("half", 6, 3, 1),  # the second model, without its name; weights that the mean at 8 needs
    ("renamed", 9, 3, 2), ("half", 7, 3, 2),  # the log is a row ahead of the state; half of that state
    ("renamed", 10, 6, 2),  # everything is there, and weights that nobody needs any more
])  # fmt: skip
def test_killed_with_sigkill(at, number, step, rows, children, whole, tmp_path):
    """Each file is the last whole one, and the resumed run ends as if nobody had killed the first."""
    [[status, answer]] = children(out=tmp_path, die=[at, number])
    assert (status, answer) == (-signal.SIGKILL, None)
    assert (tmp_path / "state.safetensors").exists() == (step is not None)
    if step is not None:
        assert state_of(tmp_path)[1]["state"]["step"] == step
        if step:
            compare_states(tmp_path, whole.folder / str(step))
    assert timeless(log_of(tmp_path)) == whole.log[:rows]
    ends_like(whole, tmp_path)


def test_the_system_refuses_to_write_on_in_the_middle_of_a_state(children, whole, tmp_path):
    """No simulation: the kernel allows no file as long as the state."""
    trained(tmp_path, SETTINGS | {"steps": 3})
    limit = (tmp_path / "state.safetensors").stat().st_size - 1
    [[status, answer]] = children(out=tmp_path, resume=True, largest_file=limit)
    assert status == 0
    assert answer["error"].startswith(f"cannot write {tmp_path}/state.safetensors: ")
    assert "\n" not in answer["error"]
    assert {path.name for path in tmp_path.glob("recent-*")} == {f"recent-{step}.safetensors" for step in (3, 6)}
    compare_states(tmp_path, whole.folder / "3")
    ends_like(whole, tmp_path)


@pytest.mark.parametrize(("ranks", "resume"), [(1, True), (2, False)])
def test_a_second_run_into_the_same_place_is_refused(ranks, resume, children, whole, tmp_path):
    """In the middle of a step of the first, which does not notice. All processes of the second get the line."""
    out, answers = tmp_path / "run", []

    def second():
        before = files_below(out)
        job = {"resume": resume, "weights": tmp_path, "ranks": ranks, "meet": tmp_path / "meet"}
        answers.extend(children(out=out, **job))
        assert files_below(out) == before

    with in_step(5, second):
        trained(out)
    assert [status for status, _ in answers] == [0] * ranks
    assert answers[0][1]["error"].startswith(f"another process is writing into {out}: ")
    assert all(str(out) in answer["error"] for _, answer in answers)
    ends_like(whole, out)


def test_a_signal_lets_the_step_finish_and_saves(whole, tmp_path):
    stops = {2: signal.SIGHUP, 3: signal.SIGTERM, 4: signal.SIGUSR1, 5: signal.SIGINT, 7: signal.SIGXCPU}
    before, done = {kind: signal.getsignal(kind) for kind in stops.values()}, 0
    for stop, number in stops.items():
        ask = in_step(stop - done, lambda number=number: os.kill(os.getpid(), number))
        with ask, pytest.raises(KeyboardInterrupt, match=f"after step {stop}: .*resume"):
            trained(tmp_path, seed=stop if done else 0, resume=bool(done))
        assert state_of(tmp_path)[1]["state"]["step"] == stop
        assert [row["step"] for row in log_of(tmp_path)] == [step for step in (3, 6) if step <= stop]
        done = stop
    assert {kind: signal.getsignal(kind) for kind in before} == before
    ends_like(whole, tmp_path)


@pytest.mark.parametrize("world", [1, 2])
def test_a_second_ctrl_c_does_not_wait(world, tmp_path, monkeypatch):
    """But of several processes each gets the first one twice, from the terminal and from what launched them."""
    monkeypatch.setattr(training, "rank_and_world_size", lambda: (0, world))
    noted, before = [], signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) if world == 1 else nullcontext(), training.stop_signals(tmp_path, noted):
        signal.raise_signal(signal.SIGINT)
        assert noted == [signal.SIGINT]
        signal.raise_signal(signal.SIGINT)
    assert len(noted) == world
    assert signal.getsignal(signal.SIGINT) == before


def test_an_ignored_signal_stays_ignored(whole, tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with in_step(3, lambda: os.kill(os.getpid(), signal.SIGINT)):
            assert timeless(trained(tmp_path)[1]) == whole.log
    finally:
        signal.signal(signal.SIGINT, before)


JOB = {
    "config": {"steps": 9, "evaluate_every": 4, "accumulate": 3, "average": 2, "batch_tokens": 30, "recompute": True},
    "model": {"norm_first": True, "tie_embeddings": "all"},
}


def test_several_processes_train_the_model_of_one(children, tmp_path):
    """Without dropout, in float64. Some batches have fewer rows than there are processes; results are read late."""
    ranks, out = 3, tmp_path / "run"
    rows = [len(batch.source) for batch in token_batches(PAIRS, 30, seed=CONFIG.seed)]
    assert min(rows) < 3 < max(rows)
    [[_, alone]] = children(**JOB, out=tmp_path / "alone", weights=tmp_path / "alone", ranks=1)
    answers = children(**JOB, out=out, weights=tmp_path / "weights", ranks=ranks, meet=tmp_path / "meet", read_every=3)
    assert [status for status, _ in answers] == [0] * ranks
    weights = torch.load(tmp_path / "alone.0")
    assert sorted(path.name for path in out.iterdir()) == [name.replace("-8", "-9") for name in FILES]
    for rank, (_, answer) in enumerate(answers):
        torch.testing.assert_close(torch.load(tmp_path / f"weights.{rank}"), weights, rtol=0, atol=1e-9)
        for ours, theirs in zip(timeless(answer["log"]), timeless(alone["log"]), strict=True):
            assert ours == pytest.approx(theirs, abs=1e-9)
    model = fresh_model(seed=1, **JOB["model"]).double()  # one process goes on with what several have left
    config = replace(CONFIG, **JOB["config"] | {"steps": 12})
    log = train(model, PAIRS, config, val_pairs=VAL_PAIRS, out=out, resume=True)
    assert [row["step"] for row in log] == [4, 8, 9, 12]


def test_one_of_two_processes_dies_and_both_go_on(children, tmp_path):
    """The other ends with an error instead of waiting for ever; resumed, they end as two that nobody disturbed."""
    job = {"config": SETTINGS, "weights": tmp_path / "weights", "ranks": 2}
    whole = children(**job, out=tmp_path / "whole", meet=tmp_path / "meet-1")
    killed = children(**job, out=tmp_path / "run", meet=tmp_path / "meet-2", die=["step", 5], dies=1)
    assert state_of(tmp_path / "run")[1]["state"]["step"] == 3
    again = children(**job, out=tmp_path / "run", meet=tmp_path / "meet-3", resume=True, seed=9)
    statuses = [[status for status, _ in answers] for answers in (whole, killed, again)]
    assert statuses == [[0, 0], [1, -signal.SIGKILL], [0, 0]]
    assert timeless(again[1][1]["log"]) == timeless(whole[1][1]["log"])
    compare_states(tmp_path / "run", tmp_path / "whole")


@pytest.fixture
def command(monkeypatch, tmp_path):
    monkeypatch.setitem(recipes.PRESETS, "small", MICRO)
    files = write_texts(tmp_path, target=ENGLISH)
    monkeypatch.chdir(tmp_path)

    def run(name, *arguments):
        status, out, err = call(name, *(files if name != "translate" else []), "--device", "cpu", *arguments)
        return status, out, (err.splitlines() or [""])[-1]

    return run


def test_a_stopped_command_says_how_to_go_on_and_ends_the_same(command, tmp_path):
    """Status 130 after Ctrl-C and after SIGTERM; until the first validation there is nothing to translate with."""
    options = ["--steps", 6, "--evaluate-every", 4]
    assert command("train", "--out", "whole", *options)[0] == 0
    for done, stop, number in ((0, 2, signal.SIGTERM), (2, 5, signal.SIGINT)):
        with in_step(stop - done, lambda number=number: os.kill(os.getpid(), number)):
            said = command("train", "--out", "run", *options, "--resume")
        assert said == (130, "", f"stopped after step {stop}: resume goes on from there")
        if stop == 2:
            status, out, line = command("translate", "--model", "run", "a dog")
            assert (status, out, "can be resumed" in line) == (2, "", True)
            assert line.startswith("error: there is no file run/model.safetensors")
    assert command("train", "--out", "run", *options, "--resume")[0] == 0
    assert same(*(load_file(tmp_path / name / "model.safetensors") for name in ("whole", "run")))
    assert timeless(log_of(tmp_path / "run")) == timeless(log_of(tmp_path / "whole"))
    before = files_below(tmp_path / "run")
    status, _, line = command("train", "--out", "run", "--steps", 4, "--resume")
    assert (status, files_below(tmp_path / "run") == before) == (0, True)
    assert line == "warning: nothing was trained: the run has made 6 steps, more than 4"


@pytest.mark.long
def test_two_processes_on_one_machine_or_two_train_the_model_of_one(tmp_path):
    """Two calls of torchrun that meet on the loopback device stand for machines, which share a store."""
    torchrun = ["-m", "torch.distributed.run"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = ["--master-addr", "127.0.0.1", "--master-port", str(free.getsockname()[1]), "--node-rank"]
    how = {"cwd": tmp_path, "env": ENVIRONMENT | {"GLOO_SOCKET_IFNAME": "lo"}, "text": True}
    how |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    train = ["-m", "transformer_lib", "train", "--preset", "tiny", "--steps", "6", "--device", "cpu"]
    files, rows = write_texts(tmp_path, target=ENGLISH), {}
    for name, launchers, store in (
        ("one", [[]], []), ("two", [[*torchrun, "--nproc-per-node", "2"]], []),
        ("one, stored", [[]], ["--store", "store"]),
        ("two, stored", [[*torchrun, "--nnodes", "2", *meet, node] for node in "01"], ["--store", "store"]),
    ):  # fmt: skip
        options = [*train, *files, *store, "--out", name]
        running = [subprocess.Popen([sys.executable, *launcher, *options], **how) for launcher in launchers]
        outs, errs = map("".join, zip(*[process.communicate() for process in running]))
        assert not any(process.returncode for process in running), errs
        assert errs.count("38 pairs to train on, 2 for validation") == 1
        rows[name] = json.loads(outs)
        kept = [*FILES[:2], FILES[3], "config.json", "tokenizer.json", "trained-on.bin"]  # without a mean of weights
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == sorted(kept)
    for one, two in (("one", "two"), ("one, stored", "two, stored")):
        assert rows[two]["tokens"] == rows[one]["tokens"]
        assert rows[two]["val_loss"] == pytest.approx(rows[one]["val_loss"], abs=1e-5)
        ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in (one, two))
        for name, value in ours.items():  # a key's bias has no gradient but rounding, and Adam blows that up
            torch.testing.assert_close(theirs[name], value, rtol=0, atol=1e-5 if value.dim() > 1 else 1e-3)


@pytest.mark.parametrize("change", [None, {"RANK": "2"}, {"MASTER_PORT": "x"}, {"MASTER_ADDR": ""}])
def test_a_world_size_that_stands_alone_starts_nobody(change, monkeypatch, caplog):
    whole = {"RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "LOCAL_RANK": ""}
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda *_: pytest.fail("it waits for the others"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in whole:
        monkeypatch.setenv(name, "" if change is None else (whole | change)[name])
    if change is None:
        with process_group("cpu") as place:
            assert (place, len(caplog.records)) == ("cpu", 1)
    else:
        with pytest.raises(InputError, match=r"^the environment has WORLD_SIZE=2.* torchrun"), process_group("cpu"):
            pass
