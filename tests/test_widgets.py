"""What the book's widgets compute, in JavaScript, is what the library computes; and they answer to the keyboard."""

import json
import math
import re
import subprocess

import pytest
import torch
from small import ROOT, node, stored_cells

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.decoding import beam_search
from transformer_lib.decoding.sampling import filtered_probabilities
from transformer_lib.positions import sinusoidal_table
from transformer_lib.teaching import WORDS, TableModel

STATIC = ROOT / "book" / "_static"
SCRIPTS = ("widgets.js", "drag.js", "steps.js")


def ask(name, *calls):
    """What the function of this name in widgets.js returns, for each list of arguments."""
    program = """const widgets = require(process.argv[1]), [name, calls] = JSON.parse(process.argv[2]);
        console.log(JSON.stringify(calls.map((call) => widgets[name](...call))));"""
    command = [node(), "-e", program, str(STATIC / "widgets.js"), json.dumps([name, calls])]
    return json.loads(subprocess.run(command, capture_output=True, check=True, encoding="utf-8").stdout)


def close(found, expected, atol=1e-12):
    """The same numbers to within the rounding of float64."""
    return torch.allclose(torch.tensor(found, dtype=torch.float64), expected.double(), rtol=1e-12, atol=atol)


def test_every_answer_of_a_beam_search():
    """Tables of random probabilities, each with any number of slots; some searches end at the limit."""
    calls, expected = [], []
    for size, alpha in [(size, alpha) for size in (1, 2, 3, 4) for alpha in (0.0, 0.5, 1.0)] * 4:
        rows = torch.rand(4, 4, dtype=torch.float64) * torch.tensor([1, 1, 1, 0.3])
        rows[0, 3] = 0
        chances = {
            last: dict(zip(("A", "B", "C", "end"), row))
            for last, row in zip(("start", "A", "B", "C"), (rows / rows.sum(dim=1, keepdim=True)).tolist())
        }
        calls.append([chances, size, alpha, 4])
        options = {"bos_id": 1, "eos_id": 2, "beam_size": size, "length_penalty": alpha, "max_length": 4}
        (found,) = beam_search(TableModel(chances), torch.tensor([[3]]), **options)
        expected.append(found)
    for answer, hypotheses in zip(ask("beamSearch", *calls), expected, strict=True):
        words = [[WORDS[token] for token in each.tokens] + ["end"] * each.finished for each in hypotheses]
        assert [each["words"] for each in answer["answers"]] == words
        scores = torch.tensor([each.score for each in hypotheses], dtype=torch.float64)
        assert close([each["score"] for each in answer["answers"]], scores)
    assert {each.finished for hypotheses in expected for each in hypotheses} == {True, False}


def test_filtered_probabilities():
    p = torch.randn(6, dtype=torch.float64).softmax(dim=0).sort(descending=True).values
    settings = [(1, 6, 1), (0.5, 6, 1), (2, 3, 1), (1, 6, 0.5), (0.7, 4, 0.8), (0.1, 1, 0.05)]
    answers = ask("filtered", *([p.tolist(), *setting] for setting in settings))
    for setting, found in zip(settings, answers, strict=True):
        expected, _ = filtered_probabilities(p.log()[None], *setting)
        assert close(found[: setting[1]], expected[0])
        assert found[setting[1] :] == [0] * (6 - setting[1])


def box(name):
    """The widget in the stored outputs: what a cell of a chapter wrote."""
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        for cell in stored_cells(path.stem):
            for output in cell.get("outputs", []):
                text = "".join(output.get("data", {}).get("text/html", ""))
                if f'<div class="widget" id="widget-{name}"' in text:
                    return text
    raise LookupError(f"no chapter has a widget {name}")


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a widget in a bare page, 360 pixels wide: the tab, and what its cell gave it."""
    errors, tabs = [], []

    def open_widget(name):
        read = [(STATIC / file).read_text(encoding="utf-8") for file in ("widgets.css", "touch.css", *SCRIPTS)]
        styles, scripts = "".join(read[:2]), "".join(f"<script>{text}</script>" for text in read[2:])
        page = f"<!doctype html><meta charset=utf-8><style>{styles}</style>{box(name)}{scripts}"
        (tmp_path / "page.html").write_text(page, encoding="utf-8")
        tabs.append(browser.new_page(viewport={"width": 360, "height": 1200}, reduced_motion="reduce"))
        tabs[0].set_default_timeout(120_000)  # a busy machine takes its time; a dead button does not take for ever
        tabs[0].on("pageerror", lambda error: errors.append(error))
        tabs[0].goto((tmp_path / "page.html").as_uri())
        return tabs[0], json.loads(tabs[0].locator("script[type]").text_content())

    yield open_widget
    assert errors == []
    tabs[0].close()


def said(tab, words):
    """The spoken sentence, once it has these words."""
    tab.wait_for_function("words => document.querySelector('[role=status]').innerText.includes(words)", arg=words)
    return tab.get_by_role("status").inner_text()


def numbers(text):
    """Those of a text, in their order; the page writes a minus sign for a hyphen."""
    found = re.findall(r"-?\d+(?:\.\d+)?", text.replace("−", "-"))
    return torch.tensor([float(number) for number in found], dtype=torch.float64)


def hold_and_move(tab, element, *ways):
    """Press in the middle of an element, or `ways[0]` pixels from it, and move the pointer from there."""
    place = element.bounding_box()
    x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    for number, (right, down) in enumerate(ways):
        x, y = x + right, y + down
        tab.mouse.move(x, y, steps=8)
        if not number:
            tab.mouse.down()
    tab.mouse.up()


WIDGETS = ["plane", "masks", "positions", "beam", "learning", "sampling"]


@pytest.mark.parametrize("name", WIDGETS)
def test_a_widget_takes_the_place_of_its_table_and_answers_to_the_keyboard(opened, name):
    tab, _ = opened(name)
    before = tab.get_by_role("status").inner_text()
    assert before
    assert tab.locator(".widget-still:visible").count() == 0
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    tab.keyboard.press("Tab")
    kind = tab.evaluate("document.activeElement.type")
    other_end = "Home" if name == "learning" else "End"
    tab.keyboard.press({"number": "7", "button": "Enter"}.get(kind, other_end))  # a slider or a choice goes there
    tab.wait_for_function("before => document.querySelector('[role=status]').innerText !== before", arg=before)


def test_a_query_is_dragged_and_a_wide_one_saturates(opened):
    tab, given = opened("plane")
    keys, values = (torch.tensor(given[name], dtype=torch.float64) for name in ("keys", "values"))
    hold_and_move(tab, tab.locator(".knob"), (0, 0), (-60, 90))
    tab.keyboard.press("ArrowLeft")
    x, y = (before + moved for before, moved in zip(given["queries"][2], (-60 / 54 - 0.1, -90 / 54)))
    query = torch.tensor([[x, y]], dtype=torch.float64)
    for width in (4, 256):
        output, weights = scaled_dot_product_attention(query * 2**0.5 * (width / 4) ** 0.5 / 2, keys, values)
        sentence = said(tab, f"must {weights[0, 1]:.3f}")
        assert (numbers(sentence) - torch.cat([query[0], weights[0], output[0]])).abs().max() < 0.06, sentence
        tab.get_by_label("width d_k").fill("8")
    tab.get_by_label("divided by").fill("4")
    said(tab, f"must {scaled_dot_product_attention(query * 2**0.5 / 2, keys, values)[1][0, 1]:.3f}")


def test_a_mask_is_painted(opened):
    tab, given = opened("masks")
    hold_and_move(tab, tab.get_by_label("query Ein, key <bos>"), (0, 0), (0, 42), (48, 0))
    allowed = torch.tensor(given["presets"]["both"])
    allowed[1, 0] = allowed[2, 0] = allowed[2, 1] = False
    painted = tab.locator(".paint").evaluate_all("all => all.map(cell => cell.ariaPressed === 'true')")
    assert torch.tensor(painted).view(4, 4).equal(allowed)
    scores = 2 * torch.tensor(given["exponentials"], dtype=torch.float64).log()
    _, expected = scaled_dot_product_attention(scores, torch.eye(4).double(), torch.eye(4).double(), allowed)
    shown = numbers(" ".join(tab.locator(".glasses tbody td").all_inner_texts()))
    assert (shown.view(4, 4) - expected).abs().max() < 0.0051
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    said(tab, "may attend to nothing")


def test_a_clock_is_turned(opened):
    """The second clock's hand, by a quarter of 2π, at a speed of 0.1."""
    tab, given = opened("positions")
    clock = tab.locator("svg.clock").nth(1)
    radius = clock.bounding_box()["width"] * 0.4
    angle, middle = given["key"] * 0.1, clock.bounding_box()["height"] / 2 - clock.bounding_box()["width"] / 2
    x, y = radius * math.sin(angle), -radius * math.cos(angle)
    hold_and_move(tab, clock, (x, y - middle), (-y - x, x - y))
    q = round(given["key"] + math.pi / 2 / 0.1)
    table = sinusoidal_table(101, given["d_model"]).double()
    sentence = said(tab, f"position {q},")
    assert (numbers(sentence)[-2] - table[given["query"]] @ table[q]).abs() < 0.0051


def test_a_search_grows_as_a_tree(opened):
    tab, given = opened("beam")
    options = {"bos_id": 1, "eos_id": 2, "beam_size": 2, "length_penalty": 1.0, "max_length": given["max_length"]}
    ((best, *_),) = beam_search(TableModel(given["table"]), torch.tensor([[3]]), **options)
    said(tab, "Step 1:")
    for step in range(2, len(best.tokens) + 2):
        tab.get_by_role("button", name="next step").click()
        said(tab, f"Step {step}:")
    words = [*(WORDS[token] for token in best.tokens), "end"]
    drawn = tab.locator("g.best").evaluate_all("all => all.map(node => node.querySelectorAll('text')[0].textContent)")
    assert sorted(drawn) == sorted(["start", *words])
    assert f"{' '.join(words)}, with the score {best.score:.3f}.".replace("-", "−") in said(tab, "over")


def test_a_training_is_watched(opened):
    tab, _ = opened("learning")
    record = json.loads((ROOT / "records" / "learning.json").read_text(encoding="utf-8"))
    for number in (0, 9, 20):
        row = record["checkpoints"][number]
        tab.get_by_label("training step").fill(str(number))
        sentence = said(tab, f"Step {row['step']}:")
        assert (numbers(sentence)[:3] - torch.tensor([row["step"], row["loss"], row["bleu"]])).abs().max() < 0.0051
        assert tab.locator(".captions dd").all_inner_texts() == row["german"]
        shade = tab.locator("rect.weight").evaluate_all("all => all.map(cell => Number(cell.style.fillOpacity))")
        assert shade == [weight for line in row["weights"] for weight in line]
