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
MAP = '<figure id="fig-tour-map"><img src="../_static/map.svg" alt="the map"></figure>'


@pytest.fixture(scope="module")
def translator():
    return Translator.from_pretrained("multi30k-en-de")


def ride():
    """The panel in the tour's stored outputs, with what it stands beside."""
    outputs = [output for cell in stored_cells("tour") for output in cell.get("outputs", [])]
    texts = ["".join(output.get("data", {}).get("text/html", "")) for output in outputs]
    panel = next(text for text in texts if '<div class="ride"' in text)
    return f'{MAP}<script src="../_static/widgets.js"></script>{panel}'


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


def test_the_ride_shows_the_numbers_of_the_box_that_one_clicks_and_writes_the_sentence(browser, tmp_path, translator):
    model, tokenizer = translator.model, translator.tokenizer
    (german,) = translator.translate([SENTENCE])
    source, target = (torch.tensor([tokenizer.encode(text)]) for text in (SENTENCE, german))
    with evaluation(model):
        entering = model.embed(source, model.source_embedding)
        layer = model.encoder.layers[0]
        found = layer.self_attention(*[layer.self_attention_norm(entering)] * 3)[0][0]
        after, memory = layer(entering)[0], model.encode(source)
        read = torch.cat([torch.tensor([[tokenizer.bos_id]]), target[:, :-1]], dim=1)
        probabilities = model(source, read)[0].softmax(dim=1)
    page = opened(browser, tmp_path, ride(), width=320)
    assert page.get_by_role("button", name="Play").count() == 0  # where less motion is wanted, one steps
    title, number = page.locator(".ride-title"), page.locator(".ride-number")
    drawing, part = (ROOT / "book/_static/map.svg").read_text("utf-8"), page.locator(".ride-map").bounding_box()
    x, y = map(int, re.search(r'x="(\d+)" y="(\d+)" [^>]*/><text[^>]*>self-attention<', drawing).groups())
    page.mouse.click(part["x"] + (x + 20) / 392 * part["width"], part["y"] + (y + 10) / 596 * part["height"])
    assert title.inner_text() == "Encoder, layer 1: self-attention"
    cursor = "getComputedStyle(document.querySelector('.ride-map')).cursor"
    assert page.evaluate(cursor) == "pointer"
    page.mouse.move(part["x"] + 100 / 392 * part["width"], part["y"] + 28 / 596 * part["height"])  # “training”: no stop
    assert page.evaluate(cursor) == "default"

    def shown():
        """Which word and channel the panel reads out, and the number."""
        word, channel, value = re.fullmatch(r"(\S+), channel (\d+): (\S+)", number.inner_text()).groups()
        return word, int(channel), float(value.replace("−", "-"))

    def near(value, expected, row):
        largest = row.abs().max().item()
        return abs(value - expected) <= 0.006 + math.sqrt(abs(expected) * largest) / 127 + largest / 2 / 127**2

    field = page.locator(".ride-field").bounding_box()
    page.mouse.move(field["x"] + 37.5 / 128 * field["width"], field["y"] + 2.5 / 10 * field["height"])
    word, channel, value = shown()
    assert (word, channel) == ("plays", 37)
    assert near(value, found[2, 37].item(), found[2])
    page.locator(".ride-field").press("ArrowRight")
    assert shown()[:2] == ("plays", 38)
    assert near(shown()[2], found[2, 38].item(), found[2])
    stops = page.evaluate("""document.querySelector('.ride').ride.stops.map(
        ({title, strip}) => [title, strip && strip.map(row => [...row])])""")
    strips = {title: torch.tensor(strip) for title, strip in stops if strip}
    assert (strips["Memory"] - memory.states[0]).abs().max() < 0.01 * memory.states.abs().max()
    assert (strips["Encoder, layer 1: plus"] - after).abs().max() < 0.01 * after.abs().max()  # which the page adds up
    page.get_by_role("slider").press("Home")
    for _ in range(11):
        page.get_by_role("button", name="Next").click()
    assert page.locator(".ride-german b").inner_text() == german.split()[0]
    page.get_by_label("every box").check()
    page.get_by_role("slider").press("End")
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
    assert explorer({}) == "<p>There is no attention to show.</p>"
    page = opened(browser, tmp_path, panel, width=320, has_touch=True)
    assert page.locator("table").count() == 0
    sides = "all => all.map(button => Math.min(button.offsetWidth, button.offsetHeight))"
    assert min(page.get_by_role("button").or_(page.get_by_role("radio")).evaluate_all(sides)) >= 24

    def shares():
        texts = page.locator(".heads-columns li b").all_inner_texts()
        return [float(text.removesuffix(" %") or 0) / 100 for text in texts]

    def agree(name, layer, head, query):
        weights = every[name].weights[layer]
        row = weights[head, query] if head < weights.size(0) else weights.mean(dim=0)[query]
        return all(abs(a - b) < 0.025 for a, b in zip(shares(), row.tolist(), strict=True))

    page.get_by_role("radio", name="head 2.4").click()
    page.get_by_role("radio", name="plays").click()
    assert agree("encoder", 1, 3, 2)
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "the"
    assert agree("encoder", 1, 3, 3)
    page.get_by_role("radio", name="cross-attention").click()
    page.get_by_role("radio", name="mean of layer 4").click()
    page.get_by_role("radio", name="Gitarre").click()
    assert agree("cross-attention", 3, 4, 6)
    said = "document.querySelector('[role=status]').textContent.startsWith('“Gitarre” looks at “guitar”')"
    page.wait_for_function(said)
    drawn, off = page.locator(".heads-result span"), page.get_by_role("button", name="Switch off all 16")
    assert drawn.inner_text() == german
    off.click()
    assert drawn.inner_text() == "Ein Hund."
    assert page.locator(".heads-grid .off").count() == 16
    off.click()
    assert drawn.inner_text() == german
