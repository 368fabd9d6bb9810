"""A Sphinx extension: a page has the glossary's definitions of the terms that it links to, which terms.js shows."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the package is built without Sphinx
    from docutils import nodes
    from sphinx.application import Sphinx

GLOSSARY = "book/glossary"


@cache
def definitions(app: Sphinx) -> dict[str, str]:
    """What the glossary says of each term, by the term's anchor; without the link at its end."""
    from docutils import nodes

    entries = [*app.env.get_doctree(GLOSSARY).findall(nodes.definition_list_item)]
    said = [re.sub(r"\s*\((ch|sec)-[\w-]+\)\s*$", "", entry[-1].astext()) for entry in entries]
    return {name: text for entry, text in zip(entries, said) for term in entry[:-1] for name in term["ids"]}


def add_definitions(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document) -> None:
    """Put the definitions of a page's terms behind its text."""
    names = sorted({*re.findall(r'glossary\.html#(term-[^"]+)"', context.get("body", ""))})
    if names and page != GLOSSARY:
        text = json.dumps({name: definitions(app)[name] for name in names}, ensure_ascii=False).replace("</", "<\\/")
        context["body"] += f'<script type="application/json" id="terms">{text}</script>'


def setup(app: Sphinx) -> dict[str, bool]:
    """Look at each page before it is written."""
    app.connect("html-page-context", add_definitions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
