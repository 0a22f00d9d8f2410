"""Whether a value is what a JSON Schema describes, by a package of the field."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator


def valid(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is what the schema describes."""
    return Draft202012Validator(schema).is_valid(value)
