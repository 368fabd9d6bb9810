"""What a child does, forked from a process that has imported this module: it trains as in `test_training.py`.

It may kill itself while it writes a file or in a step, be allowed no large files, or be one of several that train.
"""

import os
import resource
import signal
from dataclasses import replace
from pathlib import Path

import safetensors.torch
import torch
import torch.distributed as dist
from test_training import CONFIG, PAIRS, VAL_PAIRS, fresh_model
from torch.optim.optimizer import register_optimizer_step_pre_hook

from transformer_lib.files import InputError
from transformer_lib.training import loop as training
from transformer_lib.training import train

train(fresh_model(), PAIRS, replace(CONFIG, steps=1))  # what torch imports late, and not in every child again


def die(at, number):
    """SIGKILL when something happens for the `number`-th time: "half", "written" or "renamed" a file, or "step"."""
    seen = []

    def reached(event):
        seen.append(event)
        if seen.count(at) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    serialize, rename = safetensors.torch.serialize_file, Path.replace

    def watched_serialize(tensors, path, metadata=None):
        serialize(tensors, path, metadata)
        if seen.count("half") + 1 == number and at == "half":
            os.truncate(path, os.path.getsize(path) // 2)
        reached("half")
        reached("written")

    def watched_rename(self, target):
        rename(self, target)
        reached("renamed")

    safetensors.torch.serialize_file, Path.replace = watched_serialize, watched_rename
    register_optimizer_step_pre_hook(lambda *_: reached("step"))


def child(job, rank, answers):
    """Send what there is to say in the end; one that is killed says nothing."""
    torch.set_num_threads(1)
    training.READ_EVERY["cpu"] = job.get("read_every", 1)
    if job.get("ranks", 1) > 1:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", init_method=f"file://{job['meet']}", rank=rank, world_size=job["ranks"])
    if "die" in job and rank == job.get("dies", 0):
        die(*job["die"])
    if "largest_file" in job:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (job["largest_file"], resource.RLIM_INFINITY))
    model = fresh_model(seed=job.get("seed", 0), **job["model"])
    if "ranks" in job:
        model.double()
    answer = {}
    try:
        config, resume = replace(CONFIG, **job["config"]), job.get("resume", False)
        answer["log"] = train(model, PAIRS, config, val_pairs=VAL_PAIRS, out=job["out"], resume=resume)
    except (InputError, KeyboardInterrupt) as error:
        answer["error"] = str(error)
    if "ranks" in job:
        torch.save(model.state_dict(), f"{job['weights']}.{rank}")
        dist.destroy_process_group() if job["ranks"] > 1 else None
    answers.send(answer)
