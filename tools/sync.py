"""Carry what was edited in transformer_lib/*.py back into the cells of the chapters that write it.

    python tools/sync.py

Each statement goes into the cell that it came from, a new one into that of the statement before it, and an import into
each chapter that uses it. Says what lies where. Where module and chapter both changed, it changes nothing.
"""

import ast
import re
import sys
from difflib import SequenceMatcher
from pathlib import Path

import export
import lock
from export import ROOT, Cell, Part, digest, formatted, parts


def key(part: Part) -> str:
    """What a statement is known by: the names that it defines, or its own text."""
    if isinstance(part.node, ast.Expr) and isinstance(part.node.value, ast.Constant):
        return "the docstring"
    return ", ".join(export.names(part.node)) or ast.unparse(part.node)


def aliases(own: list[Part]) -> set[str]:
    """What some statements import, a line for each name."""
    found = set()
    for part in own:
        if isinstance(part.node, ast.ImportFrom):
            found |= {ast.unparse(ast.ImportFrom(part.node.module, [alias], 0)) for alias in part.node.names}
        elif isinstance(part.node, ast.Import):
            found |= {ast.unparse(ast.Import([alias])) for alias in part.node.names}
    return found


def placed(own: list[Cell], new: list[Part]) -> list[list[Part]]:
    """The statements of a module's new text, those that each of its cells should hold; imports left out."""
    old = [(number, part) for number, cell in enumerate(own) for part in statements(cell)]
    found: list[list[Part]] = [[] for _ in own]
    keys = [key(part) for _, part in old], [key(part) for part in new]
    for kind, i, i_end, j, j_end in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        for place in range(j, j_end):
            neighbour = i - 1 if kind == "insert" else min(i + place - j, i_end - 1)
            found[old[max(neighbour, 0)][0]].append(new[place])
    return found


def statements(cell: Cell) -> list[Part]:
    """What a cell holds besides imports."""
    return [part for part in parts(cell.source, cell.module) if not part.is_import]


def carried(own: list[Cell], text: str) -> list[str]:
    """The sources that the cells of one module need, so that it has this text."""
    new = parts(export.unmarked(text), own[0].module)
    rests = placed(own, [part for part in new if not part.is_import])
    have = [aliases(parts(cell.source, cell.module)) for cell in own]
    wanted = [lines & aliases(new) for lines in have]
    for line in aliases(new).difference(*have):  # into the first cell of each chapter that uses it, or of all
        used = re.compile(rf"\b{line.split()[-1].split('.')[0]}\b")
        users = [cell.chapter for cell, rest in zip(own, rests) if any(used.search(part.text) for part in rest)]
        for chapter in {*users} or {own[0].chapter}:
            wanted[[cell.chapter for cell in own].index(chapter)].add(line)
    return [source(*each) for each in zip(own, rests, have, wanted)]


def source(cell: Cell, rest: list[Part], have: set[str], wanted: set[str]) -> str:
    """A cell with these statements and these imports; as it was, if it has them."""
    if have == wanted and [part.text.strip() for part in rest] == [part.text.strip() for part in statements(cell)]:
        return cell.source
    imports = [part.text for part in parts(cell.source, cell.module) if part.is_import]
    if have != wanted:
        imports = [f"{line}\n" for line in sorted(wanted)]
    docstring = [f"{part.text}\n" for part in rest[:1] if key(part) == "the docstring"]
    text = "".join([*docstring, *imports, *(part.text for part in rest[len(docstring) :])])
    return formatted({"cell.py": text})["cell.py"].strip("\n")


def main() -> str:
    """Carry all edits; return why not, or an empty text."""
    wanted, known, own = export.package(), lock.read(ROOT), export.cells()
    present = {path: (ROOT / path).read_text(encoding="utf-8") for path in export.edited()}
    edited = [path for path in present if present[path] != wanted.get(path)]
    for path in edited:
        where = ", ".join(dict.fromkeys(f"chapters/{cell.chapter.name}" for cell in own if cell.module == path))
        if not where:
            return f"{path} follows from the front matter of the chapters: edit that, and delete {path}"
        if digest(wanted[path]) != known[path]:
            return f"{path} and {where} both changed since the last export: undo one of the two, then try again"
    after = wanted | formatted({path: present[path] for path in edited})
    before = {chapter: chapter.read_text(encoding="utf-8") for chapter in export.chapters()}
    texts, said = dict(before), []
    for path in dict.fromkeys(cell.module for cell in own):
        of_it = [cell for cell in own if cell.module == path]
        for cell, new in zip(of_it, carried(of_it, after[path])):
            if new == cell.source:
                continue
            beginning, found, end = texts[cell.chapter].partition(f"\n{cell.source}\n```\n")
            where = f"chapters/{cell.chapter.name}:{beginning.count(chr(10)) + 2}"
            if not new or not found or found in end:
                return f"{path}: the cell at {where} would be empty, or stands there twice: edit that chapter itself"
            texts[cell.chapter] = f"{beginning}\n{new}\n```\n{end}"
            same = {part.text.strip() for part in parts(cell.source, path)}
            what = [key(part) for part in parts(new, path) if part.text.strip() not in same]
            said.append(f"{path}: {', '.join(what) or 'less'} -> {where}")
    _write(before, texts)
    made = export.package()
    if wrong := [path for path in made if made[path] != after[path]]:
        _write(texts, before)
        return f"{', '.join(wrong)} cannot be made of cells as it is: put the change into its chapter"
    export.write(made)
    print("\n".join(said) or "nothing to carry")
    return ""


def _write(before: dict[Path, str], after: dict[Path, str]) -> None:
    for chapter, text in after.items():
        if text != before[chapter]:
            chapter.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main() or 0)
