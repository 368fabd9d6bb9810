"""Count what `mutmut run` left in mutants/, hold the survivors against the list, and write down the scores.

The list is tests/survivors.tsv: the module, the mutant's line, and why no test can tell it from the original.
"""

import json
import subprocess
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "records" / "mutation.json"
SURVIVORS = ROOT / "tests" / "survivors.tsv"
SURVIVED = (0, 5, 33)  # mutmut's codes: all tests passed; there was none to run


def changed_line(mutant: str) -> str:
    """The line of a mutant that is not in the original."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    return next(line[1:].strip() for line in get_diff_for_mutant(mutant).splitlines()[3:] if line.startswith("+"))


def main() -> int:
    """Write the record; 1 if a survivor is not listed, or if one that is listed did not survive."""
    found, record = Counter[tuple[str, str]](), {}
    rows = [row.split("\t") for row in SURVIVORS.read_text("utf-8").splitlines()[1:]]
    listed = Counter((module, line) for module, line, _ in rows)
    package = ROOT / "mutants" / "transformer_lib"
    for path in sorted(package.rglob("*.py.meta")):
        module = ".".join(path.relative_to(package).parts).removesuffix(".py.meta")  # decoding.search, for example
        codes = json.loads(path.read_text("utf-8"))["exit_code_by_key"]
        if None in codes.values():
            sys.exit(f"{module}: not all mutants have been run")
        survivors = [(module, changed_line(mutant)) for mutant, code in codes.items() if code in SURVIVED]
        found.update(survivors)
        equivalent = sum((Counter(survivors) & listed).values())
        if codes:
            killed = len(codes) - len(survivors)
            score = round(killed / (len(codes) - equivalent), 4)
            record[module] = {"mutants": len(codes), "killed": killed, "equivalent": equivalent, "score": score}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    header = {"tool": f"mutmut {version('mutmut')}", "python": sys.version.split()[0], "commit": commit}
    RECORD.write_text(json.dumps(header | {"modules": record}, indent=1) + "\n", encoding="utf-8")
    print(RECORD.read_text("utf-8"))
    for what, mutants in (("survived", found - listed), ("no longer survives", listed - found)):
        for module, line in mutants.elements():
            print(f"{what}: {module}: {line}")
    return int(found != listed)


if __name__ == "__main__":
    sys.exit(main())
