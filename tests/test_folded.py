"""What a reader finds who leaves every fold shut, and what stays shut until it is wanted."""

import ast
import builtins
import re

import export
import pytest
from small import ROOT

from transformer_lib.exercises import own_file

MAIN = [path for path in sorted((ROOT / "chapters").glob("*.md")) if re.match(r"(0[1-9]|1[0-7])_", path.stem)]
FOLDED = {"hide-cell", "hide-input", "remove-cell", "remove-input"}


def names(source):
    """The names that a cell uses, those that it makes, and those that it imports from other packages than ours."""
    nodes = list(ast.walk(ast.parse(re.sub(r"^ *[%!].*", "", source, flags=re.MULTILINE))))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    made = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    made |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {node.asname or node.name for node in nodes if isinstance(node, ast.alias)}
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    others = [node for node in imports if not (getattr(node, "module", None) or "").startswith("transformer_lib")]
    return used, made, {alias.asname or alias.name for node in others for alias in node.names}


def words(text):
    return set(re.findall(r"\w+", text))


def unexplained(cells):
    """Names that a visible cell uses, that a folded one makes, and that neither text nor comments mention before."""
    known, folded, solution = set(), set(), False
    for cell in cells:
        if cell.cell_type == "markdown":
            known |= words(" ".join(re.findall(r"`([^`\n]+)`", cell.source)))
            solution = "{solution-start}" in cell.source or (solution and "{solution-end}" not in cell.source)
            continue
        (used, made, others), tags = names(cell.source), set(cell.metadata.get("tags", []))
        if solution or tags & FOLDED:
            folded |= made - others
            continue
        known |= words(" ".join(re.findall("#(.*)", cell.source))) | made
        module = any(tag.startswith("export") for tag in tags)  # its beginning is folded
        if not module and (missing := (used & folded) - known):
            yield cell.source.splitlines()[0], sorted(missing)


@pytest.mark.parametrize("chapter", MAIN, ids=lambda path: path.stem)
def test_visible_code_uses_no_name_that_only_a_folded_cell_explains(chapter):
    assert list(unexplained(export.read(chapter).cells)) == []


@pytest.mark.parametrize("chapter", sorted((ROOT / "chapters").glob("*.md")), ids=lambda path: path.stem)
def test_a_grader_finds_all_its_names_in_the_cells_of_its_page(chapter):
    """Its module may get an import from another page, which a notebook lacks."""
    known = {*dir(builtins)}
    for cell in export.read(chapter).cells:
        if cell.cell_type == "code":
            used, made, _ = names(cell.source)
            known |= made
            if re.search(r"export-(own_file_graders|chapter_)", " ".join(cell.metadata.get("tags", []))):
                assert used <= known, cell.source.splitlines()[0]


ANSWERS = {  # what the library has for each part that the reader writes
    "attention": "scaled_dot_product_attention", "split_heads": "split_heads", "merge_heads": "merge_heads",
    "MultiHeadAttention": "MultiHeadAttention", "sinusoidal_table": "sinusoidal_table", "padding_mask": "padding_mask",
    "causal_mask": "causal_mask", "FeedForward": "FeedForward", "EncoderLayer": "EncoderLayer",
    "DecoderLayer": "DecoderLayer", "Transformer": "Encoder Decoder Transformer", "make_batch": "_pad",
    "batches_by_length": "token_batches", "label_smoothed_loss": "translation_loss",
    "learning_rate": "inverse_sqrt_schedule", "training_step": "train_step",
    "greedy": "decode_token_by_token greedy_decode", "beam_search": "beam_search _Beam",
}  # fmt: skip


WRITTEN = [part for part in own_file.gaps() if part.name != "LayerNorm"]  # the library takes PyTorch's


@pytest.mark.parametrize("part", WRITTEN, ids=lambda part: part.name)
def test_the_library_s_answer_to_a_gap_is_folded_as_the_solution_is(part):
    pages = sorted((ROOT / "chapters").glob(f"{part.chapter:02}*.md"))  # the chapter, and its pages in depth
    pages += [ROOT / "chapters" / "D_search.md"] * (part.chapter == 10)  # of the handbook
    left, other = set(ANSWERS[part.name].split()), re.compile(r"export-(chapter_\d+|own_file_graders|solved|teaching)")
    for cell in (cell for page in pages for cell in export.read(page).cells):
        tags = cell.metadata.get("tags", [])
        if any(tag.startswith("export") and not other.fullmatch(tag) for tag in tags):
            found = left & set(re.findall(r"^(?:class|def) (\w+)", cell.source, re.MULTILINE))
            assert not found or FOLDED & set(tags), f"{found} stands open"
            left -= found
    assert left == set(), f"not in chapter {part.chapter}"
