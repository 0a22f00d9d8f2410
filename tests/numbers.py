"""A dataset of which each sample is its id."""

from __future__ import annotations

from samplerkit.order.layout import Layout


class Numbers:
    """Sample i is i, of as many as a layout says, in its files."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, index: int) -> int:
        return index
