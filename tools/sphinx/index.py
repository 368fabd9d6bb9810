"""The index names each page on which a term of the glossary is used, beside the glossary itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the package is built without Sphinx
    from docutils import nodes
    from sphinx.application import Sphinx


def add_entries(app: Sphinx, doctree: nodes.document) -> None:
    """Give the index an entry for the first use of each term on a page."""
    from sphinx import addnodes

    seen = set[str]()
    for use in [*doctree.findall(addnodes.pending_xref)]:
        term = use["reftarget"]
        if use["reftype"] == "term" and term.lower() not in seen:
            seen.add(term.lower())
            name = f"term-use-{app.env.new_serialno('index')}"
            use.parent.insert(use.parent.index(use), addnodes.index(entries=[("single", term, name, "", None)]))
            use["ids"].append(name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Read each page once it is parsed."""
    app.connect("doctree-read", add_entries)
    return {"parallel_read_safe": True}
