# Generated from chapters/10_training.md: edit the chapter, not this file, then run `make export`.

"""What a run keeps on its way, and how it goes on after an interruption."""

from __future__ import annotations

import json
import math
import signal
import threading
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from torch import nn

from transformer_lib.model import Transformer
from transformer_lib.serialization import (
    InputError,
    Weights,
    atomic_write,
    directory_lock,
    load_state,
    one_line,
    remove_parts,
    save_state,
    save_weights,
    set_weights,
    weights_of,
)
from transformer_lib.training.config import TrainingConfig, inverse_sqrt_schedule
from transformer_lib.training.distributed import all_reduce_sum, rank_and_world_size
from transformer_lib.training.loss import Pairs


@contextmanager
def run_lock(folder: str | Path | None) -> Iterator[None]:
    """Inside the block no other run may train into the directory; of several processes the first holds the lock.

    Args:
        folder: the directory of the run; None = lock nothing.

    Raises:
        InputError: another run has it, or it cannot be written; raised in all processes.
    """
    with ExitStack() as stack:
        refusal = None
        if folder is not None and rank_and_world_size()[0] == 0:
            try:
                stack.enter_context(directory_lock(folder))
            except InputError as error:
                refusal = error
        if any(all_reduce_sum(refusal is not None)):  # of all processes: they must agree
            raise refusal or InputError(f"the first process cannot train into {folder}")
        yield


@contextmanager
def averaged(model: nn.Module, recent: Sequence[Weights]) -> Iterator[None]:
    """Inside the block the model has the mean of these weights, if there is more than one; then its own again."""
    own = weights_of(model) if len(recent) > 1 else {}
    if own:
        set_weights(model, {name: torch.stack([weights[name] for weights in recent]).mean(dim=0) for name in own})
    try:
        yield
    finally:
        set_weights(model, own)


@dataclass
class Progress:
    """Where a run stands: all that the next update depends on, besides weights and moments.

    `batch` counts the batches of this epoch that are used up, `tokens` the real targets seen, `waited` the validations
    since the best one; `loss_sum` and `loss_tokens` have been growing since the last row of the log.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_loss: float = math.inf
    waited: int = 0
    loss_sum: float = 0.0
    loss_tokens: int = 0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value).__name__ not in ("int", field.type) or not value >= 0:
                raise ValueError(f"{field.name} is {value!r}")


class Run:
    """A model, its optimiser, and how far they are: in memory, and in a directory if there is one.

    Args:
        model: the model.
        optimizer: of its parameters.
        config: how to train.
        pairs: what to train on.
        folder: for `log.jsonl`, `state.safetensors` and `model.safetensors`; None = write nothing.
    """

    def __init__(
        self,
        model: Transformer,
        optimizer: torch.optim.Optimizer,
        config: TrainingConfig,
        pairs: Pairs,
        folder: str | Path | None,
    ) -> None:
        self.model, self.optimizer, self.folder = model, optimizer, None if folder is None else Path(folder)
        self.at, self.log = Progress(), list[dict[str, float]]()
        self.recent = deque[Weights](maxlen=config.average)
        free = ("steps", "minutes", "evaluate_every", "recompute", "average", "patience")  # may change on the way
        pairs = [(list(source), list(target)) for source, target in pairs]
        settings = {name: value for name, value in asdict(config).items() if name not in free}
        usual = config.schedule is inverse_sqrt_schedule
        rates = None if usual else [config.learning_rate(2**n) for n in range(17)]  # a function, as a file can keep it
        corpus = zlib.crc32(repr(pairs).encode())
        self.settings = settings | {"adam_betas": list(config.adam_betas), "schedule": rates, "corpus": corpus}

    def begin(self, *, resume: bool) -> None:
        """Go on where the directory's state stands, if asked to and if there is one; else write the first state.

        Raises:
            InputError: the state is damaged or belongs to another run, or the directory cannot be written.
        """
        if self.folder is None:
            return
        if resume and (self.folder / "state.safetensors").exists():
            self._resume(self.folder)
        else:
            self.save()

    def _resume(self, folder: Path) -> None:
        stored, recent = load_state(folder / "state.safetensors", self.model, self.optimizer)
        try:
            changed = [name for name in self.settings if self.settings[name] != stored["settings"].get(name)]
            self.at = Progress(**stored["progress"])
            if self.at.step and not self.optimizer.state:
                raise ValueError("moments of the optimiser are missing")
            rows = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
            self.log = [row for row in rows if row["step"] <= self.at.step]
        except (OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            files = f"state.safetensors or log.jsonl in {folder}"
            raise InputError(f"{files} is missing or damaged ({one_line(error)}): train into another place") from error
        if changed:
            names = ", ".join(changed)
            raise InputError(f"{folder} was trained with another {names}: use the same, or another directory")
        self.recent.extend(recent)

    def save(self) -> None:
        """Write the log, then the state; of several processes only the first writes.

        Raises:
            InputError: the directory cannot be written.
        """
        if self.folder is None or rank_and_world_size()[0]:
            return
        remove_parts(self.folder)
        atomic_write(self.folder / "log.jsonl", "".join(json.dumps(row) + "\n" for row in self.log))
        progress = {"progress": asdict(self.at), "settings": self.settings}
        save_state(self.folder / "state.safetensors", self.model, self.optimizer, progress, recent=self.recent)

    def save_model(self) -> None:
        """Write the weights for whoever wants to translate; of several processes only the first writes.

        Raises:
            InputError: the directory cannot be written.
        """
        if self.folder is not None and not rank_and_world_size()[0]:
            save_weights(self.folder / "model.safetensors", self.model)


@contextmanager
def stop_signals(wanted: bool = True) -> Iterator[list[int]]:
    """Inside the block SIGINT (Ctrl-C) and SIGTERM stop nothing; they are noted in the list that the block gets."""
    noted: list[int] = []
    before = {}
    if wanted and threading.current_thread() is threading.main_thread():  # Python allows it nowhere else
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):  # who is told to ignore one goes on doing so
                before[number] = signal.signal(number, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
