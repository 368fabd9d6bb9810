"""How nbval compares the stored outputs of a chapter with those of a new run, on whatever machine.

Text is compared exactly. Only a cell whose options state a relative tolerance (`:rtol: 1e-3`) may print other numbers,
and none that is farther off. A drawing must have the same elements, words and styles; rounding may move a point of it
by two per cent of a figure's usual height, change a shade by a fifth of the way from black to white, an opacity by a
fifth, and a line's width by a fifth of a point. So a line may move by a hair, but none may come, go, or run elsewhere.
How many points a smooth line is drawn with does not count.
"""

import base64
import io
import math
import os
import re
import sys
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.font_manager  # noqa: F401  # the first import writes a cache and says so: here, not in a chapter
import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from execute import PATIENCE, REPRODUCIBLE
from skips import pytest_sessionfinish  # noqa: F401

NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
REFERENCE = re.compile(r"url\(#\w+\)")
STEP = re.compile(rf"L|{NUMBER.pattern}|\s")
COLOUR = re.compile(r"#[0-9a-f]{6}")
NEAR = 4.6  # points, two per cent of a figure's usual height
SMALL = 0.5  # points, for the shape of a marker
SHADE = 0.2  # of the way from black to white


def pytest_addoption(parser):
    """Add --as-it-is."""
    parser.addoption("--as-it-is", action="store_true", help="run chapters with the environment's own settings")


def pytest_configure(config):
    """Run the chapters, whose kernels inherit these variables, as tools/execute.py does; some take hours."""
    config.option.nbval = config.option.nbval_current_env = True
    config.option.nbval_kernel_startup_timeout, config.option.nbval_cell_timeout = PATIENCE, 36000
    if not config.option.as_it_is:
        os.environ.update(REPRODUCIBLE)


class Text(str):
    """A text that equals others with the same words and numbers no farther from its own than rtol."""

    rtol = 0.0

    def __ne__(self, other):
        if NUMBER.split(self) != NUMBER.split(other):
            return True
        pairs = zip(NUMBER.findall(self), NUMBER.findall(other))
        return not all(ours == theirs or _near(ours, theirs, self.rtol) for ours, theirs in pairs)

    __hash__ = None


def _near(ours, theirs, rtol):
    values = (float(number.replace("−", "-")) for number in (ours, theirs))
    return math.isclose(*values, rel_tol=rtol, abs_tol=0.0)


class Drawing(str):
    """What stands for an SVG, its text in `svg`; it equals others that are drawn alike."""

    def __ne__(self, other):
        return unlike(self.svg, other.svg) is not None

    __hash__ = None


def pytest_assertrepr_compare(left, right):
    """Say where two drawings differ, instead of comparing their lines."""
    return [unlike(left.svg, right.svg)] if isinstance(left, Drawing) else None


def unlike(ours, theirs):
    """Where two SVGs differ by more than rounding explains; None if nowhere."""
    ours, theirs = ([*ElementTree.fromstring(each).iter()] for each in (ours, theirs))
    if [each.tag for each in ours] != [each.tag for each in theirs]:
        return f"{len(theirs)} elements instead of {len(ours)}, or others"
    for element in (*ours, *theirs):
        style = element.get("style", "")
        element.set("style", style if "fill:" in style else f"fill: #000000; {style}".strip("; "))  # it may be left out
    for one, other in zip(ours, theirs):
        if (one.text or "").strip() != (other.text or "").strip():
            return f"{other.text!r} instead of {one.text!r}"
        if {*one.keys()} != {*other.keys()}:
            return f"a <{one.tag}> with {other.keys()} instead of {one.keys()}"
        for key, value in one.items():
            near = SMALL if one.tag.endswith("}path") and "id" in one.keys() else NEAR
            if value != other.get(key) and not alike(key.rpartition("}")[2], value, other.get(key), near):
                return f"{key} {other.get(key):.200} instead of {value:.200}"
    return None


def alike(key, ours, theirs, near):
    """True if an attribute of an SVG's element says the same twice, to within rounding."""
    if key == "id" or (key == "href" and ours[0] == theirs[0] == "#"):
        return True  # made up from what is drawn
    if key == "href":
        ours, theirs = (np.asarray(Image.open(io.BytesIO(base64.b64decode(each[22:])))) for each in (ours, theirs))
        return ours.shape == theirs.shape and np.abs(ours - theirs.astype(float)).max() <= 255 * SHADE
    if REFERENCE.sub("", ours) == REFERENCE.sub("", theirs):
        return True
    if key == "style":
        pairs = zip(COLOUR.findall(ours), COLOUR.findall(theirs))
        shades = [abs(int(a[i : i + 2], 16) - int(b[i : i + 2], 16)) / 255 for a, b in pairs for i in (1, 3, 5)]
        ours, theirs = COLOUR.sub("#", ours), COLOUR.sub("#", theirs)
        pairs = zip(NUMBER.findall(ours), NUMBER.findall(theirs))  # opacities, and widths in points
        shades += [abs(float(one) - float(other)) for one, other in pairs]
        return NUMBER.split(ours) == NUMBER.split(theirs) and max(shades) <= SHADE
    one, other = (np.array(NUMBER.findall(each), dtype=float) for each in (ours, theirs))
    if NUMBER.split(ours) == NUMBER.split(theirs) and np.abs(one - other).max() <= near:
        return True
    if key != "d" or STEP.sub("", ours) != STEP.sub("", theirs):
        return False
    one, other = one.reshape(-1, 2), other.reshape(-1, 2)
    return max(apart(one, other), apart(other, one)) <= near


def apart(points, line):
    """The largest distance of one of these points from a broken line."""
    start, step = line, np.diff(line, axis=0, append=line[-1:])
    square = np.maximum((step**2).sum(axis=1), 1e-12)
    along = (((point - start) * step).sum(axis=1) / square for point in points)
    nearest = (start + np.clip(each, 0, 1)[:, None] * step for each in along)
    return max(np.linalg.norm(near - point, axis=1).min() for near, point in zip(nearest, points))


def comparable(rtol, value):
    """What nbval compares instead of an output."""
    if not isinstance(value, str):
        return value
    if value.startswith("<?xml"):
        drawing = Drawing("a drawing")
        drawing.svg = value
        return drawing
    text = Text(value)
    text.rtol = rtol
    return text


def pytest_collection_modifyitems(items):
    """Let nbval compare drawings as well, and wait as long as a busy machine needs."""
    for item in items:
        if hasattr(item, "cell"):
            item.sanitize = partial(comparable, float(item.cell.metadata.get("rtol", 0)))
            item.output_timeout = PATIENCE
