"""Each sampler of the package is listed in every place that lists samplers; a missing place is named.

The tests of the contract run over what has golden vectors, and the reference is written from the registry.
"""

import ast
import inspect
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

import samplerkit as sk
from samplerkit import names, samplers
from samplerkit.config.registry import SAMPLERS
from tests.benchmarks import pictures_of_orders
from tests.testing import links, test_contract

DOCS = Path(__file__).parents[2] / "docs"


def written() -> set[str]:
    """The samplers that the modules of their room hold."""
    modules = [
        import_module(module.name)
        for module in pkgutil.walk_packages(samplers.__path__, f"{samplers.__name__}.")
    ]
    classes = {value for module in modules for value in vars(module).values() if inspect.isclass(value)}
    # A ledger draws by its child, and has a page of its own; the others are bases of samplers.
    others = {"Sampler", "ModedSampler", "ListedSampler", "Ledger"}
    return {kind.__name__ for kind in classes if issubclass(kind, sk.Sampler)} - others


def drawn() -> set[str]:
    """The samplers of which the strategies make links."""
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(links))) if isinstance(node, ast.Call)]
    return {ast.unparse(call.args[0]) for call in calls if ast.unparse(call.func) == "_call"}


def matches(page: str, pattern: str) -> set[str]:
    return set(re.findall(pattern, (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE))


PLACES = {
    "samplerkit/names.py": {*names.PUBLIC},
    "samplerkit/config/registry.py": {SAMPLERS[kind].make.__name__ for kind in SAMPLERS},
    "tests/testing/links.py": drawn(),
    "tests/data/golden_vectors.json, alone in a chain": {*test_contract.RECORDED},
    "docs/samplers.md, a row": matches("samplers.md", r"^\| `(\w+)`"),
    "docs/samplers.md, a section": matches("samplers.md", r"^### (\w+)$"),
    "tests/benchmarks/pictures_of_orders.py": {
        type(orders.about).__name__ for orders in pictures_of_orders.SAMPLERS.values()
    },
}


def forgotten(sampler: str) -> list[str]:
    """Names the places that do not list a sampler."""
    return [place for place, listed in PLACES.items() if sampler not in listed]


@pytest.mark.parametrize("sampler", sorted(written()))
def test_a_sampler_is_listed_in_every_place(sampler):
    assert forgotten(sampler) == []


def test_all_samplers_of_the_package_are_checked():
    assert len(written()) == 14
