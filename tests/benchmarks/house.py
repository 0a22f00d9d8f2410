"""Figures of the package: files, lines, floors, names, and the cost of an import. A report, and no gate.

python -m tests.benchmarks.house                  # this tree
python -m tests.benchmarks.house OTHER [OTHER...] # with other checkouts, in one table
"""

import ast
import io
import statistics
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

HERE = Path(__file__).parents[2]
RUNS = 5


def modules(root: Path) -> dict[str, Path]:
    """The files of a package by their dotted names."""
    files = {}
    for path in sorted((root / "samplerkit").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def imports(files: dict[str, Path]) -> dict[str, set[str]]:
    """Which modules of the package each module imports, whenever it does."""
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        graph[name] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names} & set(files)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                below = {f"{node.module}.{alias.name}" for alias in node.names} & set(files)
                graph[name] |= below or ({node.module} & set(files))
        graph[name].discard(name)
    return graph


def code_lines(text: str) -> tuple[int, int]:
    """How many lines are code, and how many are docstrings: blank lines and comments are neither."""
    tree = ast.parse(text)
    documentation: set[int] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            documentation |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    idle = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in idle:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - documentation), len(documentation)


def floors(graph: dict[str, set[str]], room: str) -> int:
    """How many floors a room has: the longest chain of imports inside of it. A circle counts as one floor."""
    inside = {name for name in graph if name.startswith("samplerkit." + room.replace("/", "."))}
    depth: dict[str, int] = {}
    below = {name: graph[name] & inside for name in inside}
    for name in TopologicalSorter(below).static_order():
        depth[name] = 1 + max((depth[other] for other in below[name]), default=0)
    return max(depth.values(), default=0)


def extra_seconds(root: Path, module: str, base: str) -> str:
    """The median of how long an import takes after another one, and how long that one takes."""
    program = (
        f"import time; a = time.perf_counter(); import {base}; b = time.perf_counter(); import {module}; "
        "print(time.perf_counter() - b, b - a)"
    )
    command, variables, runs = [sys.executable, "-c", program], {"PYTHONPATH": str(root)}, []
    for _ in range(RUNS):
        printed = subprocess.check_output(command, cwd=root, env=variables, text=True)
        runs.append([float(word) for word in printed.split()])
    extra, before = (statistics.median(column) for column in zip(*runs, strict=True))
    return f"{extra:.3f} s ({base}: {before:.3f} s)"


def rows(root: Path) -> Iterator[tuple[str, str]]:
    """The report on one tree."""
    files = modules(root)
    graph = imports(files)
    texts = [path.read_text() for path in files.values()]
    importers = Counter(target for targets in graph.values() for target in targets)
    classes = Counter(
        node.name for text in texts for node in ast.parse(text).body if isinstance(node, ast.ClassDef)
    )
    names = Counter(path.name for path in files.values() if path.name != "__init__.py")
    yield "files", str(len(files))
    yield "lines of code", str(sum(code_lines(text)[0] for text in texts))
    yield "files that one other file imports", str(sum(count == 1 for count in importers.values()))
    twice = sorted(name for name, count in classes.items() if count > 1)
    yield "class names used twice", f"{len(twice)}: {', '.join(twice)}" if twice else "0"
    yield "file names used twice", str(sum(count > 1 for count in names.values()))
    for room in sorted({path.parent.relative_to(root / "samplerkit").as_posix() for path in files.values()}):
        yield f"floors of {room}", str(floors(graph, room))
    yield "import samplerkit beyond torch", extra_seconds(root, "samplerkit", "torch")


def main() -> None:
    """Prints the report on this tree, next to those on others."""
    trees = [HERE, *(Path(argument).resolve() for argument in sys.argv[1:])]
    columns = [dict(rows(tree)) for tree in trees]
    print(f"| | {' | '.join(tree.name for tree in trees)} |")
    print("|---|" + "---|" * len(trees))
    for name in columns[0]:
        print(f"| {name} | {' | '.join(column.get(name, '') for column in columns)} |")


if __name__ == "__main__":
    main()
