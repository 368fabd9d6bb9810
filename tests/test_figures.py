"""The figures and drawings of the rendered book: whole text, legible sizes."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "_build" / "html"
FIGURES = sorted((BOOK / "_images").glob("*.svg"))
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(BOOK.glob("book/*.html"))}
FONTS = ["DejaVu Sans", "Liberation Sans"]  # the second is as wide as Arial
PHONE, LAPTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 800}

pytestmark = pytest.mark.skipif(not PAGES, reason="there is no _build/html: run `make book` first")

# Where the text of the drawings is cut, lies on other text, or crosses the edge of a box.
FAULTS = r"""fonts => {
  const canvas = document.createElement("canvas").getContext("2d"), style = document.head.appendChild(
    document.createElement("style")), found = [];
  function placed(element, x, y, width, height) {
    const m = element.getScreenCTM(), at = (x, y) => [m.a * x + m.c * y + m.e, m.b * x + m.d * y + m.f];
    const corners = [at(x, y), at(x + width, y), at(x + width, y + height), at(x, y + height)];
    const [xs, ys] = [0, 1].map(i => corners.map(corner => corner[i]));
    return { corners, left: Math.min(...xs), right: Math.max(...xs), top: Math.min(...ys), bottom: Math.max(...ys) };
  }
  function ink(text) {  // as wide as its line, and as high as its letters
    const box = text.getBBox(), parts = text.querySelector("tspan") ? [...text.querySelectorAll("tspan")] : [text];
    let [top, bottom] = [Infinity, -Infinity];
    for (const part of parts.filter(part => part.textContent.trim())) {
      const { fontStyle, fontWeight, fontSize, fontFamily } = getComputedStyle(part);
      canvas.font = `${fontStyle} ${fontWeight} ${fontSize} ${fontFamily}`;
      const size = canvas.measureText(part.textContent.trim());
      const y = (part.y.baseVal.length ? part : text).y.baseVal[0]?.value ?? 0;
      top = Math.min(top, y - size.actualBoundingBoxAscent);
      bottom = Math.max(bottom, y + size.actualBoundingBoxDescent);
    }
    return placed(text, box.x, top, box.width, bottom - top);
  }
  function overlap(a, b) {  // how deep two rectangles, each turned by its own angle, lie in one another
    let least = Infinity;
    for (const { corners: [p, q, , r] } of [a, b])
      for (const side of [q, r]) {
        const [dx, dy] = [side[0] - p[0], side[1] - p[1]], length = Math.hypot(dx, dy) || 1;
        const [u, v] = [a, b].map(({ corners }) => corners.map(([x, y]) => (x * dx + y * dy) / length));
        least = Math.min(least, Math.max(...u) - Math.min(...v), Math.max(...v) - Math.min(...u));
      }
    return least;
  }
  const sticksOut = (a, b) => Math.max(b.left - a.left, a.right - b.right, b.top - a.top, a.bottom - b.bottom);
  const straight = path => /^M[^A-Za-z]+(L[^A-Za-z]+){3}z\s*$/.test(path.getAttribute("d"));
  const isFrame = (shape, { stroke, fill }) => !shape.closest("defs, clipPath") &&
    (shape.matches("path") ? stroke !== "none" && straight(shape) : stroke !== "none" || fill !== "none");
  for (const family of fonts) {
    style.textContent = `svg :is(text, tspan) { font-family: "${family}" !important; }`;
    for (const svg of document.querySelectorAll("svg:not(svg svg)")) {
      const edge = svg.getBoundingClientRect(), words = [], frames = [];
      for (const shape of svg.querySelectorAll("text, rect, circle, path")) {
        if (!shape.checkVisibility()) continue;
        const { x, y, width, height } = shape.getBBox();
        if (!shape.matches("text")) {
          if (isFrame(shape, getComputedStyle(shape)) && width && height)
            frames.push(placed(shape, x, y, width, height));
        } else if (width && !shape.closest("defs") && getComputedStyle(shape).opacity > 0) {
          const own = { text: shape.textContent.replace(/\s+/g, " ").trim(), frames: frames.length, ...ink(shape) };
          if (sticksOut(own, edge) > 0.5) found.push([family, own.text, "is cut"]);
          for (const other of words)
            if (overlap(own, other) > 0) found.push([family, own.text, "lies on " + other.text]);
          words.push(own);
        }
      }
      for (const own of words) {  // what is drawn before its own box lies below that box
        const first = frames.slice(0, own.frames).findLastIndex(frame => sticksOut(own, frame) <= 0);
        for (const frame of frames.slice(Math.max(first, 0)))
          if (overlap(own, frame) > 0.5 && sticksOut(own, frame) > 0.5) found.push([family, own.text, "crosses a box"]);
      }
    }
  }
  style.remove();
  return found;
}"""


@pytest.fixture(scope="module")
def page(browser):
    page = browser.new_context(offline=True, reduced_motion="reduce").new_page()
    page.set_default_timeout(120_000)  # a busy machine takes its time; a dead button does not take for ever
    return page


@pytest.fixture(scope="module")
def visit(page):
    """Opens a page of the book, without its formulas."""
    page.route("**/mathjax/**", lambda route: route.abort())

    def visit(name, viewport):
        page.set_viewport_size(viewport)
        page.goto((BOOK / "book" / f"{name}.html").as_uri())
        return page

    return visit


def test_text_in_a_figure_is_whole_and_touches_nothing_with_any_font(page):
    page.set_viewport_size(LAPTOP)
    faults = {}
    for figure in FIGURES:
        page.set_content(re.sub(r"^.*?(?=<svg)", "", figure.read_text(encoding="utf-8"), flags=re.DOTALL))
        if found := page.evaluate(FAULTS, FONTS):
            faults[figure.name] = found
    assert faults == {}


def test_no_text_of_a_figure_is_smaller_than_10_pixels_on_a_laptop():
    for figure in FIGURES:
        svg = figure.read_text(encoding="utf-8")
        if "figure_1" in svg and not figure.stem.endswith("-rows"):
            width = float(re.search(r'viewBox="0 0 (\S+)', svg)[1])  # in points; the column has 840 pixels
            sizes = [float(size) for size in re.findall(r'<text style="[^"]*font-size: ([\d.]+)px', svg)]
            assert min(sizes, default=10) * min(4 / 3, 840 / width) >= 10, figure.name


@pytest.mark.parametrize("name", [name for name, html in PAGES.items() if "<text" in html or 'class="widget"' in html])
def test_text_in_a_drawing_or_a_widget_is_whole_and_touches_nothing_with_any_font(visit, name):
    assert visit(name, LAPTOP).evaluate(FAULTS, FONTS) == []


@pytest.mark.parametrize(("name", "place"), [("02_attention", "#fig-attention-weights"), ("07_model", "#fig-model")])
def test_a_picture_that_is_shown_small_opens_in_its_full_size(visit, name, place):
    """A figure with panels, which a phone has in rows, and a drawing; a click or the keyboard opens and closes it."""
    page = visit(name, PHONE)
    picture, opens = page.locator(f"{place} :is(img, svg.drawing)"), page.locator(f"{place} .enlarge")
    number = page.locator(f"{place} .caption-number").inner_text().strip()
    assert opens.inner_text() == f"Enlarge {number}"
    dialog = page.get_by_role("dialog", name=number)
    for how in ("key", "click"):
        if how == "key":
            opens.focus()
            page.keyboard.press("Enter")
        else:
            picture.click(position={"x": 5, "y": 5})
        whole = dialog.locator("img, svg.drawing")
        page.wait_for_function("whole => whole.naturalWidth !== 0", arg=whole.element_handle())
        assert whole.evaluate("whole => whole.clientWidth >= (whole.naturalWidth ?? whole.viewBox.baseVal.width)")
        assert dialog.evaluate("dialog => dialog.getBoundingClientRect().right <= innerWidth")
        if how == "key":
            page.keyboard.press("Escape")
            assert opens.evaluate("button => button === document.activeElement")
        else:
            dialog.get_by_role("button", name="Close").click()
        assert dialog.count() == 0


def test_panels_stand_in_rows_on_a_phone_and_side_by_side_elsewhere(visit):
    sources = "all => all.map(picture => picture.currentSrc.endsWith('-rows.svg'))"
    charts = [name for name, html in PAGES.items() if "-rows.svg" in html]
    assert len(charts) > 20
    for viewport, rows in ((PHONE, True), (LAPTOP, False)):
        assert set(visit(charts[0], viewport).eval_on_selector_all("picture > img", sources)) == {rows}
