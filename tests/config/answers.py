"""What becomes of a config: whether the schema takes it, and the one error of a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import samplerkit as sk


def valid(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is what a JSON Schema describes, by a package of the field."""
    return Draft202012Validator(schema).is_valid(value)


def refused(load: Callable[..., Any], *arguments: Any) -> sk.ConfigError:
    """The one error of a wrong config, which shows nothing of pydantic's or of YAML's."""
    with pytest.raises(sk.ConfigError) as caught:
        load(*arguments)
    error = caught.value
    assert "\n" not in str(error)
    assert len(str(error)) < 300
    assert str(error).startswith(f"{error.place}: ")
    assert error.__suppress_context__ or error.__context__ is None
    return error
