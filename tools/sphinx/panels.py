"""A phone's copy of a figure: the panels that Matplotlib drew side by side, in as many rows as legible text needs."""

import re
from collections.abc import Iterator
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

SVG, LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
ROW = 340  # points, a little less than the pixels of a phone's column: text of 10 points has about 10 pixels
BAR = 20  # points: what is narrower is a colour bar
LABELS = {2: ("first", "second"), 3: ("first", "second", "third")}  # as captions call the panels
NUMBER = r"(-?[\d.]+)"

Span = tuple[float, float]


class Panel(NamedTuple):
    """Axes that share a column: the axes, their frame's left edge, and how far all of their ink reaches."""

    axes: list[Element]
    frame: float
    left: float
    right: float


def texts(group: Element) -> Iterator[Span]:
    """From where to where each text of a group reaches; formulas stand in groups that move them."""
    for parent in group.iter():
        for text in parent.findall(f"{{{SVG}}}text"):
            style = text.get("style", "") + ";" + "".join(part.get("style", "") for part in text)
            transform = parent.get("transform", "") + text.get("transform", "")
            moved, turned = (re.search(rf"{name}\({NUMBER}", transform) for name in ("translate", "rotate"))
            size = float(re.search(rf"font-size: {NUMBER}px", style)[1])  # type: ignore[index]
            font = FontProperties(
                family="DejaVu Sans", size=size, weight="bold" if "weight: 700" in style else "normal"
            )
            words = " ".join("".join(text.itertext()).split())
            width, height, _ = text_to_path.get_text_width_height_descent(words, font, ismath=False)
            x = float(text.get("x", moved[1] if moved else 0))
            if turned and float(turned[1]):
                yield x - height - width * (abs(float(turned[1])) < 80), x + height
            else:
                start = x - width * {"middle": 0.5, "end": 1}.get(style.partition("text-anchor: ")[2].split(";")[0], 0)
                yield start, start + width


def shapes(group: Element, clips: dict[str, Span]) -> Iterator[tuple[bool, Span]]:
    """From where to where each path of a group reaches, and whether that is the edge at which it is clipped."""
    for path in group.iter(f"{{{SVG}}}path"):
        xs = [float(x) for x in re.findall(rf"[ML] {NUMBER} ", path.get("d", ""))]
        clip = clips.get(path.get("clip-path", ""))
        if clip or (xs and not path.get("id")):  # one with a name is a mark that is drawn elsewhere
            yield bool(clip), clip or (min(xs), max(xs))


def panels(root: Element, figure: Element) -> list[Panel]:
    """The columns of a figure's axes, from left to right; a colour bar belongs to what is on its left."""
    clips = {}
    for path in root.iter(f"{{{SVG}}}clipPath"):
        x, width = (float(path[0].get(name, 0)) for name in ("x", "width"))
        clips[f"url(#{path.get('id')})"] = (x, x + width)
    found = []
    for axes in figure:
        drawn = list(shapes(axes, clips))
        clipped = [span for clip, span in drawn if clip]
        frame = clipped[0] if clipped else (min(x for _, (x, _) in drawn), max(x for _, (_, x) in drawn))
        reach = [*texts(axes), *(span for _, span in drawn)]
        found.append((frame, axes, min(left for left, _ in reach), max(right for _, right in reach)))
    columns: list[Panel] = []
    end = -1.0
    for (start, stop), axes, left, right in sorted(found, key=lambda each: each[0]):
        if columns and (start < end or stop - start < BAR):
            last = columns.pop()
            columns.append(Panel([*last.axes, axes], last.frame, min(left, last.left), max(right, last.right)))
        else:
            columns.append(Panel([axes], start, left, right))
        end = max(end, stop)
    return columns


def scale(panel: Panel) -> list[Element]:
    """The labels on the left of a panel."""
    sides = [part for axes in panel.axes for part in axes if part.get("id", "").startswith("matplotlib.axis_")]
    return [side for side in sides[1::2] if side.find(f".//{{{SVG}}}text") is not None]


def stacked(svg: str) -> str:
    """The figure with its panels in rows; empty if it is narrow, has one panel, or things between its panels."""
    for prefix, name in (("", SVG), ("xlink", LINK)):
        ElementTree.register_namespace(prefix, name)
    root = ElementTree.fromstring(svg)
    figure = next((part for part in root if part.get("id") == "figure_1"), None)
    if figure is None or not all(part.get("id", "").startswith(("patch_1", "axes_")) for part in figure):
        return ""
    width, height = map(float, root.get("viewBox", "").split()[2:])
    figure.remove(figure[0])
    columns = panels(root, figure)
    if width <= ROW or len(columns) < 2:
        return ""
    for axes in list(figure):
        figure.remove(axes)
    first, labels = columns[0], LABELS.get(len(columns), ("",) * len(columns))
    x = y = widest = 0.0
    for panel, label in zip(columns, labels):
        shared = panel is not first and scale(first) and not scale(panel)
        margin = first.frame - first.left if shared else 0.0
        if x and x + panel.right - panel.left > ROW:
            x, y = 0.0, y + height + 14
        start = x + 4 + (max(margin - (panel.frame - panel.left), 0) if not x else 0)
        group = ElementTree.SubElement(figure, f"{{{SVG}}}g", transform=f"translate({start - panel.left:g} {y + 14:g})")
        group.extend(panel.axes)
        if shared and not x:
            moved = f"translate({panel.frame - first.frame:g} 0)"
            ElementTree.SubElement(group, f"{{{SVG}}}g", transform=moved).extend(scale(first))
        style = "font: italic 9px 'DejaVu Sans', 'Verdana', sans-serif; fill: #737373"
        words = ElementTree.SubElement(figure, f"{{{SVG}}}text", style=style, x=f"{start:g}", y=f"{y + 9:g}")
        words.text = label
        x = start + panel.right - panel.left + 4
        widest = max(widest, x)
    root.set("viewBox", f"0 0 {widest:g} {y + height + 14:g}")
    root.set("width", f"{widest:g}pt")
    root.set("height", f"{y + height + 14:g}pt")
    return ElementTree.tostring(root, encoding="unicode")
