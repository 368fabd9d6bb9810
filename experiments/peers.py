"""Run two other test suites beside `check`, on the right and wrong models that this project keeps for its own tests.

`make peers` installs pytest-torch and torchtest2 into a folder of their own, and calls this file. A wrong model counts
as caught if a check complains of it that complains of no right model in the same list. The record is
records/peers.json.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import date
from importlib.metadata import version
from inspect import signature
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree import ElementTree

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from patched import RIGHT_DECODERS, WRONG_DECODERS  # noqa: E402, for tests is no package

from transformer_lib import Transformer, TransformerConfig  # noqa: E402
from transformer_lib.checks import Adapted, check_transformer  # noqa: E402
from transformer_lib.checks.bugs import CASES  # noqa: E402
from transformer_lib.checks.reference_model import ReferenceModel  # noqa: E402

RECORD = ROOT / "records" / "peers.json"
VOCABULARY, PAD = 29, 0


def ours(norm_first: bool) -> Callable[[int, int, int], nn.Module]:
    """The factory of the library's own model, small."""
    sizes: dict[str, Any] = {
        "d_model": 16,
        "num_heads": 4,
        "d_ff": 32,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
    }
    return lambda *given: Transformer(TransformerConfig(*given, **(sizes | {"norm_first": norm_first})))


LISTS = {  # by the family its right and its wrong models, factories as `check` takes them
    "decoder": tuple(
        {name: factory for name, (factory, *_) in models.items() if not name.startswith("encoder")}
        for models in (RIGHT_DECODERS, WRONG_DECODERS)
    ),
    "encoder-decoder": (
        {"reference": ReferenceModel, "post-norm": ours(False), "pre-norm": ours(True)},
        {slug: entry.factory for slug, entry in CASES.items()},
    ),
}


def build(family: str, factory: Callable[..., nn.Module]) -> nn.Module:
    """A model of one of the lists, in evaluation mode, always with the same weights."""
    torch.manual_seed(0)
    return factory(*([VOCABULARY] * (1 + (family == "encoder-decoder"))), PAD).eval()


def tokens(rows: int, length: int) -> Tensor:
    """Random tokens that are no padding."""
    return torch.randint(1, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(length))


class Named(nn.Module):
    """A model with Hugging Face's names for what it reads, which pytest-torch knows; a mask becomes padding tokens."""

    def __init__(self, model: nn.Module, family: str) -> None:
        super().__init__()
        self.model, self.family = model, family

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **target: Tensor) -> Tensor:
        """Logits."""
        if isinstance(self.model, Adapted) and "mask" in signature(self.model.call).parameters:
            return self.model(input_ids, mask=attention_mask)
        return self.model(input_ids.masked_fill(attention_mask == 0, PAD), *target.values())

    def example_inputs(self) -> dict[str, Tensor]:
        """Four sentences, two of them padded at the end."""
        mask = torch.arange(16) < torch.tensor([16, 12, 8, 16])[:, None]
        target = {"decoder_input_ids": tokens(4, 8)} if self.family == "encoder-decoder" else {}
        return {"input_ids": tokens(4, 16).masked_fill(~mask, PAD), "attention_mask": mask.long(), **target}


# --- four ways to test a model: each returns the names of the checks that complain --------------------------------


def by_check(family: str, factory: Callable[..., nn.Module]) -> list[str]:
    """`check --no-training`."""
    return check_transformer(factory, family=family, training=False).failed


def by_torchtest2(family: str, factory: Callable[..., nn.Module]) -> list[str]:
    """`torchtest2.check_model`, with a loss and an optimiser."""
    import torchtest2

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())

    model = build(family, factory)
    inputs = (tokens(8, 10), tokens(8, 9)) if family == "encoder-decoder" else (tokens(8, 9),)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with redirect_stdout(StringIO()):
        report = torchtest2.check_model(model, inputs, tokens(8, 11)[:, :9], loss_fn=loss, optimizer=optimizer)
    return [result.name for result in report.failures]


def by_streaming(family: str, factory: Callable[..., nn.Module]) -> list[str]:
    """pytest-torch's `assert_streaming_equivalent`, wired by hand to the functions of our adapter."""
    from pytest_torch import assert_streaming_equivalent

    model = build(family, factory)
    extend = getattr(model, "extend", None)
    if extend is None:
        return []

    def step(new: Tensor, cache: Any) -> tuple[Tensor, Any]:
        return extend(model.model, new, cache=cache)

    options: dict[str, Any] = {"checks": ("chunked", "reset")} if model.one_cache else {}
    options |= {"chunk_sizes": (1,)} if factory is RIGHT_DECODERS["one token at a time"][0] else {}
    report = assert_streaming_equivalent(
        model, step, tokens(2, 40), init_state=lambda: None, raise_on_failure=False, **options
    )
    return [result.name for result in report.failures]


def by_command(family: str) -> dict[str, list[str]]:
    """`pytest --torch-model=…`, one call for all models of a family: by the model's name the tests that fail."""
    names = [f"{family.replace('-', '_')}_{number}" for number in range(sum(map(len, LISTS[family])))]
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={folder}/found.xml"]
        subprocess.run(
            [*command, "--rootdir", folder, *(f"--torch-model={__file__}:{name}" for name in names)],
            cwd=folder, check=False, capture_output=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        cases = ElementTree.parse(f"{folder}/found.xml").iter("testcase")
        failed = [case.attrib["name"] for case in cases if case.find("failure") is not None]
    models = [name for part in LISTS[family] for name in part]
    found = {model: [name.partition("[")[0] for name in failed if re.search(rf":{number}\b", name)]
             for model, number in zip(models, names)}  # fmt: skip
    return found


def __getattr__(name: str) -> Callable[[], nn.Module]:
    """What pytest-torch's command imports: a model of a list by its number, with the names that it knows."""
    family, _, number = name.rpartition("_")
    family = family.replace("_", "-")
    if family not in LISTS or not number.isdecimal():
        raise AttributeError(name)
    factory = [factory for part in LISTS[family] for factory in part.values()][int(number)]
    return lambda: Named(build(family, factory), family)


def judged(family: str, complaints: dict[str, list[str]]) -> dict[str, Any]:
    """How many wrong models are caught, which are not, and which right ones are blamed by what."""
    right, wrong = LISTS[family]
    blamed = {name: complaints[name] for name in right if complaints[name]}
    trusted = {check for name in wrong for check in complaints[name]} - {c for found in blamed.values() for c in found}
    missed = [name for name in wrong if trusted.isdisjoint(complaints[name])]
    return {"caught": len(wrong) - len(missed), "missed": missed, "blamed": blamed}


def each(way: Callable[..., list[str]]) -> Callable[[str], dict[str, list[str]]]:
    """A way to test one model, for all of a family; an error counts as a complaint."""

    def found(family: str, factory: Callable[..., nn.Module]) -> list[str]:
        try:
            return way(family, factory)
        except Exception as error:
            return [f"raised {type(error).__name__}"]

    return lambda family: {name: found(family, one) for part in LISTS[family] for name, one in part.items()}


WAYS = {
    "check": each(by_check),
    "pytest-torch, its command": by_command,
    "pytest-torch, its call for caches": each(by_streaming),
    "torchtest2, its one call": each(by_torchtest2),
}


def main() -> None:
    """Measure, and replace the record."""
    torch.set_num_threads(1)
    packages = {name: version(name) for name in ("pytest-torch", "torchtest2", "torch")}
    record: dict[str, Any] = {"date": date.today().isoformat(), "packages": packages, "families": {}}
    for family, (right, wrong) in LISTS.items():
        rows = {}
        for way, run in WAYS.items():
            if family != "decoder" and way.endswith("caches"):
                continue
            start = time.process_time()
            rows[way] = judged(family, run(family))
            caught, blamed, seconds = rows[way]["caught"], len(rows[way]["blamed"]), time.process_time() - start
            print(f"{family}, {way}: {caught} of {len(wrong)} caught, {blamed} of {len(right)} blamed, {seconds:.0f} s")
        record["families"][family] = {"right": len(right), "wrong": len(wrong), "ways": rows}
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
