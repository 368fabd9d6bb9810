"""A Sphinx extension: what a page loads.

The theme loads thirty files for a page, and with them a font of two thousand icons, twice. Here a page has one style
sheet, book.css, and one script, book.js, in which the others are joined in their order, and the icons are drawn here.
The search index is for the search page: templates/. A theme that has changed stops the build.
"""

import re
import shutil
from collections import Counter
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import pydata_sphinx_theme
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.search.en import SearchEnglish

THEME = Path(pydata_sphinx_theme.__file__).parent / "theme/pydata_sphinx_theme/static"
ICON_FONT = "_static/scripts/fontawesome.js"
OPTIONS = "_static/documentation_options.js"  # what it sets is changed by scripts in the head, so it is there itself
MATHJAX = "mathjax"  # its script finds its fonts beside itself

# --- the icons ---------------------------------------------------------------------------------------------------

CIRCLE = "M12 3a9 9 0 1 1 0 18a9 9 0 1 1 0-18"
NOTE = f"{CIRCLE}M12 11v6M12 7.5h.01"
DOWNLOAD = "M12 3v12M7 10l5 5l5-5M4 20h16"
PENCIL = "M4 20l1-5L16 4l4 4L9 19zM14 6l4 4"
TRIANGLE = "M12 3L2 21h20zM12 10v5M12 18h.01"
# Each is a line on a square of 24; it takes the colour of the text. What is not here is shown as a circle.
ICONS = {
    ".fa-bars": "M3 6h18M3 12h18M3 18h18",
    ".fa-list": "M9 6h12M9 12h12M9 18h12M4 6h.01M4 12h.01M4 18h.01",
    ".fa-magnifying-glass": "M10 3a7 7 0 1 1 0 14a7 7 0 1 1 0-14M15 15l6 6",
    ".fa-download": DOWNLOAD,
    ".fa-file": "M6 2h8l5 5v15H6zM14 2v5h5",
    ".fa-file-pdf": "M7 8V3h10v5M7 17H4V8h16v9h-3M7 14h10v7H7z",
    ".fa-rocket": "M12 2c4 3 5 8 4 13H8C7 10 8 5 12 2zM8 11l-4 4v4l4-4M16 11l4 4v4l-4-4M12 18v4M12 8h.01",
    ".fa-pencil-alt": PENCIL,
    ".fa-sun": "M12 8a4 4 0 1 1 0 8a4 4 0 1 1 0-8M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1 1M18 18l1 1M5 19l1-1M18 6l1-1",
    ".fa-moon": "M20 14A8.5 8.5 0 1 1 10 4a7 7 0 0 0 10 10z",
    ".fa-circle-half-stroke": f"{CIRCLE}M12 3v18M14 4v16M16 5v14M18 7v10M20 9v6",
    ".fa-arrow-up": "M12 20V4M5 11l7-7l7 7",
    ".fa-angle-left": "M15 4l-8 8l8 8",
    ".fa-angle-right": "M9 4l8 8l-8 8",
    ".fa-chevron-down": "M4 8l8 8l8-8",
    ".admonition > .admonition-title::after": NOTE,
    ":is(.warning, .caution, .attention, .important) > .admonition-title::after": TRIANGLE,
    ":is(.danger, .error) > .admonition-title::after": f"{CIRCLE}M9 9l6 6M15 9l-6 6",
    ":is(.tip, .hint) > .admonition-title::after": "M9 18h6M10 21h4M9 15a6 6 0 1 1 6 0z",
    ".seealso > .admonition-title::after": "M4 12h16M14 6l6 6l-6 6",
    "div.exercise > .admonition-title::after": PENCIL,
    "#searchbox .highlight-link a::before": "M5 5l14 14M19 5L5 19",
    "a.reference.download::before": DOWNLOAD,
    ".bd-sidebar-secondary.hide:not(:hover) .onthispage::after": "M4 8l8 8l8-8",
}
ELEMENTS = ":is(.fa-solid, .fas, .far, .fab)"
SHAPE = """{
  content: "" !important;
  display: inline-block;
  width: 1em;
  height: 1em;
  vertical-align: -0.125em;
  background: currentColor;
  -webkit-mask: var(--icon) center / contain no-repeat;
  mask: var(--icon) center / contain no-repeat;
  print-color-adjust: exact;
}
@media (forced-colors: active) { SELECTORS { forced-color-adjust: none; background: CanvasText; } }
"""


def drawn(line: str) -> str:
    """An icon as a rule's value: a picture of a line."""
    start = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 24 24" fill="none" stroke="black"'
    style = 'stroke-width="2.2" stroke-linecap="round" stroke-linejoin="round"'
    return f"url('data:image/svg+xml,{start} {style}><path d=\"{line}\"/></svg>')"


def icons() -> str:
    """The style sheet of the icons."""
    selectors = ", ".join([ELEMENTS, *(selector for selector in ICONS if "::" in selector)])
    rules = [f":root {{ --icon: {drawn(CIRCLE)}; }}", selectors + SHAPE.replace("SELECTORS", selectors)]
    return "\n".join([*rules, *(f"{selector} {{ --icon: {drawn(line)}; }}" for selector, line in ICONS.items())])


# --- one style sheet and one script ------------------------------------------------------------------------------


def cut(text: str, start: str, end: str) -> str:
    """A text without what is between two marks."""
    if not 0 <= text.find(start) < text.find(end):
        raise ExtensionError(f"the theme has changed: its style sheet has no {start!r} before a {end!r}")
    return text[: text.index(start)] + text[text.index(end) :]


@cache
def of_the_theme() -> tuple[str, ...]:
    """The sheets and scripts that the theme's templates load by themselves, without that of the icons' font."""
    names = dict.fromkeys(re.findall(r"_static/[\w/-]+\.\w+", (THEME / "webpack-macros.html").read_text("utf-8")))
    if ICON_FONT not in names:
        raise ExtensionError(f"the theme has changed: it loads no {ICON_FONT}")
    return tuple(name for name in names if name != ICON_FONT)


def style_sheet(folder: Path, sheets: tuple[tuple[str, str], ...]) -> str:
    """The sheets of a rendered book, each with its medium, as one: the theme's basic one too, the icon font not."""
    texts = [((folder / name).read_text(encoding="utf-8"), medium) for name, medium in sheets]
    text = "\n".join(f"@media {medium} {{\n{text}\n}}" if medium else text for text, medium in texts)
    text = text.replace('@import "../basic.css";', (folder / "_static/basic.css").read_text(encoding="utf-8"))
    text = cut(text.replace('@charset "UTF-8";', ""), "/*!\n * Font Awesome", "html{--pst-header-height")
    text = re.sub(r'\[data-theme="?light"?\]', ':not([data-theme="dark"])', text)  # without scripts, a page has neither
    if elsewhere := re.findall(r'@import[^;]*;|url\(["\']?\.\.[^)]*\)', text):
        raise ExtensionError(f"book.css is in another folder than the sheets that it is made of: {elsewhere}")
    return f'@charset "UTF-8";\n{re.sub(r"/[*]# sourceMappingURL=.*?[*]/", "", text)}\n{icons()}\n'


def script(folder: Path, names: list[str]) -> str:
    """The scripts as one. A semicolon first, so that no script's "use strict" holds for all."""
    texts = [re.sub(r"^//# sourceMappingURL=.*", "", (folder / name).read_text("utf-8"), flags=re.M) for name in names]
    return "".join(f";\n{text}\n" for text in texts)


@cache
def join_at_the_end(app: Sphinx, sheets: tuple[tuple[str, str], ...], scripts: tuple[str, ...]) -> None:
    """Write book.css and book.js of a rendered book when all that they are made of is there."""

    def join(app: Sphinx, error: Exception | None) -> None:
        folder = Path(app.outdir)
        (folder / "_static/book.css").write_text(style_sheet(folder, sheets), encoding="utf-8")
        (folder / "_static/book.js").write_text(script(folder, list(scripts)), encoding="utf-8")

    app.connect("build-finished", join, priority=900)  # other extensions write their sheets there


def load_two_files(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document) -> None:
    """Let a page load the joined files, and nothing else that is joined in them."""
    sheets = {str(sheet.filename): sheet for sheet in sorted(context["css_files"], key=lambda sheet: sheet.priority)}
    scripts = {str(script.filename): script for script in context["script_files"] if script.filename}
    context["css_files"] = [sheets.pop("_static/book.css")]
    context["book_script"] = scripts.pop("_static/book.js")
    joined = [name for name in scripts if name != OPTIONS and MATHJAX not in name]
    names = list(of_the_theme())
    before = [(name, "") for name in names if name.endswith(".css")]
    own = [(name, sheet.attributes.get("media", "")) for name, sheet in sheets.items()]
    after = [name for name in names if name.endswith(".js")]
    join_at_the_end(app, (*before, *own), (*joined, *after))
    dropped = {*joined, "_static/book.js"}
    context["script_files"] = [file for file in context["script_files"] if str(file.filename) not in dropped]


def drop_what_no_page_loads(app: Sphinx, error: Exception | None) -> None:
    """Remove from the rendered book the maps of the theme's sources, its fonts and its translations."""
    static = Path(app.outdir, "_static")
    for path in [*static.rglob("*.map"), *static.glob("scripts/fontawesome.js*")]:
        path.unlink(missing_ok=True)
    for name in ("vendor", "locales"):
        shutil.rmtree(static / name, ignore_errors=True)


# --- the words of the search -------------------------------------------------------------------------------------


def write_the_words(app: Sphinx, error: Exception | None) -> None:
    """Write words.js: for each stem in the search index the word of the book that it most often stands for."""
    stem, found = cache(SearchEnglish({}).stem), Counter[str]()
    for page in Path(app.outdir).rglob("*.html"):
        _, _, article = page.read_text(encoding="utf-8").partition("<article")
        text = unescape(re.sub(r"<(script|style|svg)\b.*?</\1>|<[^>]*>", " ", article, flags=re.DOTALL))
        found.update(word.lower() for word in re.findall(r"[^\W\d_]{3,}", text))
    words = {stem(word): word for word, _ in reversed(found.most_common())}
    Path(app.outdir, "_static/words.js").write_text(f'const WORDS = "{" ".join(sorted(words.values()))}"', "utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect all this; called by Sphinx."""
    app.add_css_file("book.css")
    app.add_js_file("book.js")
    app.connect("html-page-context", load_two_files, priority=900)  # after all that adds files
    app.connect("build-finished", drop_what_no_page_loads, priority=950)
    app.connect("build-finished", write_the_words)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
