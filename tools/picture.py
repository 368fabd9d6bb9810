"""Draw where the trained translator looks, for the front page, for the readme, and for links to the book.

python tools/picture.py    writes book/_static/look.svg, the same for dark pages, look-dark.svg, look.html with five
                           more sentences, and card.png, which a link shows elsewhere; that needs Chromium

A line from an English word to a German one is as thick as the attention that the decoder's last layer pays to the
first when it chooses the second, on average over the heads.
"""

import re
import sys
from hashlib import sha256
from html import escape
from pathlib import Path

from pdf import chromium
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from transformer_lib import Translator

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "records" / "multi30k-en-de"
STATIC = ROOT / "book" / "_static"
SENTENCE = "A man plays the guitar on the street."
OTHERS = [
    "A white dog is chasing a black dog.",
    "A woman in a red dress is dancing.",
    "An old man is reading a newspaper.",
    "Three children play in the snow.",
    "A little girl is riding a bicycle.",
]
LEAST = 0.1  # thinner lines are left out
WIDTH, STEP, TOP, BOX, WORD = 400, 36, 40, 92, 28
DARK = {"text-base": "#e6edf3", "encoder": "#c9a84c", "decoder": "#a79cf0", "weight": "#d98cc6"}
STYLE = """
.look { font: 16px Arial, "Liberation Sans", sans-serif; overflow: visible; }
.look text { fill: var(--pst-color-text-base, #222); text-anchor: middle; }
.look .language { font-size: 14px; font-weight: bold; }
.look .source { fill: var(--role-encoder, #8c6d1f); }
.look .target { fill: var(--role-decoder, #6a5acd); }
.look rect { fill: none; stroke: var(--role-encoder, #8c6d1f); stroke-width: 1.5; }
.look g rect { fill: transparent; stroke: var(--role-decoder, #6a5acd); stroke-width: 2; }
.look path { fill: none; stroke: var(--role-weight, #b5509c); opacity: 0.75; stroke-dasharray: 1; }
.look:has(g:hover) g:not(:hover) path { opacity: 0.1; }
.look g:hover path { opacity: 1; }
@media (prefers-reduced-motion: no-preference) {
  .look g { animation: look 0.6s backwards; }
  .look g path { animation: grow 0.6s backwards; animation-delay: inherit; }
  @keyframes look { from { opacity: 0; } }
  @keyframes grow { from { stroke-dashoffset: 1; } }
}
"""


def drawing(source: list[str], target: list[str], weights: list[list[float]]) -> str:
    """The words of both sentences, one below the other, and lines as thick as the weights (target, source)."""

    def column(words: list[str]) -> list[float]:
        rows = max(len(source), len(target))
        return [TOP + STEP * (number + (rows - len(words)) / 2) + WORD / 2 for number in range(len(words))]

    def word(text: str, x: float, y: float, language: str) -> str:
        box = f'<rect x="{x}" y="{y - WORD / 2:g}" width="{BOX}" height="{WORD}" rx="6"/>'
        return f'{box}<text x="{x + BOX / 2:g}" y="{y + 5.5:g}" lang="{language}">{escape(text)}</text>'

    left, right, end = column(source), column(target), WIDTH - BOX - 1
    height = TOP + STEP * max(len(source), len(target))
    parts = [word(text, 1, y, "en") for text, y in zip(source, left)]
    for number, (text, row) in enumerate(zip(target, weights)):
        y, lines = right[number], []
        for start, weight in zip(left, row):
            if weight >= LEAST:
                bend = f"M{BOX + 2},{start:g} C{BOX + 83},{start:g} {end - 82},{y:g} {end - 1},{y:g}"
                lines.append(f'<path pathLength="1" d="{bend}" stroke-width="{14 * weight:.1f}"/>')
        parts.append(f'<g style="animation-delay: {0.3 + 0.35 * number:.2f}s">{word(text, end, y, "de")}')
        parts += [*lines, "</g>"]
    said = f"Lines lead from the words of “{' '.join(source)}” to those of “{' '.join(target)}”, its translation."
    heads = (
        f'<text class="language source" x="{1 + BOX / 2:g}" y="20">English</text>'
        f'<text class="language target" x="{end + BOX / 2:g}" y="20">German</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="look" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(said)}"><style>{STYLE}</style>\n'
        + "\n".join([heads, *parts])
        + "\n</svg>\n"
    )


def look(translator: Translator, sentence: str = SENTENCE) -> str:
    """The drawing of a sentence and its translation, without the tokens that end them."""
    seen = translator.attention(sentence)
    weights = seen.weights[-1].mean(dim=0)[:-1, :-1].tolist()
    return drawing(seen.source[:-1], seen.target[:-1], weights)


def choice(translator: Translator) -> str:
    """The drawings of six sentences, of which the reader chooses one; they share the style of the first."""
    chips, drawings = [], []
    for number, sentence in enumerate([SENTENCE, *OTHERS], start=1):
        checked = " checked" if number == 1 else ""
        chips.append(f'<input type="radio" name="caption" id="caption-{number}"{checked}>')
        chips.append(f'<label for="caption-{number}" lang="en">{escape(sentence)}</label>')
        drawings.append(look(translator, sentence).replace(STYLE if number > 1 else "", ""))
    return "\n".join(["<fieldset class=\"looks\">", "<legend>Choose a caption</legend>", *chips,
                      '<div class="pictures">', *drawings, "</div>", "</fieldset>", ""])  # fmt: skip


def dark(svg: str) -> str:
    """The same in the colours of dark pages."""
    return re.sub(r"var\(--(?:pst-color|role)-([\w-]+), #\w+\)", lambda match: DARK[match[1]], svg)


CARD = """<!DOCTYPE html><meta charset="utf-8"><style>
body {{ margin: 0; width: 1200px; height: 630px; box-sizing: border-box; padding: 0 70px; display: flex; gap: 60px;
  align-items: center; font-family: Arial, "Liberation Sans", sans-serif; color: #222; background: #fff;
  border-bottom: 14px solid #6a5acd; }}
h1 {{ font-size: 76px; line-height: 1.05; margin: 0 0 32px; color: #1d3557; }}
p {{ font-size: 33px; line-height: 1.35; margin: 0; }}
svg {{ flex: none; width: 500px; height: auto; }}
</style><div><h1>The Tested Transformer</h1>
<p>Build a Transformer, from a dictionary lookup to a working translator, and check every step.</p>
</div>{}"""


def digest(svg: str) -> str:
    """Names what a card is drawn from; the card keeps it, and so tells whether it is that of this picture."""
    return sha256(CARD.format(svg).encode()).hexdigest()


def write_card(svg: str, file: Path) -> None:
    """What a link to the book shows on other sites, 1200 by 630 pixels."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium())
        page = browser.new_context(reduced_motion="reduce").new_page()
        page.set_viewport_size({"width": 1200, "height": 630})
        page.set_content(CARD.format(svg))
        page.screenshot(path=file)
        browser.close()
    drawn_from = PngInfo()
    drawn_from.add_text("drawn from", digest(svg))
    Image.open(file).save(file, pnginfo=drawn_from, optimize=True)


if __name__ == "__main__":
    translator = Translator.from_pretrained(RUN)
    svg = look(translator)
    (STATIC / "look.html").write_text(choice(translator), encoding="utf-8")
    (STATIC / "look.svg").write_text(svg, encoding="utf-8")
    (STATIC / "look-dark.svg").write_text(dark(svg), encoding="utf-8")
    if not chromium():
        sys.exit("no Chromium, so card.png is still the old one: install one, or name its path in CHROMIUM; then again")
    write_card(svg, STATIC / "card.png")
