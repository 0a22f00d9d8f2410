"""Results of a config: whether it is valid in the schema, and the error of a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import samplerkit as sk


def valid(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is valid in a JSON Schema, by the package `jsonschema`."""
    return Draft202012Validator(schema).is_valid(value)


def refused(load: Callable[..., Any], *arguments: Any) -> sk.ConfigError:
    """The error of a wrong config: one line, with no error of pydantic or of YAML behind it."""
    with pytest.raises(sk.ConfigError) as caught:
        load(*arguments)
    error = caught.value
    assert "\n" not in str(error)
    assert len(str(error)) < 300
    assert str(error).startswith(f"{error.place}: ")
    assert error.__suppress_context__ or error.__context__ is None
    return error
