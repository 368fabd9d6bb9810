"""Write the parts of the book's pages that are made of tables; the text around them is written by hand.

python tools/pages.py           write them
python tools/pages.py --check   exit 1 if one of them differs from its table
"""

import csv
import json
import re
import sys
from pathlib import Path

from export import PACKAGE, ROOT, chapters

EQUIVALENCE = ROOT / "records" / "equivalence.json"
BENCH = ROOT / "records" / "bench.json"
TOPICS = ROOT / "book" / "topics.tsv"
GALLERY = ROOT / "book" / "gallery.tsv"
API = ROOT / "book" / "api.md"  # its table is the package itself
BEGIN, END = "% written by tools/pages.py\n", "% end\n"

# --- the equivalence ladder --------------------------------------------------------------------------------------

SECTIONS = {  # where each component is taught
    "attention": "sec-attention-formula",
    "self-attention": "sec-multi-head-formula",
    "cross-attention": "sec-multi-head-formula",
    "causal self-attention": "sec-masks-formula",
    "positions": "sec-positions-formula",
    "feed-forward": "sec-layers-feed-forward",
    "encoder layer": "sec-layers-classes",
    "decoder layer": "sec-layers-classes",
    "encoder": "sec-model-stacks",
    "decoder": "sec-model-stacks",
    "Transformer": "sec-model-formula",
}


def digits(entry: float) -> str:
    """A number as the table shows it, like 2e-16."""
    mantissa, _, exponent = f"{entry:.0e}".partition("e")
    return f"{mantissa}e{int(exponent)}" if entry else "exact"


def equivalence_table() -> str:
    """What records/equivalence.json says: the table, its notes, and what it was measured with."""
    stored = json.loads(EQUIVALENCE.read_text(encoding="utf-8"))
    reasons: list[str] = []

    def cell(entry: float | str) -> str:
        if not isinstance(entry, str):
            return digits(entry)
        if entry == "the judge":
            return "judge"
        if entry not in reasons:
            reasons.append(entry)
        return ("NaN" if entry.startswith("NaN") else "—") + "¹²³⁴⁵⁶⁷⁸⁹"[reasons.index(entry)]

    conditions = list(next(iter(stored["components"].values()))["bound"])
    lines = ["| | " + " | ".join(conditions) + " |", "|---" * (len(conditions) + 1) + "|"]
    for component, ways in stored["components"].items():
        for way, row in ways.items():
            cells = [cell(row[condition]) for condition in conditions]
            if way == "bound":  # the first line of each component
                way = f"**{{ref}}`{component} <{SECTIONS[component]}>`**"
                cells = [f"≤ {entry}" if entry[0].isdigit() else entry for entry in cells]
            lines.append("| " + " | ".join([way, *cells]) + " |")
    notes = "\n".join(f"{number}. {reason[0].upper()}{reason[1:]}." for number, reason in enumerate(reasons, 1))
    table = "\n".join([":::{div} ladder", *lines, ":::"])
    return f"{table}\n\n{notes}\n\nMeasured with torch {stored['torch']}.\n"


# --- the benchmarks ----------------------------------------------------------------------------------------------

NOTHING_ENDS = "The end token's embedding is zero, so no sentence ends early."


def milliseconds(time: float) -> str:
    """A time in seconds as the table shows it, like 1,234 ms or 5.67 ms."""
    return f"{1000 * time:,.0f} ms" if time >= 0.1 else f"{1000 * time:.3g} ms"


def bench_group(group: dict) -> str:
    """The table of one comparison, under its name and its settings."""
    threads = f"{group['threads']} thread{'s' * (group['threads'] > 1)}"
    settings = [threads, *(f"{name.replace('_', ' ')} {value}" for name, value in group["settings"].items())]
    columns = {
        "System": lambda row: row["system"],
        "Median": lambda row: milliseconds(row["median_seconds"]),
        "Times ours": lambda row: f"{row['ratio']:.2f}",
        "Rounds": lambda row: str(row["rounds"]),
    }
    if "target_tokens" in group["rows"][0]:
        columns["Target tokens a second"] = lambda row: f"{row['target_tokens'] / row['median_seconds']:,.0f}"
    if "flops" in group["rows"][0]:
        share = "Share of the fastest product of matrices"
        columns[share] = lambda row: f"{row['flops'] / row['median_seconds'] / row['ceiling_flops_per_second']:.1%}"
    if "bleu" in group["rows"][0]:
        columns["BLEU"] = lambda row: f"{row['bleu']:.2f}"
        columns["Memory over PyTorch"] = lambda row: f"{row['extra_mib']:,} MiB" if "extra_mib" in row else "—"
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(cell(row) for cell in columns.values()) + " |" for row in group["rows"]]
    note = f" {NOTHING_ENDS}" if group["name"].startswith("decoding") else ""
    return f"### {group['name'].capitalize()}\n\n" + "\n".join(lines) + f"\n\n{'; '.join(settings)}.{note}\n"


def bench_memory(rows: list[dict]) -> str:
    """The table of what attention keeps: a line for each length, a column for each path."""
    systems, lengths = ([*dict.fromkeys(row[name] for row in rows)] for name in ("system", "length"))
    kept = {(row["system"], row["length"]): f"{row['bytes'] / 2**20:,.1f} MiB" for row in rows}
    lines = ["| Length | " + " | ".join(systems) + " |", "|---" * (len(systems) + 1) + "|"]
    lines += [f"| {n:,} | " + " | ".join(kept.get((name, n), "—") for name in systems) + " |" for n in lengths]
    return "### Memory of one attention\n\n" + "\n".join(lines) + "\n"


def bench_record(path: Path) -> str:
    """What one record says: its tables, and what it was measured with and on."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    packages = ", ".join(f"{name} {version}" for name, version in stored["versions"].items())
    parts = [f"## {stored['device']}\n", *map(bench_group, stored["groups"]), bench_memory(stored["memory"])]
    return "\n".join(parts) + (
        f"\n`{stored['command']}`, {stored['date']}, commit `{stored['commit'][:12]}`, seed {stored['seed']}. "
        f"Python {stored['python']}, torch {stored['torch']}, {packages}.\n"
    )


def bench_tables() -> str:
    """What records/bench.json says, and beside it the record of a GPU, if there is one."""
    records = (BENCH, BENCH.with_name("bench-cuda.json"))
    return "\n".join(bench_record(record) for record in records if record.exists())


# --- the topics that the course must teach ------------------------------------------------------------------------


def rows(table: Path) -> list[dict[str, str]]:
    """The rows of a table, by the names of its columns."""
    with table.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def twice(names: list[str]) -> list[str]:
    """The names that are there more than once."""
    return sorted({name for name in names if names.count(name) > 1})


def found(pattern: str) -> dict[str, list[str]]:
    """What each chapter has of a pattern, in order; the pattern is a whole line."""
    return {
        chapter.stem.partition("_")[0]: re.findall(f"^{pattern}$", chapter.read_text(encoding="utf-8"), re.MULTILINE)
        for chapter in chapters()
    }


def labels() -> dict[str, list[str]]:
    """The labels of each chapter."""
    return found(r"\(([\w-]+)\)=")


def topic_problems() -> list[str]:
    """Topics twice, and topics that no section teaches."""
    known, every = labels(), rows(TOPICS)
    return [f"book/topics.tsv: topic {name} is there twice" for name in twice([row["id"] for row in every])] + [
        f"book/topics.tsv: chapter {row['chapter']} has no section ({row['label']})= for topic {row['id']}, "
        f"{row['topic']!r}: write it, or correct the label"
        for row in every
        if row["label"] not in known.get(row["chapter"], [])
    ]


# --- the gallery ---------------------------------------------------------------------------------------------------


def gallery_table() -> str:
    """What book/gallery.tsv says: a line for each mistake, with a link to the place that shows it."""
    lines = ["| Mistake | What happens | Number | Caught by | Shown in |", "|---" * 5 + "|"]
    for row in rows(GALLERY):
        cells = [row[name][:1].upper() + row[name][1:] for name in ("what", "symptom")]
        cells += [row["number"], row["caught"], f"{{ref}}`{row['label']}`"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join([":::{div} gallery", *lines, ":::"]) + "\n"


def gallery_problems() -> list[str]:
    """Mistakes twice, with an empty column, or without a place that shows them."""
    known, every = {label for chapter in labels().values() for label in chapter}, rows(GALLERY)
    return [f"book/gallery.tsv: {slug} is there twice" for slug in twice([row["slug"] for row in every])] + [
        f"book/gallery.tsv: {row['slug']}: {complaint}"
        for row in every
        for complaint, true in (
            (f"no chapter has ({row['label']})=: write it, or correct the label", row["label"] not in known),
            ("a column is empty", not all(row.values())),
        )
        if true
    ]


# --- the library ---------------------------------------------------------------------------------------------------


def module_list() -> str:
    """A section for each module of the package, in the order of the chapters; graders stand in the chapters."""
    sections = []
    for chapter in chapters():
        label = re.findall(r"^\((ch-[\w-]+)\)=$", chapter.read_text(encoding="utf-8"), re.MULTILINE)
        for file in sorted((ROOT / PACKAGE).rglob("*.py")):  # a module of several pages, at the first
            written_here = file.read_text(encoding="utf-8").startswith(f"# Generated from chapters/{chapter.name}")
            if written_here and file.parent.name != "exercises":
                module = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
                directive = f"```{{eval-rst}}\n.. automodule:: {module}\n```"
                heading = module.removeprefix(f"{PACKAGE}.").replace("_", r"\_")  # short, and it may break
                sections.append(f"## {heading}\n\n`{module}`, written in {{ref}}`{label[0]}`.\n\n{directive}\n")
    return "\n".join(sections)


# --- all -----------------------------------------------------------------------------------------------------------


def pages() -> dict[Path, str]:
    """Every page that has a part made of a table, and its text."""
    made = {}
    for table, make in (
        (EQUIVALENCE, equivalence_table),
        (BENCH, bench_tables),
        (GALLERY, gallery_table),
        (API, module_list),
    ):
        page = ROOT / "book" / f"{table.stem}.md"
        if page.exists():
            before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
            made[page] = before + BEGIN + make() + END + rest.partition(END)[2]
    return made


def problems() -> list[str]:
    """What stands on these pages that their tables do not say, and what is missing from the tables."""
    stale = [page.name for page, text in pages().items() if page.read_text(encoding="utf-8") != text]
    missing = (topic_problems() if TOPICS.exists() else []) + (gallery_problems() if GALLERY.exists() else [])
    return missing + [f"book/{name} differs from its table: run `python tools/pages.py`" for name in stale]


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit("\n".join(problems()) or 0)
    for page, text in pages().items():
        if page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")
            print("wrote", page.relative_to(ROOT))
