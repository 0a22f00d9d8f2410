"""The public API: as recorded, with its names, positional arguments, errors, docstrings, and files."""

import ast
import difflib
import functools
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
import types
from collections import Counter
from pathlib import Path

import pytest

import samplerkit as sk
from samplerkit import errors, names
from tests.write_public_api import FILE, public_api

ROW = re.compile(r"^\| `(\w+Sampler)`.* \| `(.*)` \|$", re.MULTILINE)
SIGNATURES = dict(
    ROW.findall((Path(__file__).parents[1] / "docs" / "samplers.md").read_text(encoding="utf-8"))
)
"""The positional arguments on the page of samplers."""


def test_only_the_public_names_and_the_subpackages_are_attributes():
    assert sorted(sk.__all__) == sorted(names.PUBLIC)
    assert all(hasattr(sk, name) for name in sk.__all__)
    rooms = {module.name for module in pkgutil.iter_modules(sk.__path__)}
    reached = {name for name in dir(sk) if not name.startswith("_")}
    assert reached - rooms == {*names.PUBLIC}


def test_type_checkers_see_each_public_name_where_the_table_finds_it():
    """The imports that a type checker reads are those of the table that is used at run time."""
    package = ast.parse(Path(sk.__file__).read_text())
    block = next(node for node in package.body if isinstance(node, ast.If))
    seen = {
        alias.name: statement.module
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert seen == {name: f"samplerkit.{module}" for name, module in names.PUBLIC.items()}


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'samplerkit' has no attribute 'Smapler'"):
        sk.Smapler  # noqa: B018  # the access fails


@pytest.mark.parametrize("module", ["samplerkit", "samplerkit.order.order", "samplerkit.samplers.shuffled"])
def test_orders_and_samplers_are_imported_without_torch(module):
    """In a process of its own: this one has imported torch."""
    code = f"import sys, {module}; print('torch' in sys.modules, 'pydantic' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "False"]


@pytest.mark.parametrize("name", SIGNATURES)
def test_positional_arguments_are_mindspores_and_ours_come_by_name_only(name):
    parameters = inspect.signature(getattr(sk, name)).parameters.values()
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert ", ".join(positional) == SIGNATURES[name]
    by_name = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    assert all(p.default is not p.empty for p in by_name)
    assert len(positional) + len(by_name) == len(parameters)


def test_the_page_lists_the_arguments_of_every_sampler():
    rooms = names.PUBLIC.items()
    ours = {name for name, room in rooms if room.startswith("samplers.") and name.endswith("Sampler")}
    assert {*SIGNATURES} == ours - {"Sampler"}


def test_every_error_is_exported():
    classes = {name: value for name, value in vars(errors).items() if inspect.isclass(value)}
    ours = {name for name, value in classes.items() if value.__module__ == errors.__name__}
    assert ours == {name for name in names.PUBLIC if name.endswith("Error")}


def test_an_error_has_its_place_its_value_and_its_hint_and_a_message_with_all_of_them():
    error = sk.ArgumentValueError("num_samples", "must not be negative", -1, hint="use None for all")
    assert (error.place, error.problem, error.value, error.hint) == (
        "num_samples",
        "must not be negative",
        -1,
        "use None for all",
    )
    assert str(error) == "num_samples: must not be negative, got -1; use None for all"
    assert str(sk.DatasetError("dataset", "is empty")) == "dataset: is empty"
    assert len(str(sk.DatasetError("dataset", "is odd", "x" * 10**6))) < 300


MEMBERS = (types.FunctionType, classmethod, staticmethod, property, functools.cached_property)


def undocumented(module):
    """Names the public methods of a module that lack a docstring; ruff sees what else lacks one."""
    for name, value in vars(module).items():
        if inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("_"):
            for member, attribute in vars(value).items():
                is_ours = isinstance(attribute, MEMBERS) and not member.startswith("_")
                # A method that implements an abstract one has the docstring of that one.
                if is_ours and not inspect.getdoc(getattr(value, member)) and not inspect.getdoc(attribute):
                    yield f"{name}.{member}"


def test_every_public_method_has_a_docstring():
    modules = ["samplerkit", *(module.name for module in pkgutil.walk_packages(sk.__path__, "samplerkit."))]
    assert len(modules) > 200
    assert [bare for name in modules for bare in undocumented(importlib.import_module(name))] == []


def test_names_of_classes_are_unique():
    classes = Counter(
        node.name
        for path in Path(sk.__file__).parent.rglob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    # That of compat.torch takes the place of torch's class, which users import by that name.
    assert {name for name, count in classes.items() if count > 1} == {"DistributedSampler"}


def test_files_other_than_python_are_packaged():
    package = Path(sk.__file__).parent
    assert (package / "py.typed").is_file()
    settings = tomllib.loads((package.parent / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["samplerkit"]
    packaged = {path for pattern in patterns for path in package.glob(pattern)}
    files = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert packaged == {path for path in files if path.suffix != ".py"}
    assert settings["project"]["dynamic"] == ["version"]
    assert settings["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "samplerkit.__version__"}


def changes(before, now):
    """The removed lines, and the new ones."""
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), n=0, lineterm="")
    return [line for line in lines if line[0] in "+-" and line[:3] not in {"+++", "---"}]


def test_the_public_api_is_the_recorded_one():
    assert changes(FILE.read_text(encoding="utf-8"), public_api()) == [], (
        "if it is intended: python -m tests.write_public_api, and CHANGELOG.md"
    )


def test_each_public_name_is_in_the_reference():
    written = re.findall(r"^(?:class )?(?:\w+\.)*(\w+)\(", FILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert set(names.PUBLIC) <= set(written)
