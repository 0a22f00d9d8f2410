"""Arrays of one length, cut into ranges of rows: what HDF5 and zarr have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from samplerkit.errors import DatasetError


@final
@dataclass(frozen=True)
class RowRanges:
    """The rows of a file or group, in ranges.

    Args:
        names: the arrays.
        shapes: of each, for errors and to see whether it changed, with its type.
        rows: how many there are.
        step: how many a range has; the last one may have fewer.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[tuple[int, ...], str], ...]
    rows: int
    step: int

    @classmethod
    def of(cls, place: str, arrays: Sequence[tuple[str, Any]], step: int | None) -> RowRanges:
        """Looks at arrays that have `shape`, `dtype` and `chunks`.

        Args:
            place: what errors call the file.
            arrays: by name.
            step: the rows of a range; None for those of the largest chunk, or 1024 where there are none.

        Raises:
            DatasetError: there is none, one is a single value, or they have different lengths.
        """
        if not arrays:
            raise DatasetError(place, "holds no arrays", mend="name those to read")
        alone = next((name for name, array in arrays if not array.shape), None)
        if alone is not None:
            raise DatasetError(
                place, f"array {alone!r} has no rows: it is a single value", mend="name the others"
            )
        lengths = {name: array.shape[0] for name, array in arrays}
        if len(set(lengths.values())) > 1:
            mend = "name those of one length"
            raise DatasetError(place, "holds arrays of different lengths", lengths, mend=mend)
        chunks = [_rows_at_once(array) for _, array in arrays]
        names, shapes = zip(*((name, (tuple(a.shape), str(a.dtype))) for name, a in arrays), strict=True)
        return cls(names, shapes, next(iter(lengths.values())), step or max(chunks) or 1024)

    @property
    def sizes(self) -> list[int]:
        """The rows of each range."""
        return [min(self.step, self.rows - start) for start in range(0, self.rows, self.step)]

    def span(self, number: int) -> tuple[int, int]:
        """Gives the first row of a range, and the one after its last."""
        return number * self.step, min(self.rows, (number + 1) * self.step)

    def require_same(self, place: str, name: str, array: Any) -> None:
        """Sees whether an array is as it was.

        Raises:
            DatasetError: it is not.
        """
        before = self.shapes[self.names.index(name)]
        now = (tuple(array.shape), str(array.dtype))
        if now != before:
            raise DatasetError(place, f"array {name!r} is not as it was, {before}", now)


def _rows_at_once(array: Any) -> int:
    chunks = getattr(array, "shards", None) or array.chunks
    return int(chunks[0]) if chunks else 0
