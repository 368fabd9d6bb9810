"""Which definitions of our package a page's code reaches: names that it imports, names in their code, and so on.

A module that is imported whole counts with all that it defines. What a module does when it is loaded counts too: a
decorator may enter a function into a list. Names that only a function knows may change: they count by their order.
"""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import Path

from export import PACKAGE

DEFINITION = ast.FunctionDef | ast.ClassDef
IMPORT = ast.Import | ast.ImportFrom
Place = tuple[Path, str]  # a module, and a name in it: "" is what it does when it is loaded, "*" is all of it


def code_of(source: str) -> ast.Module:
    """A cell's or module's syntax tree, without docstrings, IPython's own lines and names that a function keeps."""
    lines = ["" if line.lstrip().startswith(("%", "!")) else line for line in source.splitlines()]
    tree = ast.parse("\n".join(lines))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | DEFINITION) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        if isinstance(node, ast.FunctionDef):
            _rename(node)
    return tree


def reached(root: Path, cells: Iterable[ast.Module]) -> list[str]:
    """The code of all definitions that these cells reach, each once, in an order that does not depend on theirs."""
    seen: set[Place] = set()
    waiting = [place for cell in cells for place in _imports(root, cell)]
    while waiting:
        place = waiting.pop()
        if place not in seen:
            seen.add(place)
            waiting += _leads_to(root, *place)
    named = sorted((file.relative_to(root).as_posix(), name, file) for file, name in seen)
    return [f"{path} {name} {code}" for path, name, file in named for code in _module(file)[0].get(name, ())]


@cache
def _module(file: Path) -> tuple[dict[str, list[str]], dict[str, list[ast.stmt]], list[IMPORT]]:
    """A module: the code of each of its names, the statements that define it, and the imports at its top."""
    statements: dict[str, list[ast.stmt]] = {}
    imports: list[IMPORT] = []
    foreign = {"property", "staticmethod", "classmethod"}  # these decorators, and other packages', enter nothing
    for node in code_of(file.read_text(encoding="utf-8")).body:
        if isinstance(node, IMPORT):
            imports.append(node)
            if ((node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[
                0
            ] != PACKAGE:
                foreign |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
            continue
        names = [node.name] if isinstance(node, DEFINITION) else sorted(_stored(node))
        used = {
            each.id
            for line in getattr(node, "decorator_list", ())
            for each in ast.walk(line)
            if isinstance(each, ast.Name)
        }
        quiet = names and isinstance(node, DEFINITION | ast.Assign | ast.AnnAssign) and used <= foreign
        for name in names if quiet else [*names, ""]:
            statements.setdefault(name, []).append(node)
    return {name: [ast.dump(node) for node in nodes] for name, nodes in statements.items()}, statements, imports


def _stored(node: ast.AST) -> set[str]:
    """The names that a statement gives a value."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _rename(function: ast.FunctionDef) -> None:
    """Number the names that nothing outside of a function can see: those that it assigns and does not declare."""
    nodes = list(ast.walk(function))
    kept = {each.arg for each in nodes if isinstance(each, ast.arg)}
    for each in nodes:
        if isinstance(each, ast.Global | ast.Nonlocal):
            kept |= set(each.names)
        elif isinstance(each, ast.ClassDef):
            kept |= {each.name} | _stored(each)
        elif isinstance(each, ast.FunctionDef | ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            kept.add(each.name or "")
        elif isinstance(each, ast.alias):
            kept.add((each.asname or each.name).split(".")[0])
    own, numbers = _stored(function) - kept, dict[str, str]()
    for each in nodes:
        if isinstance(each, ast.Name) and each.id in own:
            each.id = numbers.setdefault(each.id, f"{function.name}.{len(numbers)}")  # no name has a dot


@cache
def _leads_to(root: Path, file: Path, name: str) -> list[Place]:
    """What a name of a module uses; what comes with loading the module; all that it has."""
    code, statements, imports = _module(file)
    if name == "*":
        every = chain.from_iterable(_imports(root, each) for each in imports)
        return [*((file, each) for each in code), (file, ""), *every]
    found: list[Place] = []
    for node in statements.get(name, ()):
        found += _imports(root, node)
        found += ((file, each.id) for each in ast.walk(node) if isinstance(each, ast.Name))
    if name == "":
        loaded = chain.from_iterable(_imports(root, each) for each in imports)
        return [*found, *((other, "") for other, _ in loaded)]
    for each in imports if name not in statements else ():
        for alias in each.names:
            if (alias.asname or alias.name).split(".")[0] == name:
                found += _places(root, each, alias)
    return found


def _imports(root: Path, tree: ast.AST) -> Iterator[Place]:
    """What the imports in a tree bring from our package."""
    for node in ast.walk(tree):
        if isinstance(node, IMPORT):
            for alias in node.names:
                yield from _places(root, node, alias)


def _places(root: Path, node: IMPORT, alias: ast.alias) -> Iterator[Place]:
    """What one name of an import means in our package, and the modules that are loaded for it."""
    module = (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
    names = module.split(".")
    if names[0] != PACKAGE:
        return
    for end in range(1, len(names) + 1):
        if file := _file(root, ".".join(names[:end])):
            yield file, ""
    if whole := _file(root, f"{module}.{alias.name}" if isinstance(node, ast.ImportFrom) else module):
        yield whole, "*"
    elif file := _file(root, module):
        yield file, alias.name


def _file(root: Path, module: str) -> Path | None:
    """The file of a module."""
    folder = root / module.replace(".", "/")
    return next((file for file in (folder / "__init__.py", folder.with_suffix(".py")) if file.exists()), None)
