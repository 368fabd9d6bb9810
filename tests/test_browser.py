"""The rendered book as a reader's browser shows it: Chromium, from file://, with the network cut.

No picture is compared with a stored one: fonts, and with them every line break, differ from one machine to the next.
What is asserted holds with any font: nothing is cut or wider than its page, and no block lies over another.
"""

import gzip
import re
from pathlib import Path
from urllib.parse import quote, unquote, urljoin, urlsplit

import pytest
from lxml.html import fromstring

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "_build" / "html"
AXE = ROOT / "tests" / "vendor" / "axe-core"
PAGES = sorted(
    path.relative_to(BOOK).as_posix()
    for path in BOOK.rglob("*.html")
    if "_static" not in path.parts and path != BOOK / "index.html"  # which only leads to book/index.html
)
PHONE, LAPTOP = {"width": 360, "height": 740}, {"width": 1280, "height": 800}

pytestmark = pytest.mark.skipif(not PAGES, reason="there is no _build/html: run `make book` first")


CHAPTER, IN_DEPTH = "book/02_attention.html", re.compile(r"book/\d\d[a-z]_")
KEY_PAGES = ["search.html", "genindex.html", CHAPTER] + [
    f"book/{name}.html"
    for name in "index tour 00_preface 05_masks 09_training 11_translation 13_gallery 14_cost bibliography".split()
]


class Tab:
    """One tab of the browser, in which every page is opened, and what it complained of since the last one was."""

    def __init__(self, browser):
        self.page = browser.new_context(offline=True, reduced_motion="reduce").new_page()
        self.page.set_default_timeout(120_000)  # a busy machine takes its time; a dead button does not take for ever
        self.complaints, self.requests = [], []
        complain = self.complaints.append
        self.page.on("console", lambda message: message.type in ("error", "warning") and complain(message.text))
        self.page.on("pageerror", lambda error: complain(str(error)))
        self.page.on("requestfailed", lambda request: complain(f"not loaded: {request.url}, {request.failure}"))
        self.page.on("request", lambda request: request.url.startswith("http") and complain(request.url))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, page, viewport, scheme="light"):
        """Open a page, and wait for its formulas."""
        self.complaints.clear()
        self.requests.clear()
        self.page.set_viewport_size(viewport)
        self.page.emulate_media(color_scheme=scheme, media="screen")
        path, _, query = page.partition("?")
        self.page.goto((BOOK / path).as_uri() + ("?" + query if query else ""))
        self.page.add_style_tag(content="* { transition: none !important; animation: none !important; }")
        self.page.evaluate("() => window.MathJax?.startup?.promise.then(() => null)")
        return self.page


@pytest.fixture(scope="module")
def tab(browser):
    return Tab(browser)


# What is too small to read, or lies over the block above it is `ugly`.
FACTS = r"""() => {
  const ugly = [];
  for (const section of document.querySelectorAll("article section")) {
    let above = null;
    for (const block of section.children) {
      const box = block.getBoundingClientRect();
      if (!box.height || getComputedStyle(block).float !== "none" || block.matches("aside")) continue;
      if (above && box.top < above.getBoundingClientRect().bottom - 1) ugly.push(block.outerHTML.slice(0, 200));
      above = block;
    }
  }
  for (const code of document.querySelectorAll("article pre"))
    if (parseFloat(getComputedStyle(code).fontSize) < 12) ugly.push(code.textContent.slice(0, 100));
  const article = document.querySelector("article, main").cloneNode(true);
  for (const other of article.querySelectorAll("pre, code, script, style, svg, mjx-container")) other.remove();
  return {
    ugly, width: document.documentElement.scrollWidth,
    wide: [...document.querySelectorAll("article *")]
      .filter(element => element.getBoundingClientRect().right > innerWidth + 1 && !element.closest(
        "pre, table, figure, .output, .math, mjx-container, .pst-scrollable-table-container"))
      .map(element => element.outerHTML.slice(0, 100)),
    raw: article.textContent.match(/\\[a-zA-Z(\[]+|\$[^$\n]+\$|\{(ref|cite|term|eq|glue|math|numref)[^}]*\}`/g) ?? [],
    errors: document.querySelectorAll("mjx-merror, .problematic").length,
    cut: [...document.querySelectorAll("article :is(img, svg)")].filter(picture => {
      const { left, right } = picture.getBoundingClientRect(), column = document.querySelector("article").clientWidth;
      return right - left > column || [picture.closest("figure"), picture.parentElement].some(
        block => block && block.scrollWidth > block.clientWidth + 1 && getComputedStyle(block).overflowX !== "visible");
    }).map(picture => picture.outerHTML.slice(0, 100)),
    ids: [...document.querySelectorAll("[id]")].map(element => element.id),
  };
}"""


def is_whole(tab, page, viewport):
    facts = tab.open(page, viewport).evaluate(FACTS)
    assert tab.complaints == []
    assert facts["raw"] == []
    assert facts["errors"] == 0, "formulas or references that are shown as errors"
    assert (facts["width"], facts["wide"]) == (viewport["width"], [])
    assert facts["cut"] == [], "pictures that are not shown as a whole"
    assert facts["ugly"] == []
    assert sorted(facts["ids"]) == sorted(set(facts["ids"]))


@pytest.mark.parametrize("page", [
    pytest.param(page, marks=[pytest.mark.long] * bool(IN_DEPTH.match(page))) for page in PAGES
])  # fmt: skip
def test_a_page_is_whole_without_a_network_and_on_a_phone(tab, page):
    is_whole(tab, page, PHONE)
    if page.startswith("book/"):
        first = tab.page.locator("article :is(p, li, dd)").filter(visible=True).first.bounding_box()
        assert first["y"] + first["height"] <= PHONE["height"], "the first sentence is not on the first screen"


def test_every_link_leads_somewhere():
    """To a page and a place on it, or to a file."""
    trees = {page: fromstring((BOOK / page).read_bytes()) for page in PAGES}
    ids, broken = {page: {*tree.xpath("//@id")} for page, tree in trees.items()}, []
    for page, tree in trees.items():
        for link in {*tree.xpath("//a/@href")}:
            parts = urlsplit(urljoin((BOOK / page).as_uri(), link))
            if parts.scheme != "file":
                continue
            path, place = Path(unquote(parts.path)), unquote(parts.fragment)
            name = path.relative_to(BOOK).as_posix() if path.is_relative_to(BOOK) else "elsewhere"
            if not path.is_file() or (place and name in ids and place not in ids[name]):
                broken.append(f"{page}: {name}#{place}")
    assert broken == []


def violations(page, rules):
    """What axe finds on the page that is open: (rule, how often, the first place)."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate((AXE / "axe.min.js").read_text(encoding="utf-8"))
    return page.evaluate(
        """rules => axe.run({runOnly: rules, resultTypes: ["violations"]}).then(found => found.violations.map(
             each => [each.id, each.nodes.length, each.nodes[0].html.slice(0, 200), each.nodes[0].failureSummary]))""",
        rules,
    )


WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]


@pytest.mark.parametrize("page", [*KEY_PAGES, *(
    pytest.param(page, marks=pytest.mark.long) for page in PAGES if page not in KEY_PAGES
)])  # fmt: skip
def test_a_page_is_whole_on_a_laptop_and_accessible(tab, page):
    """In light; and in dark what depends on colours."""
    is_whole(tab, page, LAPTOP)
    assert violations(tab.page, WCAG) == []
    tab.page.emulate_media(color_scheme="dark")
    tab.page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    assert violations(tab.page, ["color-contrast", "link-in-text-block"]) == []


@pytest.mark.parametrize(("words", "first"), [
    ("RoPE", "15a_layer"), ("causl mask", "05a_wrong_masks"), ("multi-head", "03_multi_head"),
    ("MultiHeadAttention", "api"),
])  # fmt: skip
def test_search_finds_first(tab, words, first):
    """Whole words before parts, chapters before lists, a name of the library where the query is one; mistyped ones."""
    page = tab.open(f"search.html?q={quote(words)}", LAPTOP)
    page.wait_for_function("/found/.test(document.querySelector('#search-results .search-summary')?.textContent)")
    hits = page.eval_on_selector_all("#search-results .search li > a", "links => links.map(a => a.href)")
    assert f"/{first}.html" in hits[0]
    lists = [place for place, hit in enumerate(hits) if "/api.html" in hit or "/glossary.html" in hit]
    assert first == "api" or min(lists, default=4) > 3


def test_a_page_is_light(tab):
    """The files that a first page loads, as a server would send them."""
    tab.open(CHAPTER, LAPTOP).evaluate("() => document.fonts.ready.then(() => null)")
    files = [Path(unquote(urlsplit(url).path)) for url in tab.requests if url.startswith("file:")]
    assert len(files) <= 20
    assert sum(len(gzip.compress(file.read_bytes(), 6)) for file in files) <= 600 * 1024
    assert not list(BOOK.rglob("*.map"))


# What a reader can operate; a link leads elsewhere, and a file or a print dialogue is not part of the page.
CONTROLS = "button, summary, input, select, textarea, [role=button], [role=tab], [role=slider], .sd-tab-label"
STATE = """() => JSON.stringify([document.body.innerText, [...document.querySelectorAll("*")].map(element =>
  [element.open, element.value, element.checked, element.className?.toString(), element.getAttribute("aria-expanded"),
   element.getAttribute("aria-pressed"), element.getAttribute("style")].join()),
  document.documentElement.dataset.mode, document.activeElement?.tagName])"""
KINDS = ["book/index.html", "book/tour.html", "search.html", "book/api.html", "book/A_command_line.html", CHAPTER]


@pytest.mark.parametrize(
    ("page", "viewport"), [(page, LAPTOP) for page in KINDS] + [(page, PHONE) for page in (KINDS[0], CHAPTER)]
)
def test_what_can_be_seen_does_something_when_it_is_clicked(tab, page, viewport):
    """One control of each kind that can be seen, with a real click."""
    opened = tab.open(page, viewport)
    opened.evaluate("window.print = () => document.body.append('printed'); HTMLElement.prototype.blur = () => {}")
    kinds, dead = set(), []
    for control in opened.query_selector_all(CONTROLS):
        kind = control.evaluate("e => e.tagName + e.type + e.className + (e.closest('[class]')?.className ?? '')")
        if kind in kinds or not control.is_visible() or not control.is_enabled():
            continue
        kinds.add(kind)
        control.scroll_into_view_if_needed()
        before = opened.evaluate(STATE)
        if control.evaluate("e => e.matches('input:not([type=checkbox], [type=radio], [type=range]), textarea')"):
            control.click()
            opened.keyboard.type("7")
        elif control.evaluate("e => e.matches('select, [type=range]')"):
            control.focus()
            opened.keyboard.press("ArrowRight")
            if opened.evaluate(STATE) == before:  # it was the last one
                opened.keyboard.press("ArrowLeft")
        else:
            control.click()
        if opened.evaluate(STATE) == before:
            dead.append(control.evaluate("e => e.outerHTML.slice(0, 150)"))
        opened.keyboard.press("Escape")
    opened.evaluate("localStorage.clear()")  # the shade that was chosen
    assert dead == []


def test_a_term_shows_its_definition(tab):
    """Under the pointer, at the keyboard's place, and at a finger's first touch; Escape takes it away."""
    page = tab.open(CHAPTER, LAPTOP)
    link, card = page.locator("article a[href*='glossary.html#term-attention']").first, page.locator("#term-card")
    link.evaluate(  # and the scrolling is over, which takes a card away
        """link => { link.scrollIntoView({block: "center", behavior: "instant"});
        return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))); }"""
    )
    glossary = " ".join((ROOT / "book" / "glossary.md").read_text(encoding="utf-8").split())
    for show in (link.hover, link.focus):
        show()
        card.wait_for()
        assert f"attention {card.text_content()} (" in glossary
        page.keyboard.press("Escape")
        assert card.is_hidden()
    link.evaluate("link => link.dispatchEvent(new PointerEvent('pointerdown', {pointerType: 'touch'}))")
    link.evaluate("link => link.click()")
    assert card.is_visible()
    assert page.url.endswith(CHAPTER)


def test_the_words_of_a_solution_s_title_open_it_and_then_lead_to_the_exercise(tab):
    page = tab.open("book/01b_measured.html", PHONE)
    for shut in (3, 0, 0):
        assert page.locator(".solution.toggle-hidden").count() == shut
        for link in page.locator(".solution > .admonition-title a").all():
            link.click(force=True)  # where it stands, whatever is hit
    assert (page.url.rpartition("#")[2], tab.complaints) == ("ex-01b-3", [])


def test_the_keyboard_s_place_can_be_seen(tab):
    page, unseen = tab.open(CHAPTER, LAPTOP), []
    for _ in range(60):
        page.keyboard.press("Tab")
        unseen += page.evaluate("""() => {
          const own = document.activeElement, styles = [own, ...own.children].map(each => getComputedStyle(each));
          return styles.some(({ outlineStyle, outlineWidth, boxShadow }) => boxShadow !== "none" ||
            (outlineStyle !== "none" && parseFloat(outlineWidth) >= 2)) ? [] : [own.outerHTML.slice(0, 100)];
        }""")
    assert unseen == []


def test_a_dark_page_is_printed_on_white_with_hints_and_solutions_open(tab, tmp_path):
    page = tab.open(CHAPTER, LAPTOP, "dark")
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    page.evaluate("addEventListener('beforeprint', () => { window.theme = document.documentElement.dataset.theme; })")
    page.pdf(path=tmp_path / "page.pdf")
    assert page.evaluate("[window.theme, document.documentElement.dataset.theme]") == ["light", "dark"]
    page.emulate_media(media="print")
    page.wait_for_function("document.documentElement.dataset.theme === 'light'")
    shut = "all => all.filter(fold => !fold.lastElementChild.checkVisibility()).length"
    assert page.locator("details.sd-dropdown").evaluate_all(shut) == 0
    colour = page.locator("article p").first.evaluate("text => getComputedStyle(text).color")
    assert max(map(int, re.findall(r"\d+", colour)[:3])) < 100


def test_a_mistake_brings_its_sentence_and_leaves_the_reader_s(tab):
    page = tab.open(next(name for name in PAGES if "_live." in name), PHONE)
    status, sentence = page.locator(".live-status"), page.locator(".live-form input")

    def said():
        page.wait_for_function("/^(Translated|Changed)/.test(document.querySelector('.live-status').textContent)")
        return status.text_content()

    page.locator(".live-translator > button").click()
    assert said().endswith("Ein Mann spielt auf der Straße Gitarre.")
    page.get_by_label("no positions").click()
    assert said() == "Changed: Ein schwarzer Hund jagt einen weißen Hund."
    sentence.fill("I love you.")
    page.get_by_label("nothing").click()
    said()
    assert page.locator(".live-guess").is_visible()
    page.get_by_label("no positions").click()
    said()
    assert sentence.input_value() == "I love you."
    sentence.fill("very " * 90)
    page.get_by_role("button", name="Translate", exact=True).click()
    assert status.text_content().startswith("Please write a shorter sentence: this one has ")
    assert tab.complaints == []


def test_on_a_phone_a_wide_table_s_cells_have_their_column_s_name(tab):
    cells = tab.open("book/gallery.html", PHONE).locator("table.cards td")
    names = cells.evaluate_all("all => all.slice(0, 5).map(cell => cell.dataset.label)")
    assert names == ["Mistake", "What happens", "Number", "Caught by", "Shown in"]
    assert max(cells.evaluate_all("all => all.map(cell => cell.getBoundingClientRect().right)")) <= PHONE["width"]
