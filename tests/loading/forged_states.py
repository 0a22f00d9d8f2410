"""Saved states with other values, and a checksum that fits: only their values are wrong."""

from typing import Any

from samplerkit.loading.state.state import _checksum

MISSING: Any = object()
"""The value of a field that is left out."""


def forged(state: dict[str, Any], **values: Any) -> dict[str, Any]:
    """A state with other values of some fields."""
    body = {name: value for name, value in {**state, **values}.items() if value is not MISSING}
    del body["samplerkit"], body["checksum"]
    return {"samplerkit": "loader", **body, "checksum": _checksum(body)}


def forged_section(state: dict[str, Any], name: str, **values: Any) -> dict[str, Any]:
    """A state with other values in one section."""
    section = {**state["sections"][name], **values}
    section = {field: value for field, value in section.items() if value is not MISSING}
    return forged(state, sections={**state["sections"], name: section})
