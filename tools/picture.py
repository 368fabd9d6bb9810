"""Write book/_static/model.svg, the readme's picture: the drawing of chapter 07, without its links.

python tools/picture.py            write it
python tools/picture.py --check    exit 1 if it differs from the drawing in the stored notebook
"""

import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "book" / "_static" / "model.svg"


def drawing() -> str:
    """The drawing as a file that stands alone: one picture, no links, the colours of a light page."""
    notebook = json.loads((ROOT / "book" / "07_model.ipynb").read_text(encoding="utf-8"))
    outputs = [output.get("data", {}) for cell in notebook["cells"] for output in cell.get("outputs", [])]
    page = next(text for text in ("".join(data.get("text/html", "")) for data in outputs) if "<svg" in text)
    svg = page[page.index("<svg") : page.index("</svg>") + len("</svg>")]
    svg = re.sub(r"</?a\b[^>]*>|\.drawing a[^}]*}\n", "", svg)
    svg = re.sub(r"var\(--[\w-]+, (#\w+)\)", r"\1", svg)
    return svg.replace('role="group"', 'role="img"') + "\n"


if __name__ == "__main__":
    wanted = drawing()
    if not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != wanted:
        if "--check" in sys.argv[1:]:
            sys.exit("book/_static/model.svg is not the drawing of chapter 07: run `python tools/picture.py`")
        PICTURE.write_text(wanted, encoding="utf-8")
