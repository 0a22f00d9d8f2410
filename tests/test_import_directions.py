"""Imports run one way: order <- samplers <- batches <- loading <- config <- cli; files stay small."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import samplerkit
from tests.benchmarks.house import floors, imports, modules

ROOT = Path(samplerkit.__file__).parent

CORE = ["closing", "errors", "names", "order", "samplers", "batches", "loading"]

MAY_IMPORT = {
    "closing": [],
    "errors": [],
    "names": [],
    "__main__": ["cli"],
    "order": ["errors"],
    "samplers": ["errors", "names", "order"],
    "batches": ["errors", "order", "samplers", "storage.atomic"],
    "loading": [
        "closing",
        "errors",
        "order",
        "samplers",
        "batches",
        "storage.atomic",
        "storage.batch_readers",
    ],
    "storage": [
        "closing",
        "errors",
        *(
            f"order.{name}"
            for name in (
                "arguments",
                "caching",
                "dataset_protocol",
                "draws",
                "intervals",
                "keys",
                "layout",
                "modes",
                "typing",
            )
        ),
    ],
    "sinks": [],
    "config": [*CORE, "storage", "inspect.quality", "compat.megatron"],
    "compat": [*CORE, "storage"],
    "inspect": [*CORE, "storage.files.packages", "storage.tar.fetch_costs"],
    "testing": [*CORE, "storage.files"],
    "cli": [*CORE, "storage", "config", "compat", "inspect", "testing", ""],
    "": [*CORE, "storage", "config", "compat", "inspect", "testing"],
}
"""What each room may import besides itself; "" is samplerkit/__init__.py."""

STORAGE_ROOMS = {
    "remote": {"ahead", "files", "formats", "tar"},
    "ahead": {"files", "formats", "tar"},
    "files": {"formats", "tar"},
}
"""The rooms of storage, and those above each, which it must not import."""

THIRD_PARTY = {
    "closing": set(),
    "errors": set(),
    "order": {"numpy"},
    "samplers": {"numpy"},
    "batches": {"numpy"},
    "": set(),
}
"""Rooms whose imports from other distributions are limited: above all, no torch in the core."""

LATE_IMPORTS = {
    ("names", "a computed name"): "the one table of what is imported when it is asked for",
    (
        "loading.steps",
        "rich.progress",
    ): "a tenth of a second, for a loop that wants a bar and no other",
    ("loading.steps", "rich.console"): "as rich.progress, which it comes with",
    ("compat.huggingface", "transformers.trainer_callback"): "an extra: who uses it has a Trainer already",
    ("storage.tar.codecs", "PIL.Image"): "an extra: tar shards without images do not need Pillow",
    ("storage.files.lines", "orjson"): "an extra: json reads the same, and takes longer",
    ("storage.files.packages", "a computed name"): "extras: each format needs its own package",
    (
        "storage.remote.filesystem",
        "fsspec.core",
    ): "an extra: only URLs other than those of HTTP need it",
    **{
        ("storage.remote.s3", name): "an extra: only S3 needs it"
        for name in (
            "botocore",
            "botocore.config",
            "botocore.exceptions",
            "botocore.loaders",
            "botocore.session",
        )
    },
}
"""Imports that are not at the top of a module, each with its reason."""


@cache
def sources() -> dict[str, str]:
    """The text of each module, by its dotted name below samplerkit."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path.read_text(encoding="utf-8")
    return found


def first(name: str) -> str:
    """The part of a dotted name before the first dot: a room, or a distribution."""
    return name.split(".", maxsplit=1)[0]


def imported(node: ast.AST, module: str, modules: Mapping[str, str]) -> Iterator[str]:
    """Gives the full names of what one statement imports; of a name in a module, the module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            package = module.split(".")[: -node.level]
            base = ".".join(["samplerkit", *package, *([base] if base else [])])
        for alias in node.names:
            below = f"{base}.{alias.name}".removeprefix("samplerkit").removeprefix(".")
            yield f"{base}.{alias.name}" if base.startswith("samplerkit") and below in modules else base


def late(node: ast.AST) -> Iterator[str]:
    """Gives what a call imports by name; a name that is computed is as good as any."""
    if not isinstance(node, ast.Call):
        return
    function = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if function in {"import_module", "__import__"}:
        name = node.args[0] if node.args else None
        is_literal = isinstance(name, ast.Constant) and isinstance(name.value, str)
        yield name.value if is_literal else "a computed name"


def is_allowed(module: str, target: str) -> bool:
    """Whether a module may import what has this full name."""
    room, distribution = first(module), first(target)
    if distribution in sys.stdlib_module_names:
        return True
    if room not in MAY_IMPORT:
        return False
    if distribution != "samplerkit":
        return room not in THIRD_PARTY or distribution in THIRD_PARTY[room]
    below = target.removeprefix("samplerkit").removeprefix(".")
    if first(below) == room and (below or not module):
        return True
    allowed = MAY_IMPORT[room]
    return below in allowed or any(name and below.startswith(f"{name}.") for name in allowed)


@cache
def tree_of(text: str) -> ast.Module:
    """The syntax of a file: each planted import leaves all other files as they are."""
    return ast.parse(text)


@cache
def nodes_of(text: str) -> list[ast.AST]:
    """What may import something in a file: no other nodes are looked at."""
    importing = (ast.Import, ast.ImportFrom, ast.Call)
    return [node for node in ast.walk(tree_of(text)) if isinstance(node, importing)]


def violations(modules: Mapping[str, str]) -> set[tuple[str, str]]:
    """Finds the pairs of a module and what it must not import, or not there."""
    found = set()
    for module, text in modules.items():
        tree = tree_of(text)
        top = set(tree.body)
        if not module:
            # The door: type checkers see imports here, and at run time the table of `names` answers.
            top |= {node for block in tree.body if isinstance(block, ast.If) for node in block.body}
        for node in nodes_of(text):
            for target in imported(node, module, modules):
                if not is_allowed(module, target):
                    found.add((module, target))
                if node not in top and (module, target) not in LATE_IMPORTS:
                    found.add((module, f"{target}, not at the top"))
            found |= {
                (module, f"{target}, late") for target in late(node) if (module, target) not in LATE_IMPORTS
            }
    return found


def cycle(modules: Mapping[str, str]) -> list[str]:
    """Finds modules that import one another in a circle, if there are any."""
    graph: dict[str, set[str]] = {}
    for module, text in modules.items():
        targets = {
            target.removeprefix("samplerkit.")
            for node in nodes_of(text)
            for target in imported(node, module, modules)
            if target.startswith("samplerkit.")
        }
        graph[module] = targets & set(modules)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_import_goes_down_and_stands_at_the_top():
    assert violations(sources()) == set()


def upwards(modules: Mapping[str, str]) -> set[tuple[str, str]]:
    """Finds what a room of storage imports from a room above it."""
    return {
        (module, target)
        for module, text in modules.items()
        for node in nodes_of(text)
        for target in imported(node, module, modules)
        for room, above in STORAGE_ROOMS.items()
        if module.startswith(f"storage.{room}.")
        and target.removeprefix("samplerkit.storage.").split(".")[0] in above
    }


def test_the_rooms_of_storage_import_one_way():
    assert upwards(sources()) == set()
    assert upwards({"storage.files.paths": "from samplerkit.storage.tar.read.reader import Reader"})
    assert upwards({"storage.remote.http": "from samplerkit.storage.ahead.cache_entries import FileStats"})


def test_no_modules_import_one_another_in_a_circle():
    assert cycle(sources()) == []


def too_large(root: Path) -> set[str]:
    """Finds files of more than 400 lines, and folders of a package of more than 16 modules."""
    files = [*root.glob("samplerkit/**/*.py"), *root.glob("tests/**/*.py")]
    long = {file for file in files if len(file.read_text(encoding="utf-8").splitlines()) > 400}
    folders = Counter(file.parent for file in files if file.relative_to(root).parts[0] == "samplerkit")
    full = {folder for folder, count in folders.items() if count > 16}
    return {path.relative_to(root).as_posix() for path in long | full}


def test_no_file_is_too_long_and_no_folder_too_full(tmp_path):
    assert too_large(ROOT.parent) == set()
    for folder, files in {"samplerkit/seen": 16, "samplerkit/full": 17, "tests": 17}.items():
        (tmp_path / folder).mkdir(parents=True)
        for number in range(files):
            (tmp_path / folder / f"{number}.py").touch()
    for file, lines in {"samplerkit/seen/0.py": 400, "samplerkit/seen/1.py": 401, "tests/1.py": 401}.items():
        (tmp_path / file).write_text("\n" * lines)
    assert too_large(tmp_path) == {"samplerkit/full", "samplerkit/seen/1.py", "tests/1.py"}


def test_every_room_has_a_rule():
    assert {first(module) for module in sources()} <= set(MAY_IMPORT)


def test_every_late_import_is_still_there_and_has_a_reason():
    texts = sources()
    for (module, target), reason in LATE_IMPORTS.items():
        nodes = nodes_of(texts[module])
        assert target in {name for node in nodes for name in (*imported(node, module, texts), *late(node))}
        assert len(reason) > 20


PLANTED = {
    "order imports torch": ("order.order", "import torch"),
    "order imports samplers relatively": ("order.layout", "from ..samplers import base"),
    "loading imports config": ("loading.job.world", "from samplerkit.config.config import Config"),
    "an import in a function": ("config.config", "def f():\n    import yaml"),
    "an import for type checkers": (
        "order.order",
        "import typing\nif typing.TYPE_CHECKING:\n    from samplerkit.samplers.base import Sampler",
    ),
    "an import by a builtin": ("order.order", "x = __import__('torch')"),
    "a room without a rule": ("basement.box", "import numpy"),
}


@pytest.mark.parametrize(("module", "text"), PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_wrong_import_is_found(module, text):
    found = violations({**dict.fromkeys(sources(), ""), module: text})
    assert {name for name, _ in found} == {module}


def test_a_planted_circle_is_found():
    texts = {**sources(), "order.typing": "from samplerkit.order.order import Order"}
    assert {"order.typing", "order.order"} <= set(cycle(texts))


DEPTHS = {"order": 8, "samplers": 9, "batches": 6, "loading": 8, "config": 8, "storage": 9, "compat": 8}
"""How many files the longest chain of imports within a room has, at most."""


def test_chains_of_imports_within_a_room_stay_short():
    graph = imports(modules(ROOT.parent))
    assert {room: depth for room in DEPTHS if (depth := floors(graph, room)) > DEPTHS[room]} == {}
