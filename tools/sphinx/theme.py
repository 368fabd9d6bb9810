"""A Sphinx extension: what stands around the text of a page.

The line of chapters is `_toc.yml`, the module of an exported cell is the one that the chapter's front matter names, and
the buttons that lead to the repository are there if it has an address on the web.
"""

import re
from collections import Counter
from functools import cache
from html import escape, unescape
from pathlib import Path
from typing import Any

import yaml
from address import repository, site
from docutils import nodes
from page_numbers import number_of
from panels import stacked
from sphinx.application import Sphinx
from sphinx.config import Config

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = "book/api"
WRONG = re.compile(r'"""Wrong|# wrong|^class \w+\(ReferenceModel\):', re.MULTILINE)  # code that shows a mistake
SOLUTION = r"Solution to(<a [^>]*>) (Exercise [\d.]+)"
# What is folded because it draws a picture or a widget, or grades an exercise, is of no use on paper.
NOT_PRINTED = re.compile(r"The code|Show (the code of the|how the drawing|the graders? of|what you can change)")


@cache
def parts() -> list[tuple[str, list[str]]]:
    """The parts of the book, each with its numbered chapters."""
    every = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    numbered = ((part["caption"], [chapter["file"] for chapter in part["chapters"]]) for part in every)
    return [(caption, [page for page in pages if number_of(page)]) for caption, pages in numbered]


@cache
def modules(page: str) -> dict[str, str]:
    """The module that each tag of a chapter's exported cells leads to."""
    text = (ROOT / "chapters" / f"{page.removeprefix('book/')}.md").read_text(encoding="utf-8")
    paths = yaml.safe_load(text.split("---\n")[1]).get("exports", [])
    names = [path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in paths]
    tags = {f"export-{path.removesuffix('.py').rpartition('/')[2]}": name for path, name in zip(paths, names)}
    return tags | ({"export": names[-1]} if names else {})


# --- the buttons that lead to the repository ---------------------------------------------------------------------


def launchers(url: str, branch: str, chapter: str) -> list[dict[str, str]]:
    """The buttons that open a chapter as a plain notebook elsewhere.

    Binder and Codespaces make the notebooks from the repository; Colab takes them from the branch that
    .github/workflows/publish.yml makes.
    """
    if not site(url):
        return []  # these places know only GitHub
    owner, name = url.split("/")[-2:]
    places = {
        "Colab": f"https://colab.research.google.com/github/{owner}/{name}/blob/notebooks/{chapter}.ipynb",
        "Binder": f"https://mybinder.org/v2/gh/{owner}/{name}/{branch}?urlpath=lab/tree/notebooks/{chapter}.ipynb",
        "Codespaces": f"https://codespaces.new/{owner}/{name}",
    }
    return [{"type": "link", "text": text, "tooltip": f"Open in {text}", "url": url} for text, url in places.items()]


def add_launchers(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document) -> None:
    """Put these buttons at the top of a chapter, once there is a repository."""
    options, chapter = app.config.html_theme_options, page.removeprefix("book/")
    buttons = launchers(options["repository_url"], options.get("repository_branch") or "main", chapter)
    if buttons and (ROOT / "chapters" / f"{chapter}.md").exists():
        group = {"type": "group", "tooltip": "Open as a notebook elsewhere", "icon": "fas fa-rocket"}
        context["header_buttons"].append(group | {"buttons": buttons, "label": "launch-buttons"})


def lead_to_the_repository(app: Sphinx, config: Config) -> None:
    """Find the repository's address, and the edit button's from it; without one there is no such button."""
    options = config.html_theme_options
    url = options["repository_url"] = repository()
    options["use_edit_page_button"] = bool(site(url))
    chapter = "file_name | replace('book/', 'chapters/') | replace('.ipynb', '.md')"  # not the notebook made of it
    name = f"{{{{ file_name if file_name.endswith('.md') else {chapter} }}}}"
    config.html_context |= {
        "edit_page_provider_name": "GitHub",
        "edit_page_url_template": f"{url}/edit/{options.get('repository_branch') or 'main'}/{name}",
    }


# --- cells and exercises -----------------------------------------------------------------------------------------


def finish_the_cells(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Name the module of each exported cell, mark checks, wrong code and sentences, and give no name twice."""
    for section in doctree.findall(nodes.section):
        section["ids"] = [name for name in section["ids"] if name not in ("exercise-content", "solution-content")]
    for folded in doctree.findall(lambda node: isinstance(node, nodes.Element) and "prompt_show" in node):
        folded["prompt_show"] = re.sub(r"(?<=\de-)(?=\d)", "\N{WORD JOINER}", folded["prompt_show"])
        folded["prompt_show"] = re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", folded["prompt_show"])
        if folded["prompt_show"].startswith("Checked"):
            folded["classes"].append("checked")
        if NOT_PRINTED.match(folded["prompt_show"]):
            folded["classes"].append("not-printed")
    for block in doctree.findall(nodes.literal_block):
        if WRONG.search(block.astext()):
            block["classes"].append("wrong")
    for cell in doctree.findall(lambda node: isinstance(node, nodes.container) and "nb_element" in node):
        if cell["nb_element"] == "cell_code_output":
            for block in cell.findall(nodes.literal_block):
                longest = max(map(len, block.astext().split("\n")))
                if block.get("language") != "python" and (longest > 110 or not re.search(r"\S {2,}\S", block.astext())):
                    block["classes"].append("sentences")
        tags = [name.removeprefix("tag_") for name in cell["classes"] if name.startswith("tag_export")]
        if cell["nb_element"] == "cell_code" and tags:
            module = modules(page)[tags[0]]
            badge = f"goes into {module}"
            if ".exercises." not in module:
                address = f"{app.builder.get_relative_uri(page, LIBRARY)}#module-{module}"
                badge = f'<a href="{address}">{badge}</a>'
            cell.insert(0, nodes.raw("", f'<div class="goes-into">{badge}</div>', format="html"))


def keep_together(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Let no line begin with the mark after a formula, or with the sign after a number."""
    verbatim = (nodes.literal, nodes.literal_block, nodes.math, nodes.math_block, nodes.raw)
    for element in list(doctree.findall(nodes.TextElement)):
        for place, text in reversed(list(enumerate(element))):
            if isinstance(text, nodes.Text) and not isinstance(element, verbatim):
                before = element[place - 1] if place else None
                text = re.sub(r"(?<=\d) (?=%)|^ (?=%)|(?<=±) ", "\N{NO-BREAK SPACE}", text)  # `^`: after a glued number
                mark = re.findall(r"^[.,;:?!)]*", text)[0] if isinstance(before, nodes.math) else ""
                element[place] = nodes.Text(text.removeprefix(mark))
                if mark:
                    element[place - 1] = nodes.inline("", "", before, nodes.Text(mark), classes=["together"])


# --- the top of a page -------------------------------------------------------------------------------------------


def where_you_are(app: Sphinx, page: str) -> str:
    """The chapters in a line, by parts, with the page's own marked; under it, for a page in depth, its chapter."""
    chapter = number_of(page)[0]
    said, groups = "", []
    for caption, pages in parts():
        items = []
        for other in pages:
            own = number_of(other)[0]
            title = escape(f"{own} {app.env.titles[other].astext()}", quote=True)
            link = f'href="{app.builder.get_relative_uri(page, other)}"'
            here = ' aria-current="page"' if other == page else ' aria-current="true"' if own == chapter else ""
            items.append(f'<li><a {link} title="{title}" aria-label="{title}"{here}>{own}</a></li>')
            if own == chapter and other != page:
                said = f"<p>In depth, under chapter <a {link}>{title}</a></p>"
        if items:
            mark = ' class="here"' if 'aria-current="' in "".join(items) else ""
            groups.append(f"<li{mark}><span>{escape(caption)}</span><ol>{''.join(items)}</ol></li>")
    return f'<nav class="chapters d-print-none" aria-label="Chapters"><ol>{"".join(groups)}</ol></nav>{said}'


@cache
def small_map(page: str) -> str:
    """The map of the model with this chapter's boxes marked, as a picture; empty if it has none."""
    drawing = (ROOT / "book/_static/map.svg").read_text(encoding="utf-8")
    boxes = re.findall(rf'<a href="{page.removeprefix("book/")}\.html">.*?<text[^>]*>(.*?)</text>', drawing)
    if not boxes:
        return ""
    here = f"The map of the model. This chapter: {', '.join(dict.fromkeys(boxes))}."
    drawing = drawing.replace(f'<a href="{page.removeprefix("book/")}.html">', '<g class="here">')
    drawing = re.sub(r"<a [^>]*>", "<g>", drawing).replace("</a>", "</g>").replace("map-tip", "map-here-tip")
    drawing = re.sub(r'role="group" aria-label="[^"]*"', f'role="img" aria-label="{here}"', drawing)
    return f'<details class="you-are-here d-print-none" open><summary>You are here</summary>{drawing}</details>'


def in_line(paragraph: nodes.paragraph) -> bool:
    """Whether a paragraph is one of the text itself, and not in a box, a list, a table or a cell."""
    above = paragraph.parent
    while isinstance(above, nodes.container) and above.get("is_div"):
        above = above.parent
    return isinstance(above, nodes.section)


def description(doctree: nodes.document) -> str:
    """The first sentences of a page's text, at most 200 letters; a formula would be its source."""
    for section in doctree.findall(nodes.section):
        for child in section.findall(lambda node: isinstance(node, nodes.paragraph) and in_line(node)):
            text = " ".join(child.astext().split())
            if len(text) > 40 and not any(child.findall(nodes.math)):
                sentences = re.match(r".{1,200}(?<=[.?!])(?= |$)", text)
                return sentences[0] if sentences else text[:197] + "…"
    return ""


def complete_the_page(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document) -> None:
    """Add what a link to the page shows elsewhere, and the line of chapters; drop names and roles that are wrong."""
    if doctree is None:
        return
    title = unescape(re.sub(r"<[^>]*>", "", context["title"]))
    tags = {
        "og:type": "article",
        "og:site_name": app.config.html_title,
        "og:title": title,
        "og:description": description(doctree),
    }
    if published := site(app.config.html_theme_options["repository_url"]):
        tags |= {
            "og:url": f"{published}/{page}.html",
            "og:image": f"{published}/_static/card.png",
            "og:image:width": "1200",
            "og:image:height": "630",
            "og:image:alt": "Lines lead from the words of an English sentence to those of its German translation.",
            "twitter:card": "summary_large_image",
        }
    kinds = ((name, "name" if name.startswith("twitter:") else "property") for name in tags if tags[name])
    lines = [f'<meta {kind}="{name}" content="{escape(tags[name], quote=True)}" />' for name, kind in kinds]
    lines.append(f'<meta name="description" content="{escape(tags["og:description"] or title, quote=True)}" />')
    context["metatags"] = context.get("metatags", "") + "\n".join(lines)
    if title == app.config.html_title:
        context["docstitle"] = ""  # the theme adds it to the title of every page
    if number_of(page):
        context["body"] = context["body"].replace("</h1>", "</h1>" + where_you_are(app, page) + small_map(page), 1)
    of = Counter(re.findall(SOLUTION, context["body"]))
    seen: Counter[tuple[str, ...]] = Counter()

    def titled(found: re.Match[str]) -> str:
        """A letter for each of several solutions of one exercise, as 9.1b."""
        seen[found.groups()] += 1
        return f"Solution to {''.join(found.groups())}{chr(96 + seen[found.groups()]) * (of[found.groups()] > 1)}"

    context["body"] = re.sub(SOLUTION, titled, context["body"])
    for attribute in (' aria-label="Toggle hidden content"', ' role="doc-biblioentry"', ' role="list"'):
        context["body"] = context["body"].replace(attribute, "")


# --- the main line -----------------------------------------------------------------------------------------------


@cache
def main_line() -> list[str]:
    """The pages that a reader of the whole course reads, in order: all in no group, and in neither end part."""
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    *course, _handbook, _to_look_up = contents["parts"]
    return [contents["root"], *(chapter["file"] for part in course for chapter in part["chapters"])]


def chapter_of(page: str) -> str:
    """The chapter under which a page in depth stands; empty for any other page."""
    number = number_of(page)
    return next((other for other in main_line() if len(number) == 2 and number_of(other) == number[:1]), "")


def lead_along_the_main_line(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    """Next and previous lead along the main line, and from a page in depth back to its chapter."""

    def link(other: str) -> dict[str, str]:
        number = ".".join(map(str, number_of(other)))
        title = escape(f"{number} {app.env.titles[other].astext()}".strip())
        return {"link": app.builder.get_relative_uri(page, other), "title": title}

    line = main_line()
    place = line.index(page) if page in line else None
    after = line[place + 1 : place + 2] if place is not None else []
    before = line[place - 1 : place] if place else [chapter] if (chapter := chapter_of(page)) else []
    for name, found in (("next", after), ("prev", before)):
        context[name] = link(found[0]) if found else None


# --- the site's own address ---------------------------------------------------------------------------------------

ROOT_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8" />
<meta http-equiv="refresh" content="0; url={address}" />
{head}
<link rel="icon" href="_static/favicon.svg" type="image/svg+xml" /></head>
<body><p><a href="{address}">{title}</a></p></body></html>
"""


def lead_to_the_front_page(app: Sphinx, error: Exception | None) -> None:
    """Give the address of the site, which only leads on, the title and the description of the page that it leads to."""
    if error is None:
        address = app.builder.get_target_uri(app.config.root_doc)
        front = Path(app.outdir, address).read_text(encoding="utf-8").partition("</head>")[0]
        named = r'<title>.*?</title>|<meta (?:property="og:|name="(?:twitter:|description"|viewport"))[^>]*>'
        head, title = "\n".join(re.findall(named, front)), escape(app.config.html_title)
        page = ROOT_PAGE.format(address=address, head=head, title=title)
        Path(app.outdir, "index.html").write_text(page, encoding="utf-8")


# --- the figures -------------------------------------------------------------------------------------------------


def stack_the_panels(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document) -> None:
    """Give each figure with panels side by side a copy for phones, in which they stand in rows."""

    def choose(image: re.Match[str]) -> str:
        rows = stacked(Path(app.srcdir, sources[image[2]]).read_text(encoding="utf-8"))
        if not rows:
            return image[0]
        copy = Path(app.outdir, "_images", image[2].replace(".svg", "-rows.svg"))
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(rows, encoding="utf-8")
        source = f'<source media="screen and (max-width: 576px)" srcset="{image[1]}{copy.name}" />'
        return f"<picture>{source}{image[0]}</picture>"

    if doctree is not None:
        sources = {name: path for path, name in app.builder.images.items()}
        context["body"] = re.sub(r'<img\b[^>]*\bsrc="([^"]*_images/)([^"]+\.svg)"[^>]*>', choose, context["body"])


def darken_the_ink(app: Sphinx, error: Exception | None) -> None:
    """Darken the grey of the page's copies of the figures: only a notebook cannot invert them on a dark page."""
    for figure in Path(app.outdir, "_images").glob("*.svg"):
        drawing = figure.read_text(encoding="utf-8")
        figure.write_text(drawing.replace("#737373", "#404040"), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect all this; called by Sphinx."""
    app.connect("config-inited", lead_to_the_repository)
    app.connect("doctree-resolved", finish_the_cells)
    app.connect("doctree-resolved", keep_together)
    app.connect("html-page-context", complete_the_page)
    app.connect("html-page-context", stack_the_panels)
    app.connect("html-page-context", lead_along_the_main_line)
    app.connect("build-finished", darken_the_ink)
    app.connect("build-finished", lead_to_the_front_page)
    app.connect("html-page-context", add_launchers, priority=502)  # after the theme's own buttons
    return {"parallel_read_safe": True, "parallel_write_safe": True}
