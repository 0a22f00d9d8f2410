"""Datasets whose samples are their ids, or made of these; in one of them some cannot be read."""

from collections.abc import Callable, Container, Iterable
from typing import Any

import numpy as np

from samplerkit.order.layout import Layout


class Numbers:
    """Sample i is i, in the files of a layout."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, index: int) -> int:
        return index


class Made(Numbers):
    """Sample i is the result of a function of i, of so many samples or in the files of a layout."""

    def __init__(self, size: int | Layout, make: Callable[[int], Any]) -> None:
        super().__init__(Layout.of(size))
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


class Texts:
    """Documents of given lengths, whose tokens are their number."""

    def __init__(self, lengths: Iterable[int]) -> None:
        self.lengths = np.array(lengths)

    def __len__(self) -> int:
        return self.lengths.size

    def __getitem__(self, index: int) -> np.ndarray:
        return np.full(self.lengths[index], index)
