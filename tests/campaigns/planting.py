"""Plants a bug in the package: its place is found by name, and the replaced text by its syntax.

So a planted bug goes where its definition goes, and quotes, line breaks and comments do not matter.
"""

import ast
import atexit
import functools
import importlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.campaigns.forked import copied, failing_elsewhere, replace

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "samplerkit"
MAX_SECONDS = 240
"""Without a bug, the tests of a file take a fourth of that."""


RECORD = Path(__file__).with_name("noticed_by.json")
"""Which test has noticed each bug before: it is run first. `python -m tests.campaigns.planting` writes it."""

_NOTICED: dict[str, str] = {}
"""The same of this process."""


class Bug(NamedTuple):
    """What is planted, where, and the tests that should notice.

    Args:
        name: what is wrong then.
        place: the qualified name of the definition that holds it: `Class.method`, `function` or `CONSTANT`.
        right: an expression or statements; they occur once in all definitions of that name together.
        wrong: what is planted in their place.
        tests: files or names of tests, with blanks between.
    """

    name: str
    place: str
    right: str
    wrong: str
    tests: str


class Occurrence(NamedTuple):
    """The place of consecutive nodes: the file, the node above, its field, the place in its list."""

    file: Path
    module: ast.Module
    parent: ast.AST
    field: str
    at: int


def notices(bug: Bug, among: str = "") -> bool:
    """Whether the tests of a bug fail over a copy of the package with it.

    `require_passing` checks once for all bugs that their tests pass without them. Only tests whose ids
    contain `among` are run.
    """
    file, module = planted(bug)
    copy, tests, key = _copy(), bug.tests.split(), f"{bug.name}{among and ', '}{among}"
    replace(copy / "samplerkit" / file, ast.unparse(module))
    first = [_recorded()[key]] if key in _recorded() else []
    try:
        by = failing_elsewhere(copy, [*first, *tests], MAX_SECONDS, among)
    finally:
        replace(copy / "samplerkit" / file, (PACKAGE / file).read_bytes())
    if by is None:
        return False
    print(f"{bug.name}: noticed by {by}")
    if "::" in by:
        _NOTICED[key] = by
    else:  # such as a test that comes to no end: nobody knows which
        _require_passing(tuple(tests), among)
    return True


def require_passing() -> None:
    """Requires that every test that has noticed a bug in this process passes without one.

    At once, since to import and collect them takes longer than to run them.
    """
    if _NOTICED:
        _require_passing(tuple(sorted({*_NOTICED.values()})))


@functools.cache
def _recorded() -> dict[str, str]:
    recorded: dict[str, str] = json.loads(RECORD.read_text(encoding="utf-8"))
    return recorded


@functools.cache
def _copy() -> Path:
    """One copy for all bugs of this process: writing 2,000 files takes longer than to notice most bugs."""
    folder = tempfile.mkdtemp(prefix="planted-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return copied(ROOT, Path(folder) / "copy")


@functools.cache
def _require_passing(tests: tuple[str, ...], among: str = "") -> None:
    by = failing_elsewhere(_copy(), tests, MAX_SECONDS * len(tests), among)
    assert by is None, f"{by} fails without a bug"


def planted(bug: Bug, package: Path = PACKAGE) -> tuple[Path, ast.Module]:
    """Returns the file that a bug changes, as a path inside of the package, and its module with the bug.

    Raises:
        LookupError: the text to be replaced does not occur, or more than once.
    """
    right, wrong = _nodes(bug.right, bug.wrong)
    files = [file for name, file in _definitions(package) if name == bug.place]
    places = [place for file in dict.fromkeys(files) for place in _occurrences(package, file, bug, right)]
    if len(places) != 1:
        where = f"{len(places)} times in {', '.join(map(str, files)) or 'no file'}"
        raise LookupError(
            f"{bug.name!r}: look for `{bug.right}` in a definition of {bug.place}; found {where}"
        )
    file, module, parent, field, at = places[0]
    before = getattr(parent, field)
    if isinstance(before, list):
        before[at : at + len(right)] = wrong
    else:
        setattr(parent, field, wrong[0])
    return file, module


def _nodes(*texts: str) -> list[list[ast.AST]]:
    """Returns the nodes of texts: all expressions, or all statements."""
    every = [ast.parse(text).body for text in texts]
    if all(len(nodes) == 1 and isinstance(nodes[0], ast.Expr) for nodes in every):
        return [[nodes[0].value] for nodes in every]
    return every


@functools.cache
def _definitions(package: Path) -> list[tuple[str, Path]]:
    """Returns the qualified names of all definitions of a package, each with its file."""
    return [
        (name, path.relative_to(package))
        for path in sorted(package.rglob("*.py"))
        for name, _ in _named(ast.parse(path.read_text()))
    ]


def _named(above: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    for node in ast.iter_child_nodes(above):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name, node
            yield from _named(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                yield prefix + target.id, node
        elif not isinstance(node, ast.expr):  # which holds no definition
            yield from _named(node, prefix)


def _occurrences(package: Path, file: Path, bug: Bug, nodes: Sequence[ast.AST]) -> Iterator[Occurrence]:
    module = ast.parse((package / file).read_text())
    texts, kinds = [ast.dump(node) for node in nodes], {type(node) for node in nodes}
    for definition in [node for name, node in _named(module) if name == bug.place]:
        for node in ast.walk(definition):
            for field, value in ast.iter_fields(node):
                parts = value if isinstance(value, list) else [value]
                dumped = [ast.dump(part) if type(part) in kinds else None for part in parts]
                for at in range(len(parts) - len(texts) + 1):
                    if dumped[at : at + len(texts)] == texts:
                        yield Occurrence(file, module, node, field, at)


def main() -> None:
    """Plants each bug, and records the test that notices it."""
    planted_bugs = importlib.import_module("tests.campaigns.planted")  # which imports this module
    for bug in planted_bugs.EVERY.values():
        assert notices(bug), bug.name
    for bug in importlib.import_module("tests.campaigns.planted.loader").OVER_THREADS:
        assert notices(bug, among="threads"), bug.name
    RECORD.write_text(json.dumps(_NOTICED, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
