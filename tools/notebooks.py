"""Write the chapters as notebooks that every notebook program shows as they are meant: CommonMark, and no MyST.

    python tools/notebooks.py FOLDER            all of them
    python tools/notebooks.py FOLDER --start    the main line without outputs, as `start` and a wheel have it

The executed notebooks in book/ are taken apart: formulas stand between $$, admonitions are block quotes, hints and
solutions unfold, and measured numbers stand where the cells had put them. A reference leads to a notebook beside it,
or to the published page if the repository has an address on the web, or says which page it means. Each notebook runs
by itself, in any folder.
"""

import ast
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from execute import FIGURES, notebook_path
from export import PACKAGE, ROOT, chapters
from reach import code_of

sys.path.append(str(ROOT / "tools/sphinx"))

import address
from measured import glued
from page_numbers import number_of

START, END = "\0solution\0", "\0end\0"
FENCE = re.compile(r"(`{3,}|:{3,})(?:\{([\w-]+)\} *(.*)|.*)")


MAIN_LINE = re.compile(r"tour|\d\d_\w+")


def published(text: str, page: str, anchor: str = "") -> str:
    """A link to a page of the published book; only its text if there is no such book."""
    site = address.site(address.repository())
    if not site:
        return text
    anchor = re.sub(r"[^a-z0-9]+", "-", anchor.lower())
    return f"[{text}]({site}/book/{page}.html{'#' * bool(anchor)}{anchor})"


@cache
def name_of(page: str) -> str:
    """What a page is called where no link can lead to it."""
    number = ".".join(map(str, number_of(f"book/{page}")))
    title = next((title for other, _, title in targets().values() if other == page and title), page)
    title = re.sub(r"\{[\w:]+\}`([^`<]+?)(?: *<[^`]*)?`", r"\1", title)
    return f"page {number}{' in depth' * ('.' in number)}, *{title}*" if number else f"page *{title}* of the book"


@cache
def targets() -> dict[str, tuple[str, str, str]]:
    """What a label in chapters/ or book/ leads to: its page, its number, and its title."""
    found: dict[str, tuple[str, str, str]] = {}
    named = re.compile(
        r"^\((?P<section>[\w-]+)\)=\n+#+ (?P<title>.+)|figure: \{name: (?P<figure>[\w-]+)|^:name: (?P<drawn>[\w-]+)"
        r"|^`{3,}\{math\}\n:label: (?P<formula>[\w-]+)|^`{3,}\{exercise\}(?P<about>.*)\n:label: (?P<exercise>[\w-]+)",
        re.MULTILINE,
    )
    for path in [*chapters(), *sorted((ROOT / "book").glob("*.md"))]:
        number = ".".join(map(str, number_of(f"book/{path.stem}")))
        counts: Counter[str] = Counter()
        for match in named.finditer(path.read_text(encoding="utf-8")):
            kinds = {"figure": "figure", "drawn": "figure", "formula": "formula", "exercise": "exercise"}
            kind, label = next((kind, match[name]) for name, kind in ({"section": ""} | kinds).items() if match[name])
            counts[kind] += 1
            own = f"{number}.{counts[kind]}".lstrip(".") if kind else number if counts[""] == 1 else ""
            found[label] = path.stem, own, match["title"] or ""
    return found


@cache
def sources() -> dict[str, dict[str, str]]:
    """The fields of each source by its key. `start` needs this, so no package reads the file, which is our own."""
    text = (ROOT / "book/references.bib").read_text(encoding="utf-8")
    entries = re.findall(r"^@\w+\{([^,]+),\n(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    return {key: dict(re.findall(r"^ *(\w+) *= *\{(.*)\},?$", fields, re.MULTILINE)) for key, fields in entries}


ACCENTS = {"'": "\u0301", "`": "\u0300", '"': "\u0308", "^": "\u0302", "~": "\u0303", "v": "\u030c", "c": "\u0327"}


def plain(latex: str) -> str:
    """A field of the bibliography without TeX."""
    text = re.sub(r"\\(['`\"^~]|[vc](?=\{)) *\{?\\?(\w)\}?", lambda found: found[2] + ACCENTS[found[1]], latex)
    for tex, sign in (("{", ""), ("}", ""), (r"\L", "Ł"), (r"\&", "&"), ("--", "–"), ("``", "“"), ("''", "”")):
        text = text.replace(tex, sign)
    return unicodedata.normalize("NFC", text)


def cited(key: str) -> tuple[str, str]:
    """Authors and year of a source."""
    fields = sources()[key]
    names = [plain(name.partition(",")[0]) for name in fields["author"].split(" and ")]
    return names[0] + " et al." if len(names) > 2 else " and ".join(names), fields["year"]


def reference(key: str) -> str:
    """A line about a source."""
    fields = sources()[key]
    where = fields.get("url") or ("doi" in fields and f"https://doi.org/{fields['doi']}") or fields.get("journal", "")
    return f"- {' ('.join(cited(key))}). *{plain(fields.get('title', key))}*. {plain(where)}"


class Page:
    """One notebook on its way from MyST to CommonMark."""

    def __init__(self, path: Path, beside: Collection[str] = ()) -> None:
        self.page = path.stem
        self.beside = beside
        self.stored = nbformat.read(path, as_version=4)
        self.cited: list[str] = []
        self.figures: list[tuple[str, Path]] = []
        self.glued = glued(path)

    # --- text ---

    def linked(self, text: str, page: str, anchor: str) -> str:
        """A reference that leads to its page, or says which one it is."""
        if page == self.page:
            return text
        if page in self.beside:
            return f"[{text}]({page}.ipynb)"
        link = published(text, page, anchor)
        name = name_of(page)
        return (
            link
            if link != text
            else name
            if text.strip("*") == name.partition("*")[2].rpartition("*")[0]
            else f"{text} ({name})"
        )

    def role(self, match: re.Match) -> str:
        """A role of MyST as text."""
        role, content = match.groups()
        named = re.fullmatch(r"(.+?)\s*<([^<>]+)>", content, re.DOTALL)
        text, target = named.groups() if named else ("", content)
        if role.startswith("cite"):
            return self.citation(content, bracketed=role == "cite:p")
        if role == "glue:text":
            name, _, form = content.partition(":")
            return format(self.glued[name], form)
        if role == "term":
            return published(text or target, "glossary", f"term-{target}")
        if role.startswith("py:"):
            name = text or (target.rpartition(".")[2] if target.startswith("~") else target)
            return f"`{name}`"
        if target not in targets():
            return text or f"`{target}`"
        page, number, title = targets()[target]
        if role == "eq":
            return self.linked(f"({number})", page, target)
        kind = {"fig": "Fig. ", "ex-": "Exercise "}.get(target[:3], "")
        if "%s" in text:
            text = text.replace("%s", number)
        elif role == "numref" or kind:
            text = text or f"{kind}{number} {title}".strip()
        return self.linked(self.inline(text) if text else f"*{self.inline(title)}*", page, target)

    def citation(self, keys: str, *, bracketed: bool) -> str:
        """Sources as (authors, year) or as authors (year)."""
        parts = []
        for key, note in re.findall(r"([\w:.+-]+)(?:\{([^}]*)\})?", keys):
            self.cited.append(key)
            who, year = cited(key)
            rest = ", ".join(filter(None, (year, note)))
            parts.append(published(f"{who}, {rest}" if bracketed else f"{who} ({rest})", "bibliography"))
        return f"({'; '.join(parts)})" if bracketed else " and ".join(parts)

    def inline(self, text: str) -> str:
        """Text without roles."""
        return re.sub(r"\{([\w:]+)\}`([^`]+)`", self.role, text)

    def text(self, source: str) -> str:
        """Markdown without MyST; where a solution begins and ends stand START and END."""
        lines, parts, prose = iter(source.split("\n")), [], []
        for line in lines:
            fence = FENCE.fullmatch(line)
            if not fence:
                prose += [] if re.fullmatch(r"\([\w-]+\)=", line) else [line]
                continue
            body = []
            for inner in lines:
                if inner.strip() == fence[1]:
                    break
                body.append(inner)
            own = (
                self.directive(fence[2], fence[3], "\n".join(body)) if fence[2] else "\n".join([line, *body, fence[1]])
            )
            parts += [self.inline("\n".join(prose)), own]
            prose = []
        parts.append(self.inline("\n".join(prose)))
        return "\n\n".join(part.strip("\n") for part in parts if part.strip())

    def directive(self, name: str, title: str, body: str) -> str:
        """A directive of MyST as Markdown."""
        options = dict(re.findall(r"^:([\w-]+): *(.*)$", body.partition("\n\n")[0], re.MULTILINE))
        body = re.sub(r"\A(:[\w-]+:.*\n?)+", "", body).strip("\n")
        if name == "math":
            _, number, _ = targets().get(options.get("label", ""), ("", "", ""))
            if "\\\\" in body and not body.startswith("\\begin"):
                body = f"\\begin{{aligned}}\n{body}\n\\end{{aligned}}"
            tag = f" \\tag{{{number}}}" if number else ""
            return f"$$\n{body}{tag}\n$$"
        if name == "raw":  # it needs the page's scripts
            return ""
        if name == "solution-start":
            return START
        if name == "solution-end":
            return END
        title = self.inline(title)
        if name == "dropdown":
            return folded(title, self.text(body))
        if name == "exercise":
            number = targets()[options["label"]][1]
            return f"**Exercise {number}. {title}** (`{options['label'].removeprefix('ex-')}`)\n\n{self.text(body)}"
        if name == "figure":
            path = ROOT / "book" / title
            self.figures.append((path.name, path))
            return f"![{options.get('alt', '')}](attachment:{path.name})\n\n*{self.caption(options['name'], body)}*"
        text = re.sub(r"\$\$.*?\$\$", lambda formula: formula[0].replace("\n", " "), self.text(body), flags=re.DOTALL)
        return "\n".join(f"> {line}".rstrip() for line in f"**{title or name.capitalize()}**\n\n{text}".split("\n"))

    def caption(self, label: str, text: str) -> str:
        """A caption with its number."""
        return f"Fig. {targets()[label][1]}. {self.text(text)}" if label in targets() else self.text(text)

    # --- cells ---

    def notebook(self) -> nbformat.NotebookNode:
        """The whole notebook."""
        cells: list[nbformat.NotebookNode] = []
        solution: list[str] | None = None  # what a solution holds as far as we are
        for cell in self.stored.cells:
            if cell.cell_type == "markdown":
                for part in re.split(f"({START}|{END})", self.text(cell.source)):
                    if part == START:
                        solution = []
                    elif part == END and solution is not None:
                        cells.append(self.markdown(folded("Solution", "\n\n".join(solution))))
                        solution = None
                    elif part.strip() and solution is not None:
                        solution.append(part.strip())
                    elif part.strip():
                        cells.append(self.markdown(part.strip()))
            elif solution is not None:
                solution.append(as_text(cell))
            elif "skip-execution" in cell.metadata.get("tags", []):
                cells.append(self.markdown(f"```python\n{cell.source}\n```"))
            else:
                cells += self.code(cell)
        cells = without_bookkeeping(cells)
        if self.cited:
            lines = sorted({reference(key) for key in self.cited})
            cells.append(self.markdown("## Cited on this page\n\n" + "\n".join(lines)))
        cells.insert(0, opening(cells))
        for n, cell in enumerate(cells):
            cell.id = f"cell-{n}"
        made = f"from chapters/{self.page}.md by tools/notebooks.py"
        return nbformat.v4.new_notebook(
            cells=cells, metadata={"kernelspec": self.stored.metadata["kernelspec"], "made": made}
        )

    def markdown(self, text: str) -> nbformat.NotebookNode:
        """A cell of text, with the drawings that it shows."""
        cell = nbformat.v4.new_markdown_cell(text)
        if self.figures:
            cell.attachments = {name: {"image/svg+xml": [path.read_text("utf-8")]} for name, path in self.figures}
            self.figures = []
        return cell

    def code(self, cell: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
        """A cell of code with its outputs, and the caption of what it draws; no cell if it only kept the books."""
        tags, shown = cell.metadata.get("tags", []), cell.metadata.get("mystnb", {})
        source = without_glue(cell.source)
        if cell.source == FIGURES:
            return [nbformat.v4.new_code_cell(style(), metadata={"tags": [], "jupyter": {"source_hidden": True}})]
        if not source:
            return []
        closed = {"hide-input", "hide-cell"} & {*tags}
        if closed and "code_prompt_show" in shown:
            source = f"# @title {shown['code_prompt_show']}\n{source}"
        metadata: dict[str, Any] = {"tags": list(tags)}
        if closed:
            metadata |= {"jupyter": {"source_hidden": True}, "cellView": "form"}  # the second is Colab's, as is @title
        if "hide-cell" in tags:
            metadata["jupyter"]["outputs_hidden"] = True
        code = nbformat.v4.new_code_cell(source, metadata=metadata, execution_count=cell.execution_count)
        code.outputs = [output for output in cell.outputs if "scrapbook" not in output.get("metadata", {})]
        figure = shown.get("figure")
        return [code, self.markdown(f"*{self.caption(figure['name'], figure['caption'])}*")] if figure else [code]


@cache
def style() -> str:
    """Code that makes figures look as they do in the book, whose folder has a matplotlibrc."""
    lines = (ROOT / "book/matplotlibrc").read_text(encoding="utf-8").splitlines()
    settings = (line.split(": ", 1) for line in lines if not line.startswith("#"))
    code = [f"    {name!r}: {value!r}," for name, value in settings]
    return "\n".join(["# How the figures look.", "import matplotlib", "", "matplotlib.rcParams.update({", *code, "})"])


def folded(title: str, text: str) -> str:
    """Text to unfold."""
    return f"<details>\n<summary>{title}</summary>\n\n{text}\n\n</details>"


def as_text(cell: nbformat.NotebookNode) -> str:
    """A cell of code and what it printed, to read and not to run."""
    printed = "".join(output.get("text", "") for output in cell.outputs).rstrip()
    return f"```python\n{without_glue(cell.source)}\n```" + (f"\n\n```text\n{printed}\n```" if printed else "")


def without_glue(source: str) -> str:
    """Code without what only hands numbers to the text; files that come with the course are found by the package."""
    lines = source.split("\n")

    def doomed(node: ast.stmt) -> bool:
        if isinstance(node, ast.For | ast.If | ast.With):
            return all(map(doomed, node.body)) and not getattr(node, "orelse", [])
        if isinstance(node, ast.ImportFrom):
            return node.module == "myst_nb"
        value = node.value if isinstance(node, ast.Expr) else None
        return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "glue"

    for node in ast.walk(code_of(source)):
        if isinstance(node, ast.stmt) and doomed(node):
            lines[node.lineno - 1 : node.end_lineno] = ["\0"] * ((node.end_lineno or 0) - node.lineno + 1)
    text = "\n".join(line for line in lines if line != "\0").strip("\n")
    return re.sub(r"\n{4,}", "\n\n\n", text)


def names(cell: nbformat.NotebookNode, context: type) -> set[str]:
    """The names that a cell binds (ast.Store) or reads (ast.Load)."""
    tree = code_of(cell.source)
    found = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, context)}
    if context is ast.Store:
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                found |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return found


def without_bookkeeping(cells: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The cells without those that the page leaves out, unless a later one needs what they define."""
    kept: list[nbformat.NotebookNode] = []
    needed: set[str] = set()
    for cell in reversed(cells):
        if cell.cell_type == "code":
            if "remove-cell" in cell.metadata["tags"] and not names(cell, ast.Store) & needed:
                continue
            needed |= names(cell, ast.Load)
            cell.metadata["tags"] = [tag for tag in cell.metadata["tags"] if tag == "raises-exception"]
        kept.append(cell)
    return kept[::-1]


def opening(cells: list[nbformat.NotebookNode]) -> nbformat.NotebookNode:
    """The first cell: it installs what is missing, or says what to install if the repository has no address."""
    code = "\n".join(code for cell in cells if cell.cell_type == "code" for code in [cell.source])
    roots = {match.split(".")[0] for match in re.findall(r"^ *(?:from|import) ([\w.]+)", code, re.MULTILINE)}
    others = sorted(roots & {"ctranslate2", "matplotlib"} | ({"sacremoses"} if "papers=" in code else set()))
    repository = address.repository()
    where = f'"tested-transformer @ git+{repository}"'
    course = [f"    %pip install --quiet {where}", "    invalidate_caches()"] if repository else []
    failed = "could not be installed, see above: run this cell again" if repository else (
        "is not installed: run `%pip install PLACE` here, where PLACE is the folder of the course or a zip file of it"
    )  # fmt: skip
    lines = [
        "# The first cell installs what is missing. A PyTorch that is there stays as it is.",
        *(["from importlib import invalidate_caches"] if repository or others else []),
        "from importlib.util import find_spec",
        "",
        *([f'if find_spec("{PACKAGE}") is None:', *course] if course else []),
        f'if find_spec("{PACKAGE}") is None:',
        f'    raise SystemExit("the course {failed}")',
    ]
    for name in others:
        lines += [
            f'if find_spec("{name}") is None:',
            f"    %pip install --quiet {name}",
            "    invalidate_caches()",
            f'if find_spec("{name}") is None:',
            f'    raise SystemExit("{name} could not be installed, see above: run this cell again")',
        ]
    if "shipped(" in code:
        lines += ["", "from transformer_lib.files import shipped"]
    return nbformat.v4.new_code_cell("\n".join(lines))


def main(folder: Path) -> None:
    """Write the notebook of each chapter that has been executed."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [path for chapter in chapters() if (path := notebook_path(chapter)).exists()]
    beside = () if address.site(address.repository()) else [path.stem for path in paths]  # Colab finds none beside it
    for path in paths:
        nbformat.write(Page(path, beside).notebook(), folder / path.name)


def for_start(folder: Path) -> None:
    """Write the notebooks of the main line, without outputs, since their reader runs them."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [path for path in sorted((ROOT / "book").glob("*.ipynb")) if MAIN_LINE.fullmatch(path.stem)]
    for path in paths:
        notebook = Page(path, [path.stem for path in paths]).notebook()
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        nbformat.write(notebook, folder / path.name)


if __name__ == "__main__":
    (for_start if sys.argv[2:] == ["--start"] else main)(Path(sys.argv[1]))
