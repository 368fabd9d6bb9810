"""Time several systems side by side: in turn, round after round, each in a process of its own.

What else the machine does changes from minute to minute, and it would hit one system more than another if each were
timed alone. Here a round runs every system once, and systems are compared within a round. A process of its own means:
its own allocator, its own settings.
"""

import multiprocessing
import statistics
import subprocess
from collections.abc import Callable
from datetime import date
from importlib import metadata
from multiprocessing.connection import Connection
from platform import python_version

import pytest
import torch

Run = Callable[[], dict | None]  # does the work once; may return facts about it
MEMORY: list[dict] = []  # rows of bench_memory.py


class Worker:
    """A process that builds a system, runs it once to warm up, and then once more whenever it is asked to."""

    def __init__(self, build: Callable[[], Run], threads: int):
        spawn = multiprocessing.get_context("spawn")
        self.pipe, other = spawn.Pipe()
        self.process = spawn.Process(target=_serve, args=(other, build, threads), daemon=True)
        self.process.start()
        other.close()
        self.ready = self.pipe.recv()  # why the system is to be skipped, or None

    def run(self) -> dict | None:
        """Let it run once, and wait."""
        self.pipe.send(True)
        return self.pipe.recv()

    def close(self) -> None:
        """Let it end."""
        self.pipe.send(False)
        self.process.join()


def _serve(pipe: Connection, build: Callable[[], Run], threads: int) -> None:
    torch.set_num_threads(threads)
    try:
        run = build()
    except pytest.skip.Exception as absent:
        pipe.send(str(absent))
        return
    run()
    pipe.send(None)
    while pipe.recv():
        facts = run()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        pipe.send(facts)


def interleaved(group: str, systems: dict[str, Callable[[], Run]], *, rounds: int, threads: int, **settings):
    """A test that times the systems in turn.

    Args:
        group: the name of the comparison.
        systems: what builds each system: a function of a module, called in the system's own process and not timed. It
            returns what is timed. `pytest.importorskip` in it leaves the system out where a package is absent. The
            first system is ours.
        rounds: how often each system is timed.
        threads: PyTorch's threads.
        settings: what else a reader needs to know.
    """
    workers: dict[str, Worker] = {}

    @pytest.mark.benchmark(group=group)
    @pytest.mark.parametrize("system", systems)  # varies fastest
    @pytest.mark.parametrize("number", range(rounds))
    def test(benchmark, number: int, system: str) -> None:
        if number == 0:
            workers[system] = Worker(systems[system], threads)
        if workers[system].ready is not None:
            pytest.skip(workers[system].ready)
        facts = benchmark.pedantic(workers[system].run, rounds=1)
        benchmark.extra_info.update(system=system, threads=threads, settings=settings, facts=facts or {})
        if number == rounds - 1:
            workers.pop(system).close()

    return test


def _rows(runs: list) -> list[dict]:
    """One row for each system, from all of its runs; `ratio` is how many times as long as the first system it takes."""
    seconds: dict[str, list[float]] = {}
    facts: dict[str, dict] = {}
    for run in runs:
        name = run.extra_info["system"]
        seconds.setdefault(name, []).append(run.stats.total)
        facts[name] = run.extra_info["facts"]
    ours = next(iter(seconds.values()))
    return [
        {
            "system": name,
            "median_seconds": float(f"{statistics.median(times):.4g}"),
            "ratio": round(statistics.median(theirs / own for theirs, own in zip(times, ours)), 3),
            "rounds": len(times),
            **facts[name],
        }
        for name, times in seconds.items()
    ]


def record(runs: list) -> dict:
    """What a reader needs to judge the numbers and to repeat them: with what and on what they were measured."""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    commit = subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip()
    cuda = torch.cuda.is_available()
    groups: dict[str, list] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    packages = (package for package in ("transformers", "ctranslate2", "tokenizers", "pytest-benchmark"))
    installed = {distribution.metadata["Name"].lower() for distribution in metadata.distributions()}
    return {
        "command": "make bench",
        "commit": commit,
        "date": date.today().isoformat(),
        "seed": 0,
        "device": torch.cuda.get_device_name() if cuda else f"CPU, {multiprocessing.cpu_count()} cores",
        "python": python_version(),
        "torch": torch.__version__.partition("+")[0],
        "versions": {package: metadata.version(package) for package in packages if package in installed},
        "groups": [
            {
                "name": name,
                "threads": runs[0].extra_info["threads"],
                "settings": runs[0].extra_info["settings"],
                "rows": _rows(runs),
            }
            for name, runs in groups.items()
        ],
        "memory": MEMORY,
    }
