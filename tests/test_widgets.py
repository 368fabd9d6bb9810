"""What the book's widgets compute, in JavaScript, is what the library computes; and they answer to the keyboard."""

import json
import re
import subprocess

import pytest
import torch
from small import ROOT, node, stored_cells

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.cost import attention_memory, count_parameters, decoding_flops, training_flops
from transformer_lib.decoding import beam_search
from transformer_lib.decoding.sampling import filtered_probabilities
from transformer_lib.model import TransformerConfig
from transformer_lib.positions import sinusoidal_table
from transformer_lib.teaching import WORDS, TableModel

STATIC = ROOT / "book" / "_static"


def ask(name, *calls):
    """What the function of this name in widgets.js returns, for each list of arguments."""
    program = """const widgets = require(process.argv[1]), [name, calls] = JSON.parse(process.argv[2]);
        console.log(JSON.stringify(calls.map((call) => widgets[name](...call))));"""
    command = [node(), "-e", program, str(STATIC / "widgets.js"), json.dumps([name, calls])]
    return json.loads(subprocess.run(command, capture_output=True, check=True, encoding="utf-8").stdout)


def close(found, expected, atol=1e-12):
    """The same numbers to within the rounding of float64."""
    return torch.allclose(torch.tensor(found, dtype=torch.float64), expected.double(), rtol=1e-12, atol=atol)


@pytest.mark.parametrize("divisor", [0.25, 2.0])
def test_attention_by_hand(divisor):
    generator = torch.Generator().manual_seed(0)
    shapes = {"X": (3, 2), "W_Q": (2, 4), "W_K": (2, 4), "W_V": (2, 5)}
    given = {name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    (found,) = ask("attention", [{name: matrix.tolist() for name, matrix in given.items()}, divisor])
    query, key, value = (given["X"] @ given[name] for name in ("W_Q", "W_K", "W_V"))
    output, weights = scaled_dot_product_attention(query * 2 / divisor, key, value)  # which divides by √4
    for name, expected in (("Q", query), ("K", key), ("V", value), ("weights", weights), ("output", output)):
        assert close(found[name], expected), name


def test_masked_weights():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    mask = torch.rand(5, 4, generator=generator) < 0.5
    mask[2], mask[3] = False, True
    calls = list(zip(scores.tolist(), mask.tolist()))
    value = torch.eye(4, dtype=torch.float64)
    _, expected = scaled_dot_product_attention(2 * scores, value, value, mask)
    assert close(ask("softmax", *calls), expected)
    assert (expected[2] == 0).all()
    filled = ask("softmax", *((row, allowed, -1e9) for row, allowed in calls))
    assert close(filled, scores.masked_fill(~mask, -1e9).softmax(dim=-1))


@pytest.mark.parametrize("d_model", [2, 8])
def test_rows_of_positions(d_model):
    assert close(ask("positionRow", *([position, d_model] for position in range(101))), sinusoidal_table(101, d_model))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_every_answer_of_a_beam_search(alpha):
    """Tables of random probabilities, each with any number of slots; some searches end at the limit."""
    generator, calls, expected = torch.Generator().manual_seed(0), [], []
    for size in (1, 2, 3, 4) * 5:
        rows = torch.rand(4, 4, generator=generator, dtype=torch.float64) * torch.tensor([1, 1, 1, 0.3])
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
    p = torch.randn(6, generator=torch.Generator().manual_seed(0), dtype=torch.float64).softmax(dim=0)
    p = p.sort(descending=True).values
    settings = [(1, 6, 1), (0.5, 6, 1), (2, 3, 1), (1, 6, 0.5), (0.7, 4, 0.8), (0.1, 1, 0.05)]
    answers = ask("filtered", *([p.tolist(), *setting] for setting in settings))
    for setting, found in zip(settings, answers, strict=True):
        expected, _ = filtered_probabilities(p.log()[None], *setting)
        assert close(found[: setting[1]], expected[0])
        assert found[setting[1] :] == [0] * (6 - setting[1])


def test_costs():
    """Exactly those of the library, as long as they are whole numbers that a float64 holds."""
    sizes = ["d_model", "num_heads", "d_ff", "num_encoder_layers", "num_decoder_layers"]
    sizes += ["source_vocab_size", "target_vocab_size"]
    models = [
        ((512, 8, 2048, 6, 6, 37000, 37000), "all", False, (25, 25, 1000)),
        ((128, 4, 256, 4, 3, 10000, 9000), "target", False, (15, 20, 1)),
        ((6, 3, 10, 1, 2, 11, 13), "none", True, (5, 4, 3)),
        ((1024, 16, 4096, 6, 6, 37000, 37000), "all", True, (1, 7, 2)),
    ]
    calls, expected = [], []
    for layout, tie, norm_first, (n, m, batch) in models:
        options = dict(zip(sizes, layout)) | {"tie_embeddings": tie, "norm_first": norm_first}
        calls.append([options | {"source_length": n, "target_length": m, "batch": batch}])
        config = TransformerConfig(pad_id=0, max_len=512, **options)
        kept = [attention_memory(n, layout[0], layout[1], batch=batch, fused=fused) for fused in (True, False)]
        flops = training_flops(config, n, m, batch=batch), decoding_flops(config, n, m, batch=batch)
        results = (count_parameters(config), *flops, *kept)
        expected.append(dict(zip(("parameters", "training", "decoding", "fused", "readable"), results)))
    assert ask("cost", *calls) == expected


def box(name):
    """The widget in the stored outputs: what a cell of a chapter wrote."""
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        for cell in stored_cells(path.stem):
            for output in cell.get("outputs", []):
                text = "".join(output.get("data", {}).get("text/html", ""))
                if f'<div class="widget" id="widget-{name}"' in text:
                    return text
    raise LookupError(f"no chapter has a widget {name}")


@pytest.mark.parametrize("name", ["attention", "masks", "positions", "beam", "sampling", "gallery", "cost"])
def test_a_widget_takes_the_place_of_its_table_and_answers_to_the_keyboard(browser, name, tmp_path):
    """In a bare page, 360 pixels wide."""
    styles, script = ((STATIC / file).read_text(encoding="utf-8") for file in ("widgets.css", "widgets.js"))
    page = f"<!doctype html><meta charset=utf-8><style>{styles}</style>{box(name)}<script>{script}</script>"
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    errors, tab = [], browser.new_page(viewport={"width": 360, "height": 800})
    tab.set_default_timeout(0)  # a busy machine takes its time
    tab.on("pageerror", lambda error: errors.append(error))
    tab.goto((tmp_path / "page.html").as_uri())
    before = tab.get_by_role("status").inner_text()
    assert errors == []
    assert before
    assert tab.locator(".widget-still").count() == 0
    assert tab.evaluate("document.documentElement.scrollWidth") == 360
    tab.keyboard.press("Tab")
    kind = tab.evaluate("document.activeElement.type")
    tab.keyboard.press({"number": "7", "button": "Enter"}.get(kind, "End"))  # a slider or a choice goes to its end
    tab.wait_for_function("before => document.querySelector('[role=status]').innerText !== before", arg=before)
    assert errors == []


def test_the_roles_have_the_colours_of_the_figures():
    styles = (STATIC / "widgets.css").read_text(encoding="utf-8")
    light = dict(re.findall(r"--role-(\w+): #(\w+);", styles.partition("}")[0]))
    colours = re.search(r"color', \[(.*?)\]", (ROOT / "book" / "matplotlibrc").read_text(encoding="utf-8"))[1]
    assert " ".join(light) == "query key value weight mask encoder decoder gradient"
    assert [colour.upper() for colour in light.values()] == re.findall(r"\w+", colours)
