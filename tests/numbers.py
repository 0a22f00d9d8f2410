"""Datasets whose samples are computed from their ids, and one with unreadable samples."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from samplerkit.order.layout import Layout


class Numbers:
    """Sample i is i; the layout has their number and their files."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, index: int) -> int:
        return index


class Made(Numbers):
    """Sample i is the result of a function of i."""

    def __init__(self, size: int, make: Callable[[int], Any]) -> None:
        super().__init__(Layout(size))
        self.make = make

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class Damaged(Numbers):
    """Some samples cannot be read."""

    def __init__(self, layout: Layout, bad: Container[int]) -> None:
        super().__init__(layout)
        self.bad = bad

    def __getitem__(self, index: int) -> int:
        if index in self.bad:
            raise OSError(f"sample {index} is damaged")
        return index
