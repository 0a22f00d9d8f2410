"""Datasets that cannot be read, and say why."""

from __future__ import annotations

from typing import Any

import pytest

from samplerkit.errors import DatasetError


def assert_refused(dataset: Any, match: str, id: int | None = None) -> None:
    """Reading a sample, or the length where no id is given, is an error with this message."""
    with dataset, pytest.raises(DatasetError, match=match):
        len(dataset) if id is None else dataset[id]
