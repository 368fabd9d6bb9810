"""What stands around the text of a page: the extension that Sphinx runs, without Sphinx."""

from types import SimpleNamespace

import pytest
import theme
from docutils import nodes
from docutils.core import publish_doctree


@pytest.mark.parametrize("url", ["", theme.PLACEHOLDER, theme.PLACEHOLDER + "/"])
def test_no_button_leads_to_a_placeholder(url):
    options = {"repository_url": url, "use_edit_page_button": True, "launch_buttons": {"colab_url": "https://colab"}}
    theme.lead_to_the_repository(None, SimpleNamespace(html_theme_options=options, html_context={}))
    assert not options["use_edit_page_button"]
    assert not options["launch_buttons"]


def test_the_edit_button_leads_to_the_chapter_in_the_repository_that_the_settings_name():
    options = {"repository_url": "https://github.com/me/mine", "repository_branch": "dev", "use_edit_page_button": True}
    config = SimpleNamespace(html_theme_options=options, html_context={})
    theme.lead_to_the_repository(None, config)
    assert options["use_edit_page_button"]
    template = config.html_context["edit_page_url_template"]
    assert template.startswith("https://github.com/me/mine/edit/dev/{{ file_name if ")
    assert "replace('book/', 'chapters/')" in template


def test_a_page_is_described_by_whole_sentences_of_its_text():
    text = "Title\n=====\n\n.. note:: A box of more than forty letters is not what the page is about.\n\n"
    first = "Attention compares a query with every key. " + "It is a mean of values. " * 8
    found = theme.description(as_section(publish_doctree(text + first)))
    assert found.startswith("Attention compares a query with every key. It is")
    assert found.endswith("values.")
    assert 100 < len(found) <= 200
    assert theme.description(as_section(publish_doctree("Title\n=====\n\n" + "word " * 100))).endswith("…")


def test_checks_and_wrong_code_are_marked():
    """A fold that begins with "Checked", and each block of code that says that it is wrong; nothing else."""
    folds = [nodes.container(prompt_show=title) for title in ("Checked: they agree", "The code")]
    codes = [
        '''def f():\n    """Wrong: it leaks."""''',
        "x = 1  # wrong: 2",
        "class A(ReferenceModel):\n    pass",
        "wrong = 1",
    ]
    document = nodes.document(None, None, "", *folds, cell := nodes.container(nb_element="cell_code"))
    cell += [nodes.literal_block(code, code) for code in codes]
    theme.finish_the_cells(None, document, "page")
    assert [fold["classes"] for fold in folds] == [["checked"], []]
    assert [block["classes"] for block in cell] == [["wrong"], ["wrong"], ["wrong"], []]


def as_section(document):
    """Docutils makes the title of a lone section that of the document; Sphinx does not."""
    return nodes.document(None, None, "", nodes.section("", *document.children))
