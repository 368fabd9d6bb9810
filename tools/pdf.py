"""Write the rendered book as one PDF: its pages in the order of `_toc.yml`, joined to one and printed by Chromium.

python tools/pdf.py    write _build/tested-transformer.pdf, by way of _build/tested-transformer.html
"""

import os
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 30 * 60  # seconds: several times what the longest step, printing, takes on a slow and busy machine
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WORKS_ON_SCREEN = re.compile(
    r"<(script|noscript|nav)\b.*?</\1>|<(?:link|source)\b[^>]*>|<a class=\"headerlink\".*?</a>"
    r"|<p class=\"expanded admonition-title\">.*?</p>|<span class=\"sd-summary-state-marker.*?</span>",
    re.DOTALL,
)
FOLDED = re.compile(r'(?:<div class="goes-into">[^<]*</div>\s*)?<details class="[^"]*\bhide\b.*?</details>', re.DOTALL)
OPENED = re.compile(r'<details( class="[^"]*\bhide\b[^"]*">\s*<summary[^>]*>\s*<p class="[^"]*">Open )')


def chromium() -> str | None:
    """The path of a Chromium: `$CHROMIUM`, or the first that is installed."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)


def contents() -> list[tuple[str, int, str]]:
    """Each page of `_toc.yml`, its level, and the part that begins with it, if one does; not the web's index."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8").replace("book/", ""))
    found = [(toc["root"], 1, "")]
    for part in toc["parts"]:
        for index, chapter in enumerate(part["chapters"]):
            found.append((chapter["file"], 2, "" if index else part["caption"]))
            found += [(page["file"], 3, "") for page in chapter.get("sections", [])]
    return [page for page in found if page[0] != "genindex"]


def article(html: str, name: str, level: int, names: list[str]) -> str:
    """The text of a rendered page as it is on paper. Its anchors begin with its name, so no other page has them."""

    def lead(link: re.Match[str]) -> str:
        """Within the joined page, or to the web; a file beside the pages is not there."""
        to = urlsplit(link[1])
        other = to.path.removesuffix(".html") or name
        if to.scheme:
            return link[0]
        return f'href="#{other}{"/" * bool(to.fragment)}{to.fragment}"' if other in names else ""

    text = WORKS_ON_SCREEN.sub("", html[html.index("<article") : html.index("</article>")] + "</article>")
    text = FOLDED.sub(lambda fold: "" if "not-printed" in fold[0] else fold[0], text)
    text = OPENED.sub(r"<details open\1", text)
    text = text.replace('admonition-title">Show ', 'admonition-title">Not printed: ')
    text = re.sub(r'<span class="(?:n|p|w|nn|nx)">([^<]*)</span>', r"\1", text)  # half of the PDF, and all in black
    text = text.replace('<details class="sd-', '<details open class="sd-').replace("with JavaScript)", "in a browser)")
    text = re.sub(r'\bhref="([^"]*)"', lead, text)
    text = text.replace(' id="', f' id="{name}/').replace("url(#", f"url(#{name}/").replace('src="../', 'src="html/')
    return re.sub(r"<h([1-6])", lambda tag: f'{tag[0]} aria-level="{min(level + int(tag[1]) - 1, 6)}"', text)


def join(site: Path) -> str:
    """The whole rendered book as one page of HTML, to lie beside the folder of the site."""
    about = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    names = [name for name, _, _ in contents()]
    body, toc, running = "", "", ""
    for number, (name, level, part) in enumerate(contents()):
        html = (site / "book" / f"{name}.html").read_text(encoding="utf-8")
        text = article(html, name, level, names)
        title = re.sub("<[^>]*>", "", text[text.index("<h1") : text.index("</h1>")])
        toc += f'<p class="book-part">{part}</p>' * bool(part)
        toc += f'<p class="level-{level}"><a href="#{name}">{title}</a></p>'
        quoted = unescape(title).replace("\\", "\\\\").replace('"', '\\"')
        running += f'@page sheet-{number} {{ @top-left {{ content: "{quoted}"; }} }}\n'
        heading = f'<h1 class="book-part" aria-level="1">{part}</h1>' * bool(part)
        body += f'<div class="sheet" id="{name}" style="page: sheet-{number}">{heading}{text}</div>'
    styles = "".join(re.findall('<link[^>]* rel="stylesheet"[^>]*>', html)).replace("../", "html/")
    styles += '<link rel="stylesheet" href="html/_static/translator.css">'
    return f"""<!DOCTYPE html>
<html lang="en" data-theme="light"><head><meta charset="utf-8"><title>{about["title"]}</title>
{styles}<style>{running}</style>
<script>MathJax = {{options: {{enableMenu: false, enableAssistiveMml: false, processHtmlClass: "math"}}}}</script>
<script defer src="html/_static/mathjax/tex-mml-chtml.js"></script></head>
<body><div class="title-page"><h1 aria-level="1">{about["title"]}</h1><p>{about["abstract"]}</p>
<p>{about["authors"][0]["name"]}</p><p>Version {about["version"]}</p><p>Text CC BY 4.0, code MIT.</p></div>
<nav class="paper-contents"><h1 aria-level="1">Contents</h1>{toc}</nav><main>{body}</main></body></html>
"""


def page_numbers(pdf: bytes) -> dict[str, int]:
    """The page that each place with a link to it is on, in a PDF by Chromium."""
    pages = re.findall(rb"\n(\d+) 0 obj\n<</Type /Page\n", pdf)
    places = re.findall(rb"/([^\s/]+) \[(\d+) 0 R /XYZ", pdf)
    return {name.decode(): pages.index(page) + 1 for name, page in places}


@contextmanager
def answers_within(seconds: float, asked: str) -> Iterator[None]:
    """End this program, in one line, if the browser has not done in this time what it was asked to."""

    def give_up() -> None:
        print(
            f"Chromium hangs: {seconds:g} seconds after it was asked to {asked}, it has not; try again", file=sys.stderr
        )
        sys.stderr.flush()
        os._exit(1)  # the main thread waits for the browser, which Playwright's own process now ends

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def print_it(browser: Any, page: Path, pdf: Path, limit: float = LIMIT) -> Any:
    """Print a page of HTML, once its formulas are there; once more, with numbers in its contents. Returns the tab.

    The PDF is there only when it is finished. `limit` is in seconds, for each of the browser's steps.
    """
    tab, unfinished = browser.new_context(offline=True, color_scheme="light").new_page(), pdf.with_suffix(".part")
    with answers_within(limit, "load the page and set its formulas"):
        tab.emulate_media(media="print")
        tab.goto(page.as_uri(), timeout=0)
        tab.evaluate("() => MathJax.startup.promise.then(() => document.fonts.ready).then(() => null)")
    for _ in range(2):
        with answers_within(limit, "print"):
            tab.pdf(path=unfinished, prefer_css_page_size=True, outline=True, tagged=True)
        number = "(links, pages) => links.forEach(link => { link.dataset.page = pages[link.hash.slice(1)]; })"
        tab.eval_on_selector_all(".paper-contents a", number, page_numbers(unfinished.read_bytes()))
    unfinished.replace(pdf)
    return tab


def main(limit: float = LIMIT) -> None:
    """Join the rendered book to one page and print it."""
    from playwright.sync_api import sync_playwright

    if not chromium():
        sys.exit("no Chromium: install one, or name its path in CHROMIUM")
    joined = ROOT / "_build" / "tested-transformer.html"
    joined.write_text(join(ROOT / "_build" / "html"), encoding="utf-8")
    with sync_playwright() as playwright:
        with answers_within(limit, "start"):
            browser = playwright.chromium.launch(executable_path=chromium(), timeout=0)
        print_it(browser, joined, joined.with_suffix(".pdf"), limit)


if __name__ == "__main__":
    main()
