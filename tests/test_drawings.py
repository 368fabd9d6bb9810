"""How nbval compares two drawings of a chapter: rounding may move a point by a hair, and nothing else may change."""

import importlib.util

import numpy as np
import pytest
from small import ROOT
from test_panels import drawn as figure

SPEC = importlib.util.spec_from_file_location("nbval_conftest", ROOT / "book/conftest.py")
conftest = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(conftest)
CURVE = [0, 3, 4, 3]
SMOOTH = np.sin(np.linspace(0, 9, 3000))
WAVES = np.sin(np.linspace(0, 80, 3000))
SPIKE = np.where(np.arange(3000) == 1500, 0.5, 0)
SHADES = np.linspace(0, 1, 16).reshape(4, 4)


def drawn(*curves, marker="", xlabel="", shades=None, cells=None):
    """A small chart as SVG."""

    def draw(_, axes):
        for curve in curves:
            axes.plot(curve, marker=marker)
        if shades is not None:
            axes.imshow(shades, vmin=0, vmax=1)
        if cells is not None:
            axes.pcolormesh(cells, vmin=0, vmax=1)
        axes.set_xlabel(xlabel)

    return figure(draw)


PLAIN, TWICE, WIDTH = drawn(CURVE), drawn(CURVE, CURVE), "stroke-width: 1.5"
DARKER = np.where(SHADES > 0.9, 0.7, SHADES)
ALIKE = {
    "same": (PLAIN, drawn(CURVE)), "rounded": (PLAIN, drawn([0, 3, 4, 3.01])),
    "other points of a line": (drawn(SMOOTH), drawn(SMOOTH + 0.01 * WAVES)),
    "rounded shades": (drawn(shades=SHADES), drawn(shades=SHADES * 0.99)),
    "rounded cells": (drawn(cells=SHADES), drawn(cells=SHADES * 0.99)),
    "rounded width": (PLAIN, PLAIN.replace(WIDTH, "stroke-width: 1.499998")),
}  # fmt: skip
UNLIKE = {
    "a curve goes elsewhere": (PLAIN, drawn([0, 3, 4, 2.5])), "another axis": (PLAIN, drawn([0, 30, 40, 30])),
    "a spike more": (drawn(SMOOTH), drawn(SMOOTH + SPIKE)), "a spike less": (drawn(SMOOTH + SPIKE), drawn(SMOOTH)),
    "a curve more": (PLAIN, drawn(CURVE, [1, 1, 1, 1])), "a curve less": (TWICE, PLAIN),
    "another element": (PLAIN, PLAIN.replace("<rect ", "<image ")),
    "another marker": (drawn(CURVE, marker="+"), drawn(CURVE, marker="x")),
    "another label": (drawn(CURVE, xlabel="steps"), drawn(CURVE, xlabel="stops")),
    "another line style": (TWICE, TWICE.replace("#0072b2", "#737373")),
    "another width": (PLAIN, PLAIN.replace(WIDTH, "stroke-width: 2")),
    "another dash": (PLAIN, PLAIN.replace(WIDTH, f"stroke-dasharray: 3; {WIDTH}")),
    "another shade": (drawn(shades=SHADES), drawn(shades=DARKER)),
    "another cell": (drawn(cells=SHADES), drawn(cells=DARKER)),
}  # fmt: skip


@pytest.mark.parametrize("what", [*ALIKE, *UNLIKE])
def test_rounding_is_accepted_and_a_change_is_refused(what):
    assert bool(conftest.unlike(*(ALIKE | UNLIKE)[what])) == (what in UNLIKE)
