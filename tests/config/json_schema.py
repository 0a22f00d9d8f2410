"""As much of JSON Schema as the schema of a config uses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

ANNOTATIONS = {"$schema", "$defs", "title", "description", "default"}
TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "null": type(None),
}


def valid(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> bool:
    """Whether a value is what the schema describes; a keyword that is not known here is an error."""
    for key in schema.keys() - ANNOTATIONS:
        applies, holds = KEYWORDS[key]
        if isinstance(value, applies) and not holds(value, schema[key], root, schema):
            return False
    return True


def same(value: Any, said: Any) -> bool:
    return type(value) is type(said) and value == said


def of_type(value: Any, said: str | list[str]) -> bool:
    names = [said] if isinstance(said, str) else said
    return any(  # a bool is no number
        isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))
        for name in names
    )


def matches(value: Any, schemas: list[dict[str, Any]], root: dict[str, Any]) -> int:
    return sum(valid(value, schema, root) for schema in schemas)


# For each keyword: the values of which it speaks, and whether it holds for
# (value, what the schema says, the whole schema, the schema around it).
KEYWORDS: dict[str, tuple[Any, Callable[..., Any]]] = {
    "minProperties": (dict, lambda value, said, root, schema: len(value) >= said),
    "$ref": (object, lambda v, said, root, _: valid(v, root["$defs"][said.removeprefix("#/$defs/")], root)),
    "const": (object, lambda v, said, *_: same(v, said)),
    "enum": (object, lambda v, said, *_: any(same(v, one) for one in said)),
    "type": (object, lambda v, said, *_: of_type(v, said)),
    "allOf": (object, lambda v, said, root, _: matches(v, said, root) == len(said)),  # older pydantic
    "anyOf": (object, lambda v, said, root, _: matches(v, said, root) > 0),
    "oneOf": (object, lambda v, said, root, _: matches(v, said, root) == 1),
    "pattern": (str, lambda v, said, *_: re.search(said, v)),
    "exclusiveMinimum": (int | float, lambda v, said, *_: v > said),
    "items": (list, lambda v, said, root, _: all(valid(one, said, root) for one in v)),
    "prefixItems": (list, lambda v, said, root, _: all(map(valid, v, said, [root] * len(said)))),
    "minItems": (list, lambda v, said, *_: len(v) >= said),
    "maxItems": (list, lambda v, said, *_: len(v) <= said),
    "required": (dict, lambda v, said, *_: v.keys() >= set(said)),
    "additionalProperties": (
        dict,
        lambda v, said, root, around: all(
            said if isinstance(said, bool) else valid(v[name], said, root)
            for name in v.keys() - around.get("properties", {}).keys()
        ),
    ),
    "properties": (
        dict,
        lambda v, said, root, _: all(valid(v[name], one, root) for name, one in said.items() if name in v),
    ),
}
