"""Datasets that say why they cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from samplerkit.errors import DatasetError


def assert_refused(dataset: Any, match: str, id: int | None = None) -> None:
    """To ask for a sample, or without its number for the length, is an error that says so."""
    with dataset, pytest.raises(DatasetError, match=match):
        len(dataset) if id is None else dataset[id]
