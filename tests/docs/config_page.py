"""The tables of what a config may say, from the constructors and their JSON Schema."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any, get_type_hints

from samplerkit.config.constructor import Constructor, Kinds
from samplerkit.config.datasets import REMOTE
from samplerkit.config.derive import default_of
from samplerkit.config.loader import LOADER
from samplerkit.config.registry import EDIT
from samplerkit.config.schema import OpenSchema
from samplerkit.loading.loader import Loader
from tests.docs.docstring import arguments, in_a_cell, summary


def kinds_of(kinds: Kinds) -> str:
    """Describes all kinds of a section, and the sections in them."""
    return "".join([*_kinds(kinds), *_sections(kinds)])


def table_of(constructor: Constructor) -> str:
    """Describes the keys of a section."""
    return "".join(_table(constructor))


def _kinds(kinds: Kinds) -> Iterator[str]:
    for name in kinds:
        constructor = kinds[name]
        make = constructor.make
        # Other tests register samplers of theirs, doctests even under the name of a module of ours.
        is_of_tests = not make.__module__.startswith("samplerkit.")
        if not is_of_tests and getattr(sys.modules.get(make.__module__), make.__name__, None) is make:
            yield f"\n### {name}\n\n{summary(make)}\n"
            yield from _table(constructor)


def _sections(kinds: Kinds) -> Iterator[str]:
    """Arguments that are sections of their own, each once."""
    for name, section in (("remote", REMOTE), ("edits", EDIT)):
        of = [f"`{kind}`" for kind in kinds if name in kinds[kind].names]
        if of:
            yield f"\n### {name}\n\nA section inside of {' and '.join(of)}. {summary(section.make)}\n"
            yield from _table(section)


def _table(constructor: Constructor) -> Iterator[str]:
    schema = constructor.model.model_json_schema(mode="validation", schema_generator=OpenSchema)
    of_ours = arguments(Loader) if constructor is LOADER else {}
    said = {**of_ours, **_of_the_class(constructor.make), **arguments(constructor.make)}
    yield "\n| key | value | default | meaning |\n|---|---|---|---|\n"
    for name in constructor.names:
        value = in_a_cell(_written(schema["properties"][name], schema.get("$defs", {})))
        default = default_of(constructor.model, name)
        shown = "required" if default is ... else _default(name, default)
        meaning = said.get(name) or summary(constructor.make)
        yield f"| `{name}` | {value} | {shown} | {in_a_cell(meaning)} |\n"


def _of_the_class(make: Any) -> dict[str, str]:
    """What the class says of arguments that a function hands on to it."""
    if inspect.isclass(make):
        return {}
    made = get_type_hints(make).get("return")
    return arguments(made) if made is not None else {}


def _default(name: str, default: Any) -> str:
    if default is None and name in ("num_shards", "shard_id"):
        return "`auto`"
    # A dataclass has a mark in place of an empty mapping that it makes anew each time.
    plain = {} if repr(default) == "<factory>" else getattr(default, "value", default)
    return f"`{json.dumps(plain)}`"


def _written(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """Says in words what a JSON Schema allows."""
    kind = schema.get("type", "any")
    if "not" in schema:
        return "function, from Python"
    if "$ref" in schema:
        return _written(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return _either(_written(one, definitions) for one in schema["anyOf"])
    if schema.get("pattern") == r"\.npy$":
        return "path of a `.npy` file"
    if kind == "array":
        entries = _written(schema.get("items", {}), definitions)
        return "list" if entries == "any" else f"list of {entries}s"
    literals = [True, False] if kind == "boolean" else schema.get("enum", [])
    literals = [schema["const"]] if "const" in schema else [None] if kind == "null" else literals
    return _either(map(_literal, literals)) if literals else {"object": "mapping"}.get(kind, kind)


def _either(values: Iterable[str]) -> str:
    # The mode "false" and the bool are written alike.
    *others, last = dict.fromkeys(values)
    return f"{', '.join(others)} or {last}" if others else last


def _literal(value: Any) -> str:
    return f"`{value if isinstance(value, str) else json.dumps(value)}`"
