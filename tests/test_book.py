"""The book: every chapter is listed and complete, every citation exists, no page needs the network."""

import ast
import json
import re
import shlex
import subprocess
import sys
from xml.etree import ElementTree

import export
import measured
import notebooks
import picture
import pytest
from lxml.html import fromstring
from PIL import Image
from pybtex.database import parse_file
from small import ENVIRONMENT, ROOT, stored_cells

from transformer_lib import Translator

CHAPTERS = sorted(path for path in (ROOT / "chapters").glob("*.md") if path.stem != "tour")
IN_DEPTH = [path for path in CHAPTERS if "```{admonition} In depth\n" in path.read_text(encoding="utf-8")]
HANDBOOK = [path for path in CHAPTERS if re.match(r"[A-Z]_", path.stem)]
MAIN = [path for path in CHAPTERS if re.match(r"\d\d_", path.stem)]
PAGES = sorted((ROOT / "_build" / "html").rglob("*.html"))
FRONT_MATTER = "index teaching bench equivalence gallery notation glossary api bibliography".split()

each_chapter = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
each_main_page = pytest.mark.parametrize("chapter", MAIN, ids=lambda path: path.stem)


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_chapters_stand_in_the_order_of_their_numbers_and_pages_in_depth_under_theirs():
    """02a, 02b and so on, without a gap, after 02: neither elsewhere nor forgotten. Each page is listed once."""
    listed = re.findall(r"(?:root|file): (\S+)", read("_toc.yml"))
    pages = [page.stem for page in (ROOT / "chapters").glob("*.md")]
    assert sorted(listed) == sorted(["genindex", *(f"book/{name}" for name in [*pages, *FRONT_MATTER])])
    assert len(listed) <= 85
    numbers = [number for name in listed for number in re.findall(r"book/(\d\d[a-z]?|[A-Z])_", name)]
    assert numbers == sorted(set(numbers))
    assert {number[:2] for number in numbers} == {f"{number:02}" for number in range(18)} | {*"ABCDEFG"}
    for chapter in MAIN:
        letters = "".join(number[2:] for number in numbers if number[:2] == chapter.stem[:2])
        assert "abcdefghi".startswith(letters)


def leads(page):
    """The pages that a rendered page's buttons lead to: previous and next."""
    path = ROOT / "_build/html" / f"{page}.html"
    html = path.read_text(encoding="utf-8")
    links = [re.search(rf'<a class="{side}"\s+href="([^"]+)"', html) for side in ("left-prev", "right-next")]
    found = [link and (path.parent / link[1]).resolve().relative_to(ROOT / "_build/html") for link in links]
    return [name and name.with_suffix("").as_posix() for name in found]


@pytest.mark.skipif(not PAGES, reason="there is no _build/html: run `make book` first")
def test_next_leads_along_the_main_line_and_pages_in_depth_back_to_their_chapter():
    walked = ["book/index"]
    while (after := leads(walked[-1])[1]) is not None:
        assert leads(after)[0] == walked[-1]
        walked.append(after)
    assert walked == ["book/index", "book/tour", *(f"book/{page.stem}" for page in MAIN), "book/epilogue"]
    for page in IN_DEPTH:
        (chapter,) = (main for main in MAIN if main.stem[:2] == page.stem[:2])
        assert leads(f"book/{page.stem}") == [f"book/{chapter.stem}", None]
        label = re.search(r"^\((ch-[\w-]+)\)=$", chapter.read_text("utf-8"), re.MULTILINE)[1]
        assert page.read_text("utf-8").endswith(f"\n**Back to** {{ref}}`{label}`\n")


@pytest.mark.parametrize("chapter", [*CHAPTERS, ROOT / "chapters/tour.md"], ids=lambda path: path.stem)
def test_every_figure_has_a_caption_and_an_alternative_text_which_do_not_speak_of_shades(chapter):
    """Dark pages turn them round."""
    drawn = {
        "".join(cell["source"])
        for cell in stored_cells(chapter.stem)
        if any(kind.startswith("image/") for output in cell.get("outputs", []) for kind in output.get("data", {}))
    }
    for cell in export.read(chapter).cells:
        tags, options = cell.metadata.get("tags", []), cell.metadata.get("mystnb", {})
        draws = "plt.show()" in cell.source and not any(tag.startswith("export") for tag in tags)
        if cell.cell_type == "code" and (cell.source in drawn or draws or {"figure", "image"} <= {*options}):
            first = cell.source.splitlines()[0]
            figure, alt = options.get("figure", {}), options.get("image", {}).get("alt")
            assert figure.get("caption"), f"no caption for the figure of: {first}"
            assert figure.get("name", "").startswith("fig-"), f"no name: {first}"
            assert alt, f"no alternative text for the figure of: {first}"
            shades = re.search(r"\b(black|white|dark|light|pale)", figure["caption"] + alt, re.IGNORECASE)
            assert not shades, figure["name"]


@each_chapter
def test_outputs_are_small_and_without_warnings_and_no_number_is_given_twice(chapter):
    """Of two numbers glued under one name the page shows the later one at both places."""
    outputs, names = [output for cell in stored_cells(chapter.stem) for output in cell.get("outputs", [])], []
    for output in outputs:
        assert len("".join(output.get("data", {}).get("image/svg+xml", ""))) < 150_000, "a large drawing"
        assert output.get("name") != "stderr", output
        if "scrapbook" in output.get("metadata", {}):
            names.append(output["metadata"]["scrapbook"]["name"])
    assert not re.findall(r" at 0x[0-9a-f]{6,}", json.dumps(outputs)), "an address, which is another one in each run"
    assert sorted(names) == sorted(set(names))
    assert names or "{glue" not in chapter.read_text(encoding="utf-8")


def prose_of(text):
    """The words of a chapter, or of a part of it, without its front matter and its code."""
    return re.sub(r"\A---\n.*?\n---\n|^```\{code-cell\}.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE).split()


@pytest.mark.parametrize("chapter", MAIN[2:11], ids=lambda path: path.stem)
def test_a_fifth_of_the_words_at_most_follow_the_last_part_that_the_reader_writes(chapter):
    text = chapter.read_text(encoding="utf-8")
    after = re.split(r'grade\("\d\d-\d"\)', text)[-1].partition("\n## ")[2]  # without an answer: in my_transformer.py
    assert 0.1 < len(prose_of(after)) / len(prose_of(text)) <= 0.2


def words(pages):
    return sum(len(prose_of(page.read_text(encoding="utf-8"))) for page in pages)


def test_the_book_can_be_read():
    assert words((ROOT / "chapters").glob("*.md")) <= 118_000
    assert words(MAIN) <= 52_000
    assert words(HANDBOOK) <= 4_130
    assert len(CHAPTERS) + 1 + len(FRONT_MATTER) < 85, "pages, with the tour"
    assert sum(measured.time_of(f"book/{page.stem}") for page in IN_DEPTH) <= 28 * 60


def selected(tree, places):
    """The elements of a tag, of a class, or of both, written as in CSS."""
    wanted = [place.partition(".") for place in places.split(", ")]
    return [
        each
        for each in tree.iter("*")
        if any(tag in ("", each.tag) and kind in ("", *each.get("class", "").split()) for tag, _, kind in wanted)
    ]


def article_of(chapter):
    page = ROOT / "_build" / "html" / "book" / f"{chapter.stem}.html"
    if not page.exists():
        pytest.skip("the page is not rendered: run `make book` first")
    (article,) = selected(fromstring(page.read_bytes()), "article.bd-article")
    return article


@pytest.mark.parametrize("chapter", [*MAIN, *IN_DEPTH, *HANDBOOK], ids=lambda path: path.stem)
def test_title_and_captions_have_the_number_of_the_file(chapter):
    """ "2.a.1" on 02a_gradient."""
    article = article_of(chapter)
    number = ".".join(re.match(r"0?(\d+|[A-Z])([a-z]?)_", chapter.stem).groups()).rstrip(".")
    assert selected(article, "h1")[0].find_class("section-number")[0].text_content().strip() == number
    titles = selected(article, "figure, p.admonition-title")
    shown = [each.text_content().strip() for title in titles for each in title.find_class("caption-number")]
    assert len(shown) == len(selected(article, "figure, div.exercise"))
    assert all(re.fullmatch(rf"(Fig\.|Exercise) {re.escape(number)}\.\d+", each) for each in shown), shown


def needed(chapter):
    """How many minutes its rendered page takes: 130 words or 12 lines a minute, and its exercises."""
    article = article_of(chapter)
    exercises = len(selected(article, "div.exercise"))
    folded = "div.exercise, div.solution, details, div.toctree-wrapper, .headerlink, nav.chapters, script, style"
    for each in selected(article, folded):
        each.drop_tree()
    lines = sum(len(block.text_content().rstrip("\n").split("\n")) for block in selected(article, "pre"))
    for formula in selected(article, "span.math"):
        formula.text = "x"  # a formula within a sentence is a word
    for other in selected(article, "div.cell, figure, table, div.math, pre"):
        other.drop_tree()
    return len(" ".join(article.xpath(".//text()")).split()) / 130 + lines / 12 + 8 * exercises


@each_main_page
def test_a_main_page_can_be_finished_in_an_evening(chapter):
    said = re.search(r"\*\*Time\*\*: (\d+) minutes(?:.*?, (\d+) of them)?", chapter.read_text("utf-8"))
    total, own = int(said[1]), int(said[2] or 0)  # own: for what the reader writes into my_transformer.py
    assert needed(chapter) + (own and own - 8) - 5 <= total <= 150
    article = article_of(chapter)
    assert len(selected(article, "figure")) >= (1 if chapter == MAIN[0] else 2), "pictures"
    assert len(selected(article, "div.exercise")) <= 4, "exercises"


@each_chapter
def test_every_exercise_has_its_folded_solution(chapter):
    """A few sections further on, some part by part; a page counts its exercises as their labels do."""
    text = chapter.read_text(encoding="utf-8")
    exercises = re.findall(r"^`{3,}\{exercise\}.*\n:label: (ex-\S+)$", text, re.MULTILINE)
    solutions = re.findall(r"^`{3,}\{solution(?:-start)?\} (ex-\S+)\n:class: dropdown$", text, re.MULTILINE)
    assert sorted(exercises) == exercises == sorted(set(solutions))
    assert all(label.startswith(f"ex-{chapter.stem.split('_')[0]}-") for label in exercises)
    assert exercises or chapter not in MAIN


@pytest.mark.parametrize("page", IN_DEPTH, ids=lambda path: path.stem)
def test_a_page_in_depth_says_who_should_read_it_and_for_how_long_and_its_chapter_links_to_it(page):
    """As the front page says."""
    text = page.read_text(encoding="utf-8")
    opening = r"^\((ch-[\w-]+)\)=\n# .*\n\n```\{admonition\} In depth\nFor readers who(?:se)? .*\n\n\*\*Time\*\*: "
    label = re.search(opening, text, re.MULTILINE)[1]
    (chapter,) = (main for main in MAIN if main.stem[:2] == page.stem[:2])
    assert re.search(rf"[`<]{label}[`>]", chapter.read_text(encoding="utf-8"))
    assert -10 <= measured.time_of(f"book/{page.stem}") - needed(page) <= 50  # hard ones take longer than it counts


def tolerances_left_out(code):
    """Every comparison that leaves a tolerance to its default, which may be as large as the value; not Python's own."""
    comparison = r"(?!math\.)(.*\.)?(allclose|isclose|assert_close|assert_allclose)"
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and re.fullmatch(comparison, ast.unparse(node.func)):
            if not {keyword.arg for keyword in node.keywords} >= {"rtol", "atol"}:
                yield ast.unparse(node)


def test_formulas_have_the_letters_of_the_notation():
    """W^Q and not W_Q, d and not d_model; the tokens that are no words are <bos>, <eos> and <pad>."""
    for path in CHAPTERS:
        text = re.sub(r"^(`{3,})\{code-cell\}.*?^\1$", "", path.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        formulas = re.findall(r"^```\{math\}\n.*?^```$|(?<![\\$`])\$[^$`\n]+\$", text, re.DOTALL | re.MULTILINE)
        assert [formula for formula in formulas if re.search(r"W_[QKVO]\b|d_\\text\{model\}", formula)] == [], path.stem
        assert not re.search(r"<start>|<end>|`(BOS|EOS|PAD)`", text), path.stem


def test_every_comparison_states_both_tolerances():
    assert list(tolerances_left_out("torch.allclose(a, b, rtol=0)")) == ["torch.allclose(a, b, rtol=0)"]
    sources = [
        path for folder in ("tests", "tools", "experiments", "bench", "book") for path in ROOT.glob(f"{folder}/*.py")
    ]
    codes = {path.name: path.read_text(encoding="utf-8") for path in sources}
    for chapter in CHAPTERS:
        cells = [cell.source for cell in export.read(chapter).cells if cell.cell_type == "code"]
        codes[chapter.name] = re.sub(r"^[%!].*", "", "\n".join(cells), flags=re.MULTILINE)
    found = [(name, call) for name, code in codes.items() if "close(" in code for call in tolerances_left_out(code)]
    assert found == []


def test_no_two_works_are_cited_alike():
    """The text cites by author and year, and letters tell two works of one year apart: Cho et al. [2014a]."""
    cited = [notebooks.cited(key) for key in parse_file(ROOT / "book/references.bib").entries]
    assert sorted(cited) == sorted(set(cited))


def test_no_absolute_paths_and_no_registry_addresses():
    """In no text of the repository but MathJax's."""
    places = "|".join(("work", "home", "root", "tmp", "Users"))
    registries = r"pypi\.org/simple|pythonhosted|index-" + r"url|pytorch\.org/whl|registry\.npmjs|conda\.anaconda"
    forbidden = re.compile(rf"(?<![\w.~$}}<>/*-])/(?:{places})/|{registries}")
    command, found = ["git", "ls-files", "--cached", "--others", "--exclude-standard"], []
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    for name in sorted({*names} - {"tests/test_book.py"}):
        if not name.startswith("book/_static/mathjax/") and (ROOT / name).is_file():
            text = (ROOT / name).read_bytes().decode("utf-8", errors="ignore")
            text = re.sub(r"data:image/png;base64,[^\"]*|(?<=\"image/png\": \")[^\"]*", "", text)
            found += [f"{name}: {match[0]}" for match in forbidden.finditer(text)]
    assert found == []


FORGETFUL = """
import torch
from torch import nn


class Mine(nn.Module):
    def __init__(self, source_vocab_size, target_vocab_size, pad_id):
        super().__init__()
        self.pad_id = pad_id
        self.source, self.target = nn.Embedding(source_vocab_size, 32), nn.Embedding(target_vocab_size, 32)
        self.positions = nn.Embedding(512, 32)
        self.inner = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)
        self.out = nn.Linear(32, target_vocab_size)

    def embed(self, table, tokens):
        return table(tokens) + self.positions(torch.arange(tokens.size(1), device=tokens.device))

    def forward(self, source, target):
        x, y, pad = self.embed(self.source, source), self.embed(self.target, target), source == self.pad_id
        return self.out(self.inner(x, y, src_key_padding_mask=pad, memory_key_padding_mask=pad))


my_factory = Mine
"""
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@pytest.mark.parametrize("session", blocks(read("README.md"), "console"), ids=["translate", "check"])
def test_readme_shows_what_its_commands_print(session, tmp_path):
    """Their last lines; a number may differ in its last digit, as processors do."""
    (tmp_path / "my_module.py").write_text(FORGETFUL, encoding="utf-8")
    command, _, shown = session.partition("\n")
    _python, *arguments = shlex.split(command.removeprefix("$ "))
    how = {"cwd": tmp_path, "env": ENVIRONMENT, "capture_output": True, "text": True, "check": False}
    done = subprocess.run([sys.executable, *arguments], **how)
    assert done.stderr == ""
    printed = done.stdout.splitlines()[-len(shown.splitlines()) :]
    assert [NUMBER.sub("#", line) for line in printed] == [NUMBER.sub("#", line) for line in shown.splitlines()]
    expected = [float(number) for number in NUMBER.findall(shown)]
    assert [float(number) for number in NUMBER.findall("\n".join(printed))] == pytest.approx(expected, rel=0.02, abs=0)


def test_the_library_s_first_code_runs(capsys):
    (block,) = blocks(read("book/api.md"), "python")
    assert len([line for line in block.splitlines() if line]) <= 6
    exec(block, {})
    assert capsys.readouterr().out == "torch.Size([1, 3, 100])\n"


def test_readme_sets_up_with_two_commands_and_its_links_lead_somewhere():
    text = read("README.md")
    (block,) = blocks(text.partition("\n## Set-up to change the course\n")[2].partition("\n## ")[0], "sh")
    assert [line.partition("#")[0].strip() for line in block.splitlines()] == ["make book", "make test"]
    pictures = re.findall(r'<img src="([^"]+)" [^>]*alt="[^"]+">', text)
    links = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r'srcset="([^"]+)"', text) + pictures
    assert pictures
    for target in links:
        assert target.startswith("https://") or (ROOT / target).is_file(), f"{target} does not exist"


def test_the_pictures_show_where_the_shipped_translator_looks():
    translator = Translator.from_pretrained(picture.RUN)
    svg, six = picture.look(translator), picture.choice(translator)
    for name, drawn in (("look.svg", svg), ("look-dark.svg", picture.dark(svg)), ("look.html", six)):
        stored = read(f"book/_static/{name}")
        assert NUMBER.sub("#", stored) == NUMBER.sub("#", drawn), f"{name}: run tools/picture.py"
        expected = [float(number) for number in NUMBER.findall(drawn)]
        assert [float(number) for number in NUMBER.findall(stored)] == pytest.approx(expected, rel=0, abs=0.11)
        if name.endswith(".svg"):
            ElementTree.fromstring(stored)
    assert "var(" not in read("book/_static/look-dark.svg")
    with Image.open(ROOT / "book/_static/card.png") as card:
        assert card.size == (1200, 630)
        assert card.text.get("drawn from") == picture.digest(read("book/_static/look.svg")), "run tools/picture.py"


def test_the_map_has_the_chapters_numbers():
    boxes = re.findall(r'<a href="(\w+)\.html">.*?>(\d+)</text></a>', read("book/_static/map.svg"))
    assert {int(number) for _, number in boxes} == {*range(2, 11)}
    for chapter, number in boxes:
        assert (ROOT / "chapters" / f"{chapter}.md").is_file()
        assert int(chapter.partition("_")[0]) == int(number)
