"""What one touches on the tour and in chapter 3: the panels do what a hand asks and show the model's numbers."""

import math
import re

import pytest
import torch
from small import ROOT, stored_cells

from transformer_lib.model import evaluation
from transformer_lib.notebook import every_attention, explorer
from transformer_lib.translation import Translator

SENTENCE = "A man plays the guitar on the street."
MAP = '<style>figure { margin: 0; }</style><figure id="fig-tour-map"><img src="../_static/map.svg" alt="map"></figure>'


@pytest.fixture(scope="module")
def translator():
    return Translator.from_pretrained("multi30k-en-de")


def ride():
    """The panel in the tour's stored outputs, with what it stands beside: the map, and the script of the heads."""
    outputs = [output for cell in stored_cells("tour") for output in cell.get("outputs", [])]
    texts = ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]
    panel, heads = (next(text for text in texts if f'<div class="{name}"' in text) for name in ("ride", "heads"))
    size = sum((ROOT / "book/_static" / name).stat().st_size for name in ("ride.js", "ride.css"))
    assert size + len(panel.encode()) <= 40 * 1024
    style, script = heads.partition("<div")[0], "<script>" + heads.rpartition("<script>")[2]
    return f'{MAP}<script src="../_static/widgets.js"></script>{panel}{style}{script}'


def opened(browser, folder, panel, *, width, motion="reduce", **options):
    """A bare page with a panel, beside the book's files."""
    (folder / "book").mkdir(exist_ok=True)
    if not (folder / "_static").exists():
        (folder / "_static").symlink_to(ROOT / "book" / "_static")
    (folder / "book" / "page.html").write_text(f"<!doctype html><meta charset=utf-8>{panel}", "utf-8")
    options |= {"offline": True, "reduced_motion": motion, "viewport": {"width": width, "height": 900}}
    page = browser.new_context(**options).new_page()
    page.set_default_timeout(120_000)  # a busy machine takes its time
    page.on("pageerror", lambda error: pytest.fail(str(error)))
    page.goto((folder / "book" / "page.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == width
    return page


def settled(page):
    """A movement of the pointer waits for the next frame."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def agrees(page, row):
    """Whether the percentages at the words are those of this row of weights."""
    page.mouse.move(0, 0)  # what lies under the pointer is shown instead of what was chosen
    settled(page)
    shares = page.locator(".heads-columns li b").all_inner_texts()
    shares = [float(share.removesuffix(" %") or 0) / 100 for share in shares]
    return all(abs(a - b) < 0.025 for a, b in zip(shares, row.tolist(), strict=True))


def test_the_ride_shows_the_numbers_of_the_box_that_one_clicks_and_writes_the_sentence(browser, tmp_path, translator):
    model, tokenizer = translator.model, translator.tokenizer
    (german,) = translator.translate([SENTENCE])
    source, target = (torch.tensor([tokenizer.encode(text)]) for text in (SENTENCE, german))
    with evaluation(model):
        entering, layer = model.embed(source, model.source_embedding), model.encoder.layers[0]
        copy, after, memory = layer.self_attention_norm(entering)[0], layer(entering), model.encode(source)
        normed = layer.feed_forward_norm(entering + layer.self_attention(*[layer.self_attention_norm(entering)] * 3)[0])
        read = torch.cat([torch.tensor([[tokenizer.bos_id]]), target[:, :-1]], dim=1)
        probabilities = model(source, read)[0].softmax(dim=1)
    page = opened(browser, tmp_path, ride(), width=320)
    title, plan, field = (page.locator(f".ride-{name}") for name in ("title", "plan", "field"))
    drawing = (ROOT / "book/_static/map.svg").read_text("utf-8")
    boxes = re.findall(r'<rect x="(\d+)" y="(\d+)" [^>]*/><text[^>]*>([^<]+)<', drawing)

    def touch(name):
        """A box of the map, of which a phone shows the rows around the lit box."""
        x, y = next((int(x) + 20, int(y) + 10) for x, y, text in boxes if text == name)
        part = None
        while part != (part := plan.bounding_box()):  # until nothing moves any more
            settled(page)
        page.mouse.click(part["x"] + x / 392 * part["width"], part["y"] + y / 596 * part["height"])
        settled(page)
        return title.inner_text()

    every = every_attention(translator, SENTENCE)
    page.get_by_role("slider").press("End")
    for box in ("training", "inside an attention", "inside an attention"):
        said = touch(box)
    assert said == "Inside an attention: the mix"
    weights = every["encoder"].weights[1, 1, 2]
    mix = "".join(f"{weights[i]:.2f} · value({word}) + " for i, word in ((4, "guitar"), (3, "the"), (2, "plays")))
    assert page.locator(".ride b").first.inner_text().replace("\xa0", " ") == f"What “plays” receives = {mix}…"
    assert touch("memory") == "Memory"
    page.get_by_role("slider").press("Home")
    assert touch("self-attention") == "Encoder, layer 1: self-attention"
    assert agrees(page, every["encoder"].weights[0, 1, 2])
    page.get_by_role("radio", name="head 1.4").click()
    page.get_by_role("radio", name="street").click()
    assert agrees(page, every["encoder"].weights[0, 3, 7])

    assert touch("norm") == "Encoder, layer 1: norm"
    width, height = (field.bounding_box()[side] for side in ("width", "height"))
    field.hover(position={"x": 37.5 / 128 * width, "y": 2.5 / 10 * height})
    settled(page)
    value = re.fullmatch(r"plays, channel 37: (?:.+ = )?(\S+)", page.locator(".ride-number").inner_text())[1]
    largest = copy[2].abs().max().item()  # each number is rounded thrice, finer near 0
    rounding = math.sqrt(abs(copy[2, 37].item()) * largest) / 127 + largest / 2 / 127**2
    assert abs(float(value.replace("−", "-")) - copy[2, 37].item()) <= 0.006 + 3 * rounding
    stops = page.evaluate("""document.querySelector('.ride').ride.stops.map(
        ({title, strip}) => [title, strip && strip.map(row => [...row])])""")
    strips = {title: torch.tensor(strip) for title, strip in stops if strip}
    assert (strips["Memory"] - memory.states[0]).abs().max() < 0.01 * memory.states.abs().max()
    for name, expected in (("plus", after), ("norm", normed)):  # the second of each, which the page computes
        assert (strips[f"Encoder, layer 1: {name}"] - expected[0]).abs().max() < 0.02 * expected.abs().max(), name
    page.get_by_role("slider").press("Home")
    page.get_by_label("every box").check()
    page.get_by_role("slider").press("End")
    page.get_by_role("button", name="Back").click()
    assert page.locator(".ride-german b").inner_text().split() == re.findall(r"\w+|\.", german) + ["<eos>"]
    page.get_by_role("button", name="Back").click()
    bars = page.locator(".ride-bars small").all_inner_texts()
    assert bars[0] == f"{100 * probabilities[-1].max().item():.0f} %"
    page.wait_for_function("document.querySelector('[role=status]').textContent.startsWith('Next-word scores')")
    moving = opened(browser, tmp_path, ride(), width=1280, motion="no-preference")
    moving.get_by_role("button", name="Play").click()
    moving.wait_for_function("document.querySelector('.ride').ride.at > 1")


def test_the_explorer_shows_the_weights_of_the_head_and_word_that_one_chooses(browser, tmp_path, translator):
    (german,) = translator.translate([SENTENCE])
    every = every_attention(translator, SENTENCE)
    panel = explorer(every, {"cross-attention": {"all": "Ein Hund."}}, german, layer=3, head=1, query=6)
    still = opened(browser, tmp_path, panel, width=320, java_script_enabled=False)
    most = every["encoder"].weights[3, 1, 6].max()
    assert still.locator("tbody tr").all_inner_texts()[6] == f"the\tstreet\t{most:.2f}"
    page = opened(browser, tmp_path, panel, width=320, has_touch=True)
    page.get_by_role("radio", name="head 2.4").click()
    page.get_by_role("radio", name="plays").click()
    page.keyboard.press("ArrowDown")
    assert agrees(page, every["encoder"].weights[1, 3, 3])
    page.get_by_role("radio", name="cross-attention").click()
    page.get_by_role("radio", name="mean of layer 4").click()
    page.get_by_role("radio", name="Gitarre").click()
    assert agrees(page, every["cross-attention"].weights[3].mean(dim=0)[6])
    said = "document.querySelector('[role=status]').textContent.startsWith('“Gitarre” looks at “guitar”')"
    page.wait_for_function(said)
    drawn, off = page.locator(".heads-result span"), page.get_by_role("button", name="Switch off all 16")
    assert drawn.inner_text() == german
    off.click()
    assert drawn.inner_text() == "Ein Hund."
    off.click()
    assert drawn.inner_text() == german
