"""Imports run one way: order <- samplers <- batches <- loading <- config <- cli; files stay small."""

import ast
import sys
from collections import Counter
from collections.abc import Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import samplerkit
from tests.benchmarks.house import floors, imports, modules

ROOT = Path(samplerkit.__file__).parent

CORE = ["closing", "errors", "names", "order", "samplers", "batches", "loading"]

MAY_IMPORT = {
    "closing": [],
    "errors": [],
    "names": ["errors"],
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
"""What each subpackage may import besides itself; "" is samplerkit/__init__.py."""

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

LATE = {
    "names": "the one table of lazy imports",
    "loading.steps": "a tenth of a second, only for a loop that shows a bar",
    "compat.huggingface": "an extra: its users have a Trainer already",
    "storage.files.packages": "extras: a package of each format, Pillow",
    "storage.remote.filesystem": "an extra: only URLs other than those of HTTP need it",
    "storage.remote.s3_signing": "an extra: only S3 needs it",
}
"""Modules that import something by its name when they need it, each with its reason; ruff sees statements."""

FILES = modules(ROOT.parent)
GRAPH = imports(FILES)


def below(name: str) -> str:
    """The name of a module below samplerkit."""
    return name.removeprefix("samplerkit").removeprefix(".")


def first(name: str) -> str:
    """The part of a dotted name before the first dot: a room, or a distribution."""
    return name.split(".", maxsplit=1)[0]


def is_allowed(module: str, target: str) -> bool:
    """Whether a module may import another one of the package."""
    room = first(module)
    if first(target) == room and (target or not module):
        return True
    allowed = MAY_IMPORT[room]
    return target in allowed or any(name and target.startswith(f"{name}.") for name in allowed)


def violations(graph: Mapping[str, set[str]]) -> set[tuple[str, str]]:
    """Finds the pairs of a module and one that it must not import, by their names below samplerkit."""
    pairs = {(below(module), below(target)) for module, targets in graph.items() for target in targets}
    return {
        (module, target)
        for module, target in pairs
        if not is_allowed(module, target)
        or any(
            module.startswith(f"storage.{room}.") and target.removeprefix("storage.").split(".")[0] in above
            for room, above in STORAGE_ROOMS.items()
        )
    }


def distributions(module: str) -> set[str]:
    """The other distributions that a file imports, by statements."""
    names = set()
    for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {first(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports have full names"
            names.add(first(str(node.module)))
    return names - sys.stdlib_module_names - {"samplerkit"}


def test_every_import_goes_down_and_the_core_needs_no_torch():
    assert violations(GRAPH) == set()
    pairs = {(below(module), name) for module in FILES for name in distributions(module)}
    assert {pair for pair in pairs if pair[1] not in THIRD_PARTY.get(first(pair[0]), {pair[1]})} == set()
    assert ("loading.loader", "torch") in pairs


@pytest.mark.parametrize(
    ("module", "target"),
    [
        ("loading.world", "config.config"),
        ("order.layout", "samplers.base"),
        ("storage.files.paths", "storage.tar.read.reader"),
    ],
)
def test_a_wrong_import_is_found(module, target):
    assert violations({f"samplerkit.{module}": {f"samplerkit.{target}"}}) == {(module, target)}


def test_each_import_by_name_has_a_reason():
    texts = {below(module): path.read_text(encoding="utf-8") for module, path in FILES.items()}
    late = {module for module, text in texts.items() if "import_module" in text or "__import__" in text}
    assert late == set(LATE)


def test_no_modules_import_one_another_in_a_circle():
    TopologicalSorter(GRAPH).prepare()


def test_no_file_is_too_long_and_no_folder_has_too_many_files():
    files = [*FILES.values(), *ROOT.parent.glob("tests/**/*.py")]
    assert [file for file in files if len(file.read_text(encoding="utf-8").splitlines()) > 400] == []
    folders = Counter(file.parent for file in FILES.values())
    assert [folder for folder, count in folders.items() if count > 16] == []


def test_every_room_has_a_rule():
    assert {first(below(module)) for module in FILES} <= set(MAY_IMPORT)


DEPTHS = {"order": 8, "samplers": 9, "batches": 6, "loading": 8, "config": 8, "storage": 9, "compat": 8}
"""How many files the longest chain of imports within a room has, at most."""


def test_chains_of_imports_within_a_room_stay_short():
    assert {room: depth for room in DEPTHS if (depth := floors(GRAPH, room)) > DEPTHS[room]} == {}
