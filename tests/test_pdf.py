"""The book as one PDF: the joined page that is printed, and what Chromium makes of it."""

import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pdf
import pytest

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "_build" / "html"
NAMES = re.findall(r"(?:root|file): book/(\S+)", (ROOT / "_toc.yml").read_text(encoding="utf-8"))
FEW = ["index", "00_preface", "02_attention", "07_model"]


@pytest.fixture(scope="module")
def joined():
    if not all((SITE / f"book/{name}.html").exists() for name in NAMES):
        pytest.skip("a page is not rendered: run `make book`")
    return re.sub(r"(<script\b[^>]*>).*?</script>", r"\1", pdf.join(SITE), flags=re.DOTALL)


def values(page, attribute, tag=r"\w+"):
    """All values of an attribute in the order of the page, of any tag or of one."""
    return [unescape(value) for value in re.findall(rf'<{tag}\b[^<>]*?\s{attribute}="([^"]*)"', page)]


def test_every_page_is_there_once_and_in_the_contents(joined):
    assert values(joined, "id", 'div class="sheet') == NAMES
    assert values(joined, "href", "a")[: len(NAMES)] == [f"#{name}" for name in NAMES]


def test_a_check_stays_one_line_a_hint_is_open_and_code_of_no_use_on_paper_is_gone(joined):
    hints, checks = (re.findall(rf"<details\b[^>]*\b{kind}\b[^>]*>", joined) for kind in ("sd-dropdown", "checked"))
    assert all(" open" in fold for fold in hints)
    assert not any(" open" in fold for fold in checks)
    assert min(len(hints), len(checks)) > 100
    assert not re.search("<details[^>]*not-printed", joined)


def test_every_name_is_unique_and_every_link_leads_to_one(joined):
    names, links = values(joined, "id"), values(joined, "href", "a")
    assert sorted(names) == sorted(set(names))
    inside = {unquote(link[1:]) for link in links if link.startswith("#")}
    assert inside - set(names) == set()
    assert len(inside) > 1000
    assert [link for link in links if not link.startswith(("#", "https://", "http://"))] == []


def test_every_picture_and_style_is_there(joined):
    files = values(joined, "src") + [file.partition("?")[0] for file in values(joined, "href", "link")]
    assert [file for file in files if not (SITE.parent / file).is_file()] == []


@pytest.fixture(scope="module")
def printed(browser, joined, tmp_path_factory):
    """Some pages of the book, printed."""
    folder, whole = tmp_path_factory.mktemp("pdf"), pdf.contents
    (folder / "html").symlink_to(SITE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pdf, "contents", lambda: [entry for entry in whole() if entry[0] in FEW])
        (folder / "book.html").write_text(pdf.join(SITE), encoding="utf-8")
    return pdf.print_it(browser, folder / "book.html", folder / "book.pdf"), (folder / "book.pdf").read_bytes()


def test_the_contents_have_the_numbers_of_the_pages(printed):
    tab, paper = printed
    numbers = pdf.page_numbers(paper)
    pages = [numbers[name] for name in FEW]
    assert pages == sorted(set(pages))
    assert 2 < pages[0] < pages[-1] < paper.count(b"<</Type /Page\n")
    shown = tab.eval_on_selector_all(".paper-contents a", "links => links.map(link => Number(link.dataset.page))")
    assert shown == pages


def test_every_heading_is_a_bookmark(printed):
    """Those that a PDF writes as they are: without formulas, brackets and letters beyond ASCII."""
    tab, paper = printed
    titles = {title.decode("latin-1") for title in re.findall(rb"<</Title \((.*?)\)\n/Dest", paper)}
    texts = "all => all.map(heading => heading.textContent.trim())"
    headings = tab.eval_on_selector_all(":is(h1, h2, h3):not(:has(mjx-container))", texts)
    plain = {heading for heading in headings if heading.isascii() and "(" not in heading}
    assert plain - titles == set()
    assert len(plain) > 30


def test_nothing_is_cut_and_every_formula_is_set(printed):
    tab, _ = printed
    tab.set_viewport_size({"width": 657, "height": 971})  # A4 within the margins
    tab.emulate_media(media="print")
    cut = """() => [...document.querySelectorAll("pre, table, img, svg, mjx-container")]
      .filter(element => element.getBoundingClientRect().right > innerWidth + 1 || element.matches("pre") &&
        element.scrollWidth > element.clientWidth + 1).map(element => element.textContent.slice(0, 80))"""
    assert tab.evaluate(cut) == []
    assert tab.locator("mjx-container").count() > 100
    assert tab.locator("mjx-merror").count() == 0
