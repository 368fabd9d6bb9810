"""What the trainings of chapters 15 and 17 print where Multi30k is: the pages' own cells, run on the captions.

Kept as it made captions.json; no test runs it. With the data, and with PYTHONPATH=.:experiments, as
python records/captions.py 15
python records/captions.py 17 MINUTES
"""

import io
import json
import sys
import tempfile
import time
from contextlib import chdir, redirect_stdout
from pathlib import Path

import jupytext
import torch
from record import environment, pretty_json

from transformer_lib.files import atomic_write

ROOT = Path(__file__).resolve().parent.parent
PARTS = {  # of a page: where its cells begin, where they end
    "15": ("15_variants", "(sec-variants-gpt)=", "(sec-variants-bert)="),
    "17": ("17_multi30k", "(sec-multi30k-twenty)=", "(sec-multi30k-scores)="),
}


def main(number: str, minutes: str = "0") -> None:
    """Run one page's cells, and keep what those with the tag `recorded` print."""
    page, begin, end = PARTS[number]
    text = (ROOT / f"chapters/{page}.md").read_text(encoding="utf-8")
    where = environment()  # the commit whose cells these are
    cells = jupytext.reads(text.partition(begin)[2].partition(end)[0], fmt="md:myst").cells
    names: dict = {}
    printed = []
    time.monotonic = time.process_time  # minutes are those of one free core, whatever else the machine does
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as empty, chdir(empty):  # no file of a reader's: all parts are the solution's
        for cell in (cell for cell in cells if cell.cell_type == "code"):
            if any(part in cell.source for part in ('shipped("captions.json")', "recorded[", "yours[", "plt.")):
                continue  # what reads the record, and the pictures
            with redirect_stdout(io.StringIO()) as output:
                exec(cell.source.replace("minutes = 0", f"minutes = {minutes}"), names)
            if "recorded" in cell.metadata.get("tags", []):
                printed.append(output.getvalue().rstrip())
    assert names["data"].name == "multi30k"
    command = f"python records/captions.py {number}" + (f" {minutes}" if number == "17" else "")
    made = {"command": command} | where | {"threads": torch.get_num_threads(), "seed": 0}
    made |= {"minutes of one core": round((time.monotonic() - start) / 60, 1)}
    path = ROOT / "records/captions.json"
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    atomic_write(path, pretty_json(stored | {number: {"made": made, "printed": printed}}))


if __name__ == "__main__":
    main(*sys.argv[1:])
