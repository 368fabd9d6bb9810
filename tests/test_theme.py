"""What stands around the text of a page: the extension that Sphinx runs, without Sphinx."""

import re
from types import SimpleNamespace

import address
import measured
import pytest
import theme
from docutils import nodes
from docutils.core import publish_doctree


def shown(url, page="book/02_attention", title="A page"):
    """What a page of the book of this repository gets."""
    app = SimpleNamespace(config=SimpleNamespace(html_title="Book", html_theme_options={"repository_url": url}))
    context = {"title": title, "body": "", "header_buttons": []}
    doctree = as_section(publish_doctree("Title\n=====\n\nA sentence of more than forty letters, which says much.\n"))
    theme.add_launchers(app, page, "", context, doctree)
    theme.complete_the_page(app, "book/index", "", context, doctree)
    return context


REMOTES = dict.fromkeys(
    ("git@github.com:me/mine.git", "https://me:secret@github.com/me/mine.git/", "ssh://git@github.com:22/me/mine"),
    "https://github.com/me/mine",
) | {
    "https://gitlab.example/me/group/mine": "https://gitlab.example/me/group/mine",
    "http://github.com/me/mine": "", "file:///mine": "", "../mine": "", "C:/me/mine": "", "": "",
}  # fmt: skip


@pytest.mark.parametrize("remote", REMOTES)
def test_the_address_is_that_of_git_or_of_the_workflow_without_secrets(remote, monkeypatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    monkeypatch.setattr(address.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=f"{remote}\n"))
    assert address.repository() == REMOTES[remote]
    monkeypatch.setenv("GITHUB_REPOSITORY", "Me/theirs")
    assert address.repository() == "https://github.com/Me/theirs"


@pytest.mark.parametrize("url", ["", "https://gitlab.example/me/mine", "https://github.com/Me/mine"])
def test_buttons_lead_to_a_repository_on_github_and_nowhere_without_one(url, monkeypatch):
    options = {"repository_branch": "dev", "use_edit_page_button": True}
    config = SimpleNamespace(html_theme_options=options, html_context={})
    monkeypatch.setattr(theme, "repository", lambda: url)
    theme.lead_to_the_repository(None, config)
    context, real = shown(url), "github.com" in url
    assert options["use_edit_page_button"] == bool(context["header_buttons"]) == real
    assert "og:title" in context["metatags"]
    assert ('"og:image" content="https://me.github.io/mine/_static/card.png"' in context["metatags"]) == real
    assert ('"og:url" content="https://me.github.io/mine/book/index.html"' in context["metatags"]) == real
    if real:
        assert "Me/mine/edit/dev/{{ file_name" in config.html_context["edit_page_url_template"]
        (group,) = context["header_buttons"]
        assert [button["url"] for button in group["buttons"]] == [
            "https://colab.research.google.com/github/Me/mine/blob/notebooks/02_attention.ipynb",
            "https://mybinder.org/v2/gh/Me/mine/main?urlpath=lab/tree/notebooks/02_attention.ipynb",
            "https://codespaces.new/Me/mine",
        ]
        assert shown(url, "book/index")["header_buttons"] == []


def test_the_root_address_has_the_title_and_the_tags_of_the_front_page():
    pages = [theme.ROOT / "_build/html" / name for name in ("index.html", "book/index.html")]
    if not pages[1].exists():
        pytest.skip("the page is not rendered: run `make book` first")
    root, front = (page.read_text(encoding="utf-8").partition("</head>")[0] for page in pages)
    assert 'http-equiv="refresh" content="0; url=book/index.html"' in root
    tags = '<title>.*</title>|<meta (?:property="og:|name="(?:twitter:|description)).*?>'
    assert re.findall(tags, root) == re.findall(tags, front)
    assert len(re.findall(tags, root)) >= 5


def test_checks_and_wrong_code_are_marked():
    """A fold that begins with "Checked", and each block of code that says that it is wrong; nothing else."""
    folds = [nodes.container(prompt_show=title) for title in ("Checked: they agree", "The code", "Show the model")]
    codes = ['def f():\n    """Wrong: it leaks."""', "x = 1  # wrong: 2", "class A(ReferenceModel): pass", "wrong = 1"]
    document = nodes.document(None, None, "", *folds, *(nodes.literal_block(code, code) for code in codes))
    theme.finish_the_cells(None, document, "page")
    assert [each["classes"] for each in document] == [["checked"], ["not-printed"], [], *[["wrong"]] * 3, []]


def as_section(document):
    """Docutils makes the title of a lone section that of the document; Sphinx does not."""
    return nodes.document(None, None, "", nodes.section("", *document.children))


def test_the_small_map_marks_the_chapter_s_boxes_and_is_one_picture():
    drawn = theme.small_map("book/05_masks")
    assert re.findall(r'class="here"><rect[^>]*/><text[^>]*>([^<]*)<', drawn) == ["masked self-attention"]
    assert "This chapter: masked self-attention." in drawn
    assert "<a " not in drawn
    assert theme.small_map("book/01_recurrence") == ""


def test_the_hours_of_the_front_page_add_up_and_are_those_of_the_pages():
    shown = {name: float(text.split()[0].replace("½", ".5")) for name, text in measured.times().items()}
    page, sums = (theme.ROOT / "book/index.md").read_text("utf-8"), {}
    for name, numbers in (("build", range(1, 8)), ("train_and_translate", range(8, 12)), ("trust", (12, 13)),
                          ("further", (14, 15, 16)), ("real_sentences", (17,))):  # fmt: skip
        assert page.count(f"{{{{ hours_{name} }}}}") == 1
        pages = [next((theme.ROOT / "chapters").glob(f"{n:02}_*")).read_text("utf-8") for n in numbers]
        minutes = sum(int(re.search(r"\*\*Time\*\*: (\d+) minutes", text)[1]) for text in pages)
        sums[name] = shown[f"hours_{name}"]
        assert abs(sums[name] - minutes / 60) <= 0.5
    assert shown["hours"] == sum(sums.values())
    assert shown["hours_translator"] == sums["build"] + sums["train_and_translate"]
    assert page.count("{{ hours }}") == page.count("{{ hours_translator }}") == 1
