"""Pages carry the numbers of their files: 02_attention is 2, 02a_gradient 2.a, A_command_line A."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the package is built without Sphinx
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment


def number_of(docname: str) -> tuple[Any, ...]:
    """The number of a page; empty for one that has none."""
    found = re.fullmatch(r"book/(?:(\d\d)|([A-Z]))([a-z]?)_\w+", docname)
    if not found:
        return ()
    chapter, appendix, page = found.groups()
    return (int(chapter) if chapter else appendix, *page)


def number_pages(env: BuildEnvironment) -> list[str]:
    """Number the titles of all pages, and no section within them; return the pages whose number changed."""
    from docutils import nodes

    before, env.toc_secnumbers = env.toc_secnumbers, {}
    for docname in env.found_docs:
        if number := number_of(docname):
            title, *sections = env.tocs[docname].findall(nodes.reference)
            title["secnumber"] = env.titles[docname]["secnumber"] = number
            env.toc_secnumbers[docname] = {"": number, **{each["anchorname"]: () for each in sections}}
    return [docname for docname, numbers in env.toc_secnumbers.items() if before.get(docname) != numbers]


def take_over(app: Sphinx) -> None:
    """Let Sphinx number pages in this way, and then the figures, formulas and exercises on them in its own."""
    from sphinx.environment.collectors.toctree import TocTreeCollector

    for listener in app.events.listeners["env-get-updated"]:
        collector = getattr(listener.handler, "__self__", None)
        if isinstance(collector, TocTreeCollector):
            collector.assign_section_numbers = number_pages  # type: ignore[method-assign]


def setup(app: Sphinx) -> dict[str, bool]:
    """Wait until all extensions are there: one of them brings a collector of its own."""
    app.connect("builder-inited", take_over)
    return {"parallel_read_safe": True}
