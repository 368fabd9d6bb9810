"""What a reader finds who leaves every fold shut, and what stays shut until it is wanted."""

import ast
import io
import re
import symtable
import tokenize
from pathlib import Path

import jupytext
import pytest

ROOT = Path(__file__).resolve().parent.parent
MAIN = [path for path in sorted((ROOT / "chapters").glob("*.md")) if re.match(r"(0[1-9]|1[0-7])_", path.stem)]
FOLDED = {"hide-cell", "hide-input", "remove-cell", "remove-input"}


def code(source):
    """A cell without IPython's own lines."""
    return "".join("\n" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines(keepends=True))


def names(source):
    """The names that a cell uses, those that it makes, and those that it imports from other packages than ours."""
    tables = [symtable.symtable(source, "cell", "exec")]
    top = tables[0].get_symbols()
    made = {s.get_name() for s in top if s.is_assigned() or s.is_namespace() or s.is_imported()}
    used = {s.get_name() for s in top if s.is_referenced()}
    while tables:
        inner = tables.pop().get_children()
        used |= {s.get_name() for table in inner for s in table.get_symbols() if s.is_global()}
        tables += inner
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    others = [node for node in imports if not (getattr(node, "module", None) or "").startswith("transformer_lib")]
    return used, made, {alias.asname or alias.name for node in others for alias in node.names}


def words(text):
    return set(re.findall(r"\w+", text))


def comments(source):
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return " ".join(token.string for token in tokens if token.type == tokenize.COMMENT)


def unexplained(cells):
    """Names that a visible cell uses, that a folded one makes, and that neither text nor comments mention before."""
    known, folded, solution = set(), set(), False
    for cell in cells:
        if cell.cell_type == "markdown":
            known |= words(" ".join(re.findall(r"`([^`\n]+)`", cell.source)))
            solution = "{solution-start}" in cell.source or (solution and "{solution-end}" not in cell.source)
            continue
        source, tags = code(cell.source), set(cell.metadata.get("tags", []))
        used, made, others = names(source)
        if solution or tags & FOLDED:
            folded |= made - others
        elif not any(tag.startswith("export") for tag in tags):  # those are a module, whose beginning is folded
            known |= words(comments(source))
            if missing := (used & folded) - known - made:
                yield source.splitlines()[0], sorted(missing)
            known |= made


@pytest.mark.parametrize("chapter", MAIN, ids=lambda path: path.stem)
def test_visible_code_uses_no_name_that_only_a_folded_cell_explains(chapter):
    assert list(unexplained(jupytext.read(chapter).cells)) == []


def test_such_a_name_would_be_found():
    text = '```{code-cell} ipython3\n:tags: [hide-input]\n\nx = 1\n```\n\nText.\n\n```{code-cell} ipython3\nprint(x)\n```\n'
    head = "---\njupytext: {text_representation: {extension: .md, format_name: myst}}\n---\n\n"
    assert [*unexplained(jupytext.reads(head + text, "md:myst").cells)] == [("print(x)", ["x"])]
    for better in (text.replace("Text.", "`x` is one."), text.replace("print(x)", "print(x)  # x is one")):
        assert [*unexplained(jupytext.reads(head + better, "md:myst").cells)] == []
