"""What samplerkit offers is written down here: a new name, or one that is gone, is a decision."""

from __future__ import annotations

import ast
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
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import samplerkit as sk
from samplerkit import errors, names

PUBLIC = {
    "ArgumentRangeError",
    "ArgumentTypeError",
    "ArgumentValueError",
    "ArrowDataset",
    "BatchRecipe",
    "BlockSampler",
    "BucketBatches",
    "ClassBatches",
    "CompositionError",
    "Config",
    "ConfigError",
    "Context",
    "DatasetError",
    "DeviceLoader",
    "DisagreementError",
    "DistributedSampler",
    "Edit",
    "FileDataset",
    "FoldSampler",
    "Hdf5Dataset",
    "History",
    "HuggingFaceDataset",
    "InverseTooLargeError",
    "IterSampler",
    "JsonlDataset",
    "Layout",
    "Ledger",
    "LitDataset",
    "LmdbDataset",
    "Loader",
    "MdsDataset",
    "MindRecordDataset",
    "MixtureSampler",
    "NotSupportedError",
    "Order",
    "OutOfDatasetError",
    "PKSampler",
    "PackBatches",
    "PackCollate",
    "PadCollate",
    "ParquetDataset",
    "RandomSampler",
    "RemoteOptions",
    "RepeatFactorSampler",
    "RepeatSampler",
    "RunConstants",
    "Sampler",
    "SamplerkitError",
    "SequentialSampler",
    "Shuffle",
    "ShuffleModeError",
    "SqliteDataset",
    "StateError",
    "SubsetRandomSampler",
    "SubsetSampler",
    "TarDataset",
    "TarWriter",
    "TensorLoader",
    "TfRecordDataset",
    "TokenBatches",
    "TokenDataset",
    "TokenWriter",
    "TorchBatchSampler",
    "TorchSampler",
    "TreeDataset",
    "WeightedRandomSampler",
    "WindowSampler",
    "WorkerError",
    "World",
    "WorldError",
    "ZarrDataset",
    "compute_lengths",
    "draw_rng",
    "load_config",
    "order_on",
    "register_batches",
    "register_reader",
    "register_sampler",
    "sample_rng",
}

BUILTINS = {
    "ArgumentRangeError": {RuntimeError},
    "ArgumentTypeError": {TypeError},
    "ArgumentValueError": {ValueError},
    "CompositionError": {RuntimeError},
    "ConfigError": {ValueError},
    "DatasetError": {RuntimeError},
    "DisagreementError": {RuntimeError},
    "InverseTooLargeError": {MemoryError},
    "NotSupportedError": {NotImplementedError},
    "OutOfDatasetError": {RuntimeError, IndexError},
    "ShuffleModeError": {RuntimeError},
    "StateError": {RuntimeError},
    "WorkerError": {RuntimeError},
    "WorldError": {RuntimeError},
}

ROW = re.compile(r"^\| `(\w+Sampler)`.* \| `(.*)` \|$", re.MULTILINE)
SIGNATURES = dict(
    ROW.findall((Path(__file__).parents[1] / "docs" / "samplers.md").read_text(encoding="utf-8"))
)
"""The arguments by position, as the page of samplers says them."""


def test_the_public_names_are_these_and_no_others():
    assert set(sk.__all__) == PUBLIC
    assert len(sk.__all__) == len(PUBLIC)
    for name in PUBLIC:
        assert hasattr(sk, name)


def test_nothing_but_the_public_names_and_the_rooms_can_be_reached():
    rooms = {module.name for module in pkgutil.iter_modules(sk.__path__)}
    reached = {name for name in dir(sk) if not name.startswith("_")}
    assert reached - rooms == PUBLIC


def test_type_checkers_see_each_public_name_where_the_table_finds_it():
    """The imports that a type checker reads, and the table that answers at run time, say the same."""
    door = ast.parse(Path(sk.__file__).read_text())
    block = next(node for node in door.body if isinstance(node, ast.If))
    seen = {
        alias.name: statement.module
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert seen == {name: f"samplerkit.{module}" for name, module in names.PUBLIC.items()}
    assert set(names.PUBLIC) == PUBLIC


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'samplerkit' has no attribute 'Smapler'"):
        sk.Smapler  # noqa: B018  # asking for it is what fails


@pytest.mark.parametrize("module", ["samplerkit", "samplerkit.order.order", "samplerkit.samplers.shuffled"])
def test_orders_and_samplers_are_imported_without_torch(module):
    """In a process of its own: this one has torch since long."""
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


def test_the_page_says_the_arguments_of_every_sampler():
    ours = {
        name for name in PUBLIC if names.PUBLIC[name].startswith("samplers.") and name.endswith("Sampler")
    }
    assert {*SIGNATURES} == ours - {"Sampler"}


def exported_errors() -> set[str]:
    return {name for name in PUBLIC if name.endswith("Error")}


def test_every_error_is_exported():
    classes = {name: value for name, value in vars(errors).items() if inspect.isclass(value)}
    ours = {name for name, value in classes.items() if value.__module__ == errors.__name__}
    assert ours == exported_errors()


@pytest.mark.parametrize("name", sorted(exported_errors() - {"SamplerkitError"}))
def test_every_error_is_ours_and_the_builtin_one_for_its_mistake(name):
    error = getattr(sk, name)
    assert issubclass(error, sk.SamplerkitError)
    assert set(error.__bases__) == {sk.SamplerkitError, *BUILTINS[name]}


def test_an_error_carries_its_place_its_value_and_its_mend_and_says_all_of_them():
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


MODULES = ["samplerkit", *(found.name for found in pkgutil.walk_packages(sk.__path__, "samplerkit."))]


MEMBERS = (types.FunctionType, classmethod, staticmethod, property, functools.cached_property)


def undocumented(module: types.ModuleType) -> Iterator[str]:
    """Names what is public in a module and has no docstring."""
    is_package = hasattr(module, "__path__")
    if not module.__doc__ and not is_package:
        yield module.__name__
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value) and not value.__doc__:
            yield f"{module.__name__}.{name}"
        if not inspect.isclass(value):
            continue
        # A dataclass without a docstring is given its signature as one.
        if not vars(value).get("__doc__") or value.__doc__.startswith(f"{name}("):
            yield f"{module.__name__}.{name}"
        for member, attribute in vars(value).items():
            is_ours = isinstance(attribute, MEMBERS) and not member.startswith("_")
            # A method that implements an abstract one is described there.
            if is_ours and not inspect.getdoc(getattr(value, member)) and not inspect.getdoc(attribute):
                yield f"{module.__name__}.{name}.{member}"


@pytest.mark.parametrize("name", MODULES)
def test_everything_public_has_a_docstring(name):
    assert list(undocumented(importlib.import_module(name))) == []


PLANTED = '''
"""A module."""
from dataclasses import dataclass
def function(): pass
class Base:
    """A base."""
    def described(self): """Described."""
class Child(Base):
    """A child."""
    def described(self): pass
    def bare(self): pass
    @property
    def value(self): pass
@dataclass
class Data:
    x: int
class Bare: pass
def _private(): pass
'''


def test_what_lacks_a_docstring_is_found(tmp_path, monkeypatch):
    (tmp_path / "planted_surface.py").write_text(PLANTED, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    found = undocumented(importlib.import_module("planted_surface"))
    names = {"function", "Child.bare", "Child.value", "Data", "Bare"}
    assert set(found) == {f"planted_surface.{name}" for name in names}


BEARS_A_PEERS_NAME = {
    "DistributedSampler": "compat.torch takes the place of torch's class, which users import by that name",
}
"""Class names that may stand twice, and why."""


def named_twice(texts: Iterable[str]) -> set[str]:
    """The names that several module-level classes bear, private ones included."""
    names: Counter[str] = Counter()
    for text in texts:
        waiting: list[ast.AST] = [ast.parse(text)]
        while waiting:
            for node in ast.iter_child_nodes(waiting.pop()):
                if isinstance(node, ast.ClassDef):
                    names[node.name] += 1
                elif isinstance(node, ast.If | ast.Try | ast.ExceptHandler | ast.With):
                    waiting.append(node)
    return {name for name, count in names.items() if count > 1}


def test_no_two_classes_bear_one_name():
    texts = (path.read_text(encoding="utf-8") for path in Path(sk.__file__).parent.rglob("*.py"))
    assert named_twice(texts) == set(BEARS_A_PEERS_NAME)


def test_a_class_name_that_stands_twice_is_found():
    """Below a condition too; not within a class or a function."""
    first = "class A: pass\nclass _B: pass\nclass C:\n    class A: pass\ndef made():\n    class C: pass\n"
    assert named_twice([first]) == set()
    assert named_twice([first, "try:\n    class A: pass\nexcept ImportError:\n    class _B: pass\n"]) == {
        "A",
        "_B",
    }


STANDS_FOR_A_TYPE_TOO = {
    "Stop": "what a user says of a mixture; in `storage/` it ends threads",
}
"""Names of classes that are also another name for a type, and why."""


def stands_for_a_type_too(texts: Iterable[str]) -> set[str]:
    """The names of classes that a module gives to a type; type variables are no names of types."""
    classes, others = set(), set()
    for text in texts:
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef):
                classes.add(node.name)
            elif isinstance(node, ast.Assign) and "TypeVar(" not in ast.unparse(node.value):
                others |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return classes & others


def test_no_class_and_no_other_type_bear_one_name():
    texts = (path.read_text(encoding="utf-8") for path in Path(sk.__file__).parent.rglob("*.py"))
    assert stands_for_a_type_too(texts) == set(STANDS_FOR_A_TYPE_TOO)


def test_a_type_that_is_called_like_a_class_is_found():
    texts = ["class A: pass\nclass B: pass\nclass C: pass\n", "A = tuple[int, int]\nB = TypeVar('B')\n"]
    assert stands_for_a_type_too(texts) == {"A"}


def test_what_is_no_python_is_packaged():
    package = Path(sk.__file__).parent
    assert (package / "py.typed").is_file()
    settings = tomllib.loads((package.parent / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["samplerkit"]
    packaged = {path for pattern in patterns for path in package.glob(pattern)}
    beside = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert packaged == {path for path in beside if path.suffix != ".py"}
    assert settings["project"]["dynamic"] == ["version"]
    assert settings["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "samplerkit.__version__"}
