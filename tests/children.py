"""A process with everything imported, which forks a child for each job: JSON a line in, JSON a line out.

A child trains as in `test_training.py`. It may kill itself at a file operation or in an update, find the disk full from
a file operation on, or be several that train together. A fork costs little; importing torch for each would not.
"""

import json
import os
import resource
import signal
import sys
from dataclasses import replace

import safetensors.torch
import torch
import torch.distributed as dist
from test_training import CONFIG, PAIRS, VAL_PAIRS, fresh_model
from torch.optim.optimizer import register_optimizer_step_pre_hook

from transformer_lib.serialization import InputError
from transformer_lib.training import loop as training
from transformer_lib.training import train

OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.chmod")
NEEDS_SPACE = ("open", "os.mkdir", "write", "fsync")


class Watch:
    """Count the file operations below a folder; die before one of them, or refuse from one of them on."""

    def __init__(self, folder, kill_at=None, full_from=None):
        self.folder, self.kill_at, self.full_from, self.seen = folder, kill_at, full_from, []
        sys.addaudithook(self.audit)
        fsync, serialize = os.fsync, safetensors.torch.serialize_file

        def watched_fsync(file):
            self.reached("fsync", "")
            fsync(file)

        def watched_serialize(tensors, path, metadata=None):
            self.reached("write", str(path))
            serialize(tensors, path, metadata)
            if self.kill_at == len(self.seen) + 1:
                os.truncate(path, os.path.getsize(path) // 2)  # it was killed in the middle
            self.reached("written", str(path))

        os.fsync, safetensors.torch.serialize_file = watched_fsync, watched_serialize

    def audit(self, event, arguments):
        paths = [os.fsdecode(value) for value in arguments if isinstance(value, str | bytes | os.PathLike)]
        if event in OPERATIONS and any(path.startswith(self.folder) for path in paths):
            self.reached(event, paths[-1 if event == "os.rename" else 0])

    def reached(self, event, path):
        self.seen.append((event, os.path.basename(path)))
        if len(self.seen) == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.full_from is not None and len(self.seen) >= self.full_from and event in NEEDS_SPACE:
            raise OSError(28, "No space left on device")


def die_in_update(number):
    """SIGKILL when the optimiser is about to make its `number`-th step of this child."""
    steps = []

    def count(*_):
        steps.append(1)
        if len(steps) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    register_optimizer_step_pre_hook(count)


def child(job, rank):
    """What a child has to say in the end; one that is killed says nothing."""
    torch.set_num_threads(1)
    if "looks_every" in job:
        training._looks_every = lambda _: job["looks_every"]
    if job.get("ranks", 1) > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", init_method=f"file://{job['meet']}", rank=rank, world_size=job["ranks"])
    watch = Watch(job["out"], job.get("kill_at"), job.get("full_from")) if "watch" in job else None
    if "die_in_update" in job:
        die_in_update(job["die_in_update"])
    if "largest_file" in job:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["largest_file"], resource.RLIM_INFINITY))
    model = fresh_model(seed=job.get("seed", 0), **job["model"])
    if "ranks" in job:
        model.double()
    answer = {}
    try:
        log = train(
            model, PAIRS, replace(CONFIG, **job["config"]), val_pairs=VAL_PAIRS, out=job["out"],
            resume=job.get("resume", False),
        )  # fmt: skip
        answer["log"] = log
    except (InputError, KeyboardInterrupt) as error:
        answer["error"] = str(error)
    answer["operations"] = watch.seen if watch else []
    if "ranks" in job:
        torch.save(model.state_dict(), f"{job['weights']}.{rank}")
        dist.destroy_process_group() if job["ranks"] > 1 else None
    return answer


def run(job):
    """The status and the answer of each child of a job."""
    started = []
    for rank in range(job.get("ranks", 1)):
        receive, send = os.pipe()
        process = os.fork()
        if process == 0:
            status = 1
            try:
                os.write(send, json.dumps(child(job, rank)).encode())
                status = 0
            finally:
                os._exit(status)  # nothing of the parent's runs here
        os.close(send)
        started.append((process, receive))
    answers = []
    for process, receive in started:
        with open(receive, "rb") as pipe:
            text = pipe.read()
        answers.append([os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), json.loads(text or b"null")])
    return answers


if __name__ == "__main__":
    train(fresh_model(), PAIRS, replace(CONFIG, steps=1))  # what torch imports late, and not in every child again
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
