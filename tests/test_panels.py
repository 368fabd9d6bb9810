"""The copy of a figure for phones: its panels in rows, with everything that belongs to each of them."""

import importlib.util
import io
import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from panels import stacked

ROOT = Path(__file__).resolve().parent.parent
NAMES = ["a", "a long name", "the"]


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


def words(svg):
    """The texts of a drawing in their order."""
    return re.findall(r"<[^<]*text [^>]*>([^<]+)<", svg)


def test_every_panel_has_a_row_with_its_names_and_says_which_it_was():
    order = words(stacked(drawn(heat_maps, ncols=3, sharey=True)))
    assert [text for text in order if text.startswith("head")] == ["head 1", "head 2", "head 3"]
    assert [text for text in order if text in ("first", "second", "third")] == ["first", "second", "third"]
    assert [order.count(name) for name in NAMES] == [3, 3, 3]  # written once in the figure, for all its panels


def test_a_colour_bar_stays_beside_its_panel():
    order = words(stacked(drawn(curve_and_map, ncols=2)))
    assert order.index("loss") < order.index("weight")
    assert {"first", "second"} < {*order}
    assert "third" not in order


@pytest.mark.parametrize("svg", [
    drawn(curve_and_map, ncols=2, width=3.0),
    drawn(lambda figure, axes: [axis.plot([1, 2]) for axis in axes], nrows=2),
    drawn(lambda figure, axes: figure.suptitle("over both"), ncols=2),
], ids=["narrow", "in rows already", "something between the panels"])  # fmt: skip
def test_any_other_figure_stays_as_it_is(svg):
    assert stacked(svg) == ""


# --- how nbval compares two drawings: rounding may move a point by a hair, and nothing else may change ---
SPEC = importlib.util.spec_from_file_location("nbval_conftest", ROOT / "book/conftest.py")
conftest = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(conftest)
CURVE, SHADES = [0, 3, 4, 3], np.linspace(0, 1, 16).reshape(4, 4)
SMOOTH, WAVES = np.sin(np.linspace(0, 9, 3000)), np.sin(np.linspace(0, 80, 3000))
SPIKE = np.where(np.arange(3000) == 1500, 0.5, 0)
DARKER = np.where(SHADES > 0.9, 0.7, SHADES)


def chart(*curves, marker="", xlabel="", shades=None, cells=None):
    """A small chart as SVG."""

    def draw(_, axes):
        for curve in curves:
            axes.plot(curve, marker=marker)
        if shades is not None:
            axes.imshow(shades, vmin=0, vmax=1)
        if cells is not None:
            axes.pcolormesh(cells, vmin=0, vmax=1)
        axes.set_xlabel(xlabel)

    return drawn(draw)


PLAIN, TWICE, WIDTH = chart(CURVE), chart(CURVE, CURVE), "stroke-width: 1.5"
ALIKE = {
    "rounded": (PLAIN, chart([0, 3, 4, 3.01])),
    "other points of a line": (chart(SMOOTH), chart(SMOOTH + 0.01 * WAVES)),
    "rounded shades": (chart(shades=SHADES), chart(shades=SHADES * 0.99)),
    "rounded cells": (chart(cells=SHADES), chart(cells=SHADES * 0.99)),
}
UNLIKE = {
    "a curve goes elsewhere": (PLAIN, chart([0, 3, 4, 2.5])), "a curve less": (TWICE, PLAIN),
    "a spike more": (chart(SMOOTH), chart(SMOOTH + SPIKE)),
    "another marker": (chart(CURVE, marker="+"), chart(CURVE, marker="x")),
    "another label": (chart(CURVE, xlabel="steps"), chart(CURVE, xlabel="stops")),
    "another line style": (TWICE, TWICE.replace("#0072b2", "#737373")),
    "another width": (PLAIN, PLAIN.replace(WIDTH, "stroke-width: 2")),
    "another shade": (chart(shades=SHADES), chart(shades=DARKER)),
    "another cell": (chart(cells=SHADES), chart(cells=DARKER)),
}  # fmt: skip


@pytest.mark.parametrize("what", [*ALIKE, *UNLIKE])
def test_rounding_is_accepted_and_a_change_is_refused(what):
    assert bool(conftest.unlike(*(ALIKE | UNLIKE)[what])) == (what in UNLIKE)
