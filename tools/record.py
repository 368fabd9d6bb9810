"""Score a finished training run on Multi30k's test set, and write down what it was.

python tools/record.py RUN RECORD.json COMMAND   RUN is what `train --out` wrote, COMMAND how it was called
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from transformer_lib.data import load_multi30k
from transformer_lib.translation import Translator, evaluate_bleu


def record(run: Path, command: str) -> dict:
    """What a reader needs to judge and to repeat a run: scores, commands, device, versions, commit, seed."""
    test = load_multi30k("test_2016_flickr")
    scores = evaluate_bleu(Translator.from_pretrained(run).translate(test.source), test.target)
    last = json.loads((run / "log.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"CPU, {os.cpu_count()} cores"
    seed = command.split("--seed")[1].split()[0] if "--seed" in command else "0"
    return {
        "command": command,
        "evaluation": f"python -m transformer_lib evaluate --model {run} --corpus multi30k --split test_2016_flickr",
        "device": device,
        "torch": torch.__version__,
        "commit": commit.stdout.strip(),
        "seed": int(seed),
        "steps": last["step"],
        "target_tokens": last["tokens"],
        "seconds": last["seconds"],
        "scores": scores,
    }


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    Path(sys.argv[2]).write_text(json.dumps(record(Path(sys.argv[1]), sys.argv[3]), indent=1) + "\n", encoding="utf-8")
