"""How nbval compares the stored outputs of a chapter with those of a new run, on whatever machine.

Text is compared exactly. Only a cell whose options state a relative tolerance (`:rtol: 1e-3`) may print other numbers,
and none that is farther off. A picture must have the same size to two per cent and look the same: each point has a
shade that occurs nearby in the other picture. So a line may move by a hair, but none may come, go, or run elsewhere.
"""

import base64
import io
import math
import os
import re
import sys
from functools import partial
from pathlib import Path

import matplotlib.font_manager  # noqa: F401  # the first import writes a cache and says so: here, not in a chapter
import numpy as np
from PIL import Image, ImageFilter

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from execute import REPRODUCIBLE

NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
SIZE = 0.02  # of width and height
NEAR = 7  # pixels, two per cent of a picture's usual height
SHADE = 0.2  # of the way from black to white


def pytest_addoption(parser):
    """Add --as-it-is."""
    parser.addoption("--as-it-is", action="store_true", help="run chapters with the environment's own settings")


def pytest_configure(config):
    """Run the chapters, whose kernels inherit these variables, as tools/execute.py does."""
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


class Picture(str):
    """A PNG in base64 that equals others that look the same."""

    def __ne__(self, other):
        return unlike(self, other) is not None

    __hash__ = None


def unlike(ours, theirs):
    """How two PNG pictures in base64 differ; None if they look the same."""
    ours, theirs = (Image.open(io.BytesIO(base64.b64decode(each))).convert("RGBA") for each in (ours, theirs))
    if not all(math.isclose(a, b, rel_tol=SIZE, abs_tol=1) for a, b in zip(ours.size, theirs.size)):
        return f"size {theirs.size} instead of {ours.size}"
    pictures = []
    for picture in (ours, theirs.resize(ours.size)):
        white = Image.new("RGBA", picture.size, "white")
        pictures.append(Image.alpha_composite(white, picture).convert("RGB").filter(ImageFilter.GaussianBlur(1)))
    apart = 0.0
    for one, other in (pictures, pictures[::-1]):
        value, *around = (
            np.asarray(each, dtype=float) / 255
            for each in (
                one,
                *(other.filter(extreme(2 * NEAR + 1)) for extreme in (ImageFilter.MinFilter, ImageFilter.MaxFilter)),
            )
        )
        apart = max(apart, (around[0] - value).max(), (value - around[1]).max())
    return f"a shade apart by {apart:.2f}" if apart > SHADE else None


def comparable(rtol, value):
    """What nbval compares instead of an output."""
    if not isinstance(value, str):
        return value
    if value.startswith("iVBOR"):  # how PNG begins
        return Picture(value)
    text = Text(value)
    text.rtol = rtol
    return text


def pytest_collection_modifyitems(items):
    """Let nbval compare pictures as well, and wait as long as a busy machine needs."""
    for item in items:
        if hasattr(item, "cell"):
            item.parent.skip_compare = tuple(key for key in item.parent.skip_compare if key != "image/png")
            item.sanitize = partial(comparable, float(item.cell.metadata.get("rtol", 0)))
            item.output_timeout = 600
