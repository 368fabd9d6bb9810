"""The copy of a figure for phones: its panels in rows, with everything that belongs to each of them."""

import io
import re
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from panels import SVG, stacked

ROOT = Path(__file__).resolve().parent.parent
NAMES = ["<bos>", "a long name", "<eos>"]


def drawn(draw, *, width=9.0, **grid):
    """A figure as SVG, whose axes `draw` fills."""
    with matplotlib.rc_context(fname=ROOT / "book/matplotlibrc"):
        figure = Figure(figsize=(width, 3))
        draw(figure, figure.subplots(**grid))
        file = io.StringIO()
        figure.savefig(file, format="svg", bbox_inches="tight", metadata={"Date": None})
    return file.getvalue()


def heat_maps(figure, axes):
    for number, axis in enumerate(axes, start=1):
        axis.imshow(np.eye(3))
        axis.set_title(f"head {number}")
    axes[0].set_yticks(range(3), NAMES)


def curve_and_map(figure, axes):
    axes[0].plot([1, 2])
    axes[0].set_ylabel("loss")
    figure.colorbar(axes[1].imshow(np.eye(3)), label="weight")


def places(svg):
    """Each text with the number of its row, and its x there."""
    root = ElementTree.fromstring(svg)
    found = []

    def walk(element, x, y):
        if moved := re.search(r"translate\((\S+) (\S+)\)", element.get("transform", "")):
            x, y = x + float(moved[1]), y + float(moved[2])
        if element.tag == f"{{{SVG}}}text" and element.text:
            found.append((element.text, x + float(element.get("x", 0)), y + float(element.get("y", 0))))
        for child in element:
            walk(child, x, y)

    walk(root, 0.0, 0.0)
    return found, [float(number) for number in root.get("viewBox").split()[2:]]


def test_every_panel_has_a_row_with_its_names_and_says_which_it_was():
    texts, (width, _) = places(stacked(drawn(heat_maps, ncols=3, sharey=True)))
    heads = [place for place in texts if place[0].startswith("head")]
    assert [text for text, *_ in sorted(heads, key=lambda place: place[2])] == ["head 1", "head 2", "head 3"]
    assert len({round(y) for _, _, y in heads}) == 3
    for name in NAMES:  # written once in the figure, for all its panels
        assert len([text for text, *_ in texts if text == name]) == 3
    sides = sorted((y, text) for text, x, y in texts if text in ("left", "middle", "right"))
    assert [text for _, text in sides] == ["left", "middle", "right"]
    assert all(0 <= x <= width < 340 for _, x, _ in texts)


def test_a_colour_bar_stays_beside_its_panel():
    texts, _ = places(stacked(drawn(curve_and_map, ncols=2)))
    assert {"left", "right"} < {text for text, *_ in texts}
    assert "middle" not in {text for text, *_ in texts}
    right = next(y for text, _, y in texts if text == "right")
    assert next(y for text, _, y in texts if text == "weight") > right
    assert next(y for text, _, y in texts if text == "loss") < right


@pytest.mark.parametrize("svg", [
    drawn(lambda figure, axis: axis.plot([1, 2])),
    drawn(curve_and_map, ncols=2, width=3.0),
    drawn(lambda figure, axes: [axis.plot([1, 2]) for axis in axes], nrows=2),
    drawn(lambda figure, axes: figure.suptitle("over both"), ncols=2),
], ids=["one panel", "narrow", "in rows already", "something between the panels"])  # fmt: skip
def test_any_other_figure_stays_as_it_is(svg):
    assert stacked(svg) == ""
