"""Run `check` on every model for text of the installed transformers, and write down what it finds.

python experiments/zoo.py [SEED …]

Each causal, masked and sequence-to-sequence architecture that can be built small is examined, each in a process of its
own, without a network. What the record has is not asked again, unless the versions are others.
"""

import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto

from transformer_lib.checks.hf import check_configuration, configured
from transformer_lib.checks.properties import PROPERTIES
from transformer_lib.files import InputError, atomic_write

RECORD = Path(__file__).resolve().parent.parent / "records" / "zoo.json"
PAD_ID = 3  # bos and eos are 0 and 1: who has one of these in its code is seen
ASKED = {entry.name for entry in PROPERTIES} - {"sizes and padding are those asked for"}  # it asks the others again
FAMILIES = {"decoder": "CAUSAL_LM", "encoder": "MASKED_LM", "encoder-decoder": "SEQ_TO_SEQ_CAUSAL_LM"}


def architectures() -> dict[str, tuple[str, str]]:
    """A configuration and a family for each model type that has one, by both."""
    found = {}
    for family, name in FAMILIES.items():
        for model_type in getattr(modeling_auto, f"MODEL_FOR_{name}_MAPPING_NAMES"):
            found[f"{family} {model_type}"] = transformers.CONFIG_MAPPING[model_type].__name__, family
    return found


def examine(configuration: str, family: str, seed: int) -> dict[str, Any]:
    """How many properties pass, and what is said of those that fail; or why there is no answer."""
    options: dict[str, Any] = {"training": False, "only": ASKED, "pad_id": PAD_ID, "seed": seed}
    try:
        report = check_configuration(configuration, family=family, seconds=120, memory=8 << 30, **options)
    except InputError as error:
        return {"error": str(error)}
    failed = {f.name: f.evidence for f in report.findings if f.verdict == "fail"}
    unasked = [f.name for f in report.findings if f.verdict == "not applicable" and not f.about_others]
    passed = sum(f.verdict == "pass" for f in report.findings)
    return {"passed": passed, "failed": failed, "not applicable": unasked}


def main(seeds: list[int], workers: int = 2) -> None:
    """Fill the record."""
    versions = {"transformers": transformers.__version__, "torch": torch.__version__.partition("+")[0]}
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if record.get("versions") != versions:
        record = {"versions": versions, "pad_id": PAD_ID, "models": {}}
    configured("LlamaConfig")[0](29, PAD_ID)  # what every model imports is imported once, before the processes part
    with ProcessPoolExecutor(workers) as pool:
        for seed in seeds:
            asked = {}
            for name, (configuration, family) in architectures().items():
                entry = record["models"].setdefault(name, {"configuration": configuration, "seeds": {}})
                if str(seed) not in entry["seeds"]:
                    asked[pool.submit(examine, configuration, family, seed)] = name
            for number, answer in enumerate(as_completed(asked), start=1):
                found = record["models"][asked[answer]]["seeds"][str(seed)] = answer.result()
                atomic_write(RECORD, json.dumps(record, indent=1) + "\n")
                said = found.get("error") or f"{found['passed']} pass, {', '.join(found['failed']) or 'none'} fail"
                print(f"seed {seed}, {number} of {len(asked)}: {asked[answer]}: {said}", flush=True)


if __name__ == "__main__":
    main([int(seed) for seed in sys.argv[1:]] or [0, 1, 2])
