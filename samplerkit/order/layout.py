"""The layout of a dataset: how many samples are in which files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    ArgumentValueError,
    DatasetError,
    OutOfDatasetError,
)
from samplerkit.order.arguments import LARGEST, integer, integers, is_iterable, read_only
from samplerkit.order.caching import cached_property
from samplerkit.order.intervals import edges_of, interval_of
from samplerkit.order.typing import Ids

MAX_DEPTH = 64
"""The deepest nesting of trees; Python's recursion limit is not much deeper."""


@final
class Layout:
    """How many samples are in which files; sample ids run through the files in the given order.

    A tree is a layout too (`Layout.tree`): its files are those of its parts, one part after another.

    Args:
        sizes: samples per file, or one int for a dataset without files.
        names: names of the files, as many as there are sizes.

    Raises:
        ArgumentTypeError: a size is not an integer, or a name is not a string.
        ArgumentValueError: a size is negative, or there are more or fewer names than files.
        ArgumentRangeError: there are more than 2^62 samples.

    Example:
        >>> layout = Layout([5000, 7000, 300])
        >>> len(layout), layout.num_files, layout.file_of(np.array([0, 5000, 12299]))
        (12300, 3, array([0, 1, 2]))
        >>> Layout(5000).has_files
        False
    """

    def __init__(self, sizes: int | Iterable[int], names: Iterable[str] | None = None) -> None:
        self.has_files: Final = not _is_integer(sizes)
        counts, total = _checked_sizes([sizes] if not self.has_files else sizes)
        self.sizes: Final[Ids] = counts
        self.num_samples: Final[int] = total
        self._names: Final = _checked_names(names, self.sizes.size if self.has_files else 0)
        self._parts: tuple[tuple[str, Layout], ...] = ()

    @classmethod
    def tree(cls, parts: Mapping[str, Any]) -> Layout:
        """Makes the layout of several named datasets, one after another.

        Args:
            parts: by name, in the order of their ids: layouts, trees among them, numbers of samples, or
                datasets. A part without files is one file.

        Raises:
            ArgumentTypeError: no mapping, or a name no string.
            ArgumentValueError: no part, an empty name, or more than 64 nested trees.
            ArgumentRangeError: there are more than 2^62 samples.
            DatasetError: a part has neither a layout nor a length.

        Example:
            >>> corpus = Layout.tree({"web": Layout([5, 7]), "code": 3})
            >>> corpus.sizes, corpus.part_starts, corpus.names
            (array([5, 7, 3]), array([ 0, 12, 15]), ('web/0', 'web/1', 'code'))
            >>> corpus.parts["web"]
            Layout([5, 7])
        """
        layouts = tuple((name, _part(name, part)) for name, part in named_parts(parts).items())
        tree = cls(np.concatenate([layout.sizes for _, layout in layouts]))
        tree._parts = layouts
        if tree._depth > MAX_DEPTH:
            raise ArgumentValueError("parts", f"are nested more than {MAX_DEPTH} deep", tree._depth)
        return tree

    @classmethod
    def of(cls, dataset: Any) -> Layout:
        """Finds the layout of a dataset.

        Args:
            dataset: a layout, a number of samples, an object with a `layout`, a
                `torch.utils.data.ConcatDataset` (its parts are the files), or anything with a length.

        Raises:
            DatasetError: the dataset has none of these.

        Example:
            >>> Layout.of(["a", "b", "c"])
            Layout(3)
        """
        if isinstance(dataset, Layout):
            return dataset
        if _is_integer(dataset):
            return cls(dataset)
        layout = getattr(dataset, "layout", None)
        if isinstance(layout, Layout):
            return layout
        parts = getattr(dataset, "datasets", None)
        if parts is not None and hasattr(dataset, "cumulative_sizes"):
            return cls(np.diff(np.asarray([0, *dataset.cumulative_sizes], dtype=np.int64)))
        try:
            return cls(len(dataset))
        except (TypeError, NotImplementedError) as error:
            hint = "give a Layout, a number of samples, or a dataset with __len__"
            raise DatasetError("dataset", "has neither a layout nor a length", dataset, hint=hint) from error

    @property
    def num_files(self) -> int:
        """The number of files; 0 for a layout without files."""
        return self.sizes.size if self.has_files else 0

    @property
    def parts(self) -> Mapping[str, Layout]:
        """The parts of a tree by name, in the order of their ids; empty for a layout that is not a tree."""
        return MappingProxyType(dict(self._parts))

    @cached_property
    def part_starts(self) -> Ids:
        """The first id of each part, and the number of samples at the end: shape (parts + 1,)."""
        return read_only(edges_of(np.array([len(part) for _, part in self._parts], dtype=np.int64)))

    @property
    def leaves(self) -> tuple[tuple[tuple[str, ...], Layout], ...]:
        """The leaves of a tree, in the order of the ids: the path of names and a layout for each.

        For a layout that is not a tree, the layout itself, with an empty path.
        """
        if not self._parts:
            return (((), self),)
        return tuple(((name, *path), leaf) for name, part in self._parts for path, leaf in part.leaves)

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """The names of the files; None if they have none.

        In a tree all files have one: the path of parts, and the name or the number of the file.
        """
        if not self._parts:
            return self._names
        return tuple(
            "/".join(path if named is None else (*path, named))
            for path, leaf in self.leaves
            for named in ((leaf.names or map(str, range(leaf.num_files))) if leaf.has_files else (None,))
        )

    @cached_property
    def starts(self) -> Ids:
        """The first id of each file, and the number of samples at the end: shape (files + 1,)."""
        return read_only(edges_of(self.sizes))

    def file_of(self, ids: Ids) -> Ids:
        """Returns the number of the file of each id, for ids in [0, num_samples).

        Raises:
            ArgumentTypeError: an id is not an integer.
            OutOfDatasetError: an id is outside of the layout.
        """
        ids = integers("ids", ids)
        if ids.size and (ids.min() < 0 or ids.max() >= self.num_samples):
            outside = ids[(ids < 0) | (ids >= self.num_samples)]
            problem = f"outside of a dataset of {self.num_samples} samples"
            raise OutOfDatasetError("ids", problem, int(outside.flat[0]))
        return interval_of(self.starts, ids.astype(np.int64, copy=False))

    def __len__(self) -> int:
        return self.num_samples

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return (
            self.has_files == other.has_files
            and self._names == other._names
            and self._parts == other._parts
            and np.array_equal(self.sizes, other.sizes)
        )

    def __hash__(self) -> int:
        return hash((self.has_files, self._names, self._parts, self.sizes.tobytes()))

    @cached_property
    def _depth(self) -> int:
        return 1 + max((part._depth for _, part in self._parts), default=-1)

    def __repr__(self) -> str:
        if len(self.leaves) > 8:
            parts = f"{len(self._parts)} parts, {self.num_files} files"
            return f"Layout.tree(<{parts}, {self.num_samples} samples>)"
        if self._parts:
            return f"Layout.tree({dict(self._parts)!r})"
        if not self.has_files:
            return f"Layout({self.num_samples})"
        if self.num_files <= 8:
            return f"Layout({self.sizes.tolist()})"
        return f"Layout(<{self.num_files} files, {self.num_samples} samples>)"


def named_parts(parts: Any) -> dict[str, Any]:
    """Returns the parts of a tree by name, after checking them.

    Raises:
        ArgumentTypeError: `parts` is not a mapping, a name is not a string, or a part is a mapping itself.
        ArgumentValueError: there are no parts, or a name is empty or no valid Unicode.
    """
    if not isinstance(parts, Mapping):
        raise ArgumentTypeError("parts", "must be a mapping of names to datasets", parts)
    if not parts:
        raise ArgumentValueError("parts", "must not be empty", parts)
    for name, part in parts.items():
        if not isinstance(name, str):
            raise ArgumentTypeError("parts", "must have strings as names", name)
        if not name or any("\ud800" <= letter <= "\udfff" for letter in name):
            raise ArgumentValueError("parts", "must have names that are text, and not empty", name)
        if isinstance(part, Mapping) and any(isinstance(key, str) for key in part):
            hint = "make a part with parts by Layout.tree"
            raise ArgumentTypeError(f"parts[{name!r}]", "is a mapping", part, hint=hint)
    return dict(parts)


def _is_integer(value: Any) -> bool:
    # An array with dimensions is a list of sizes, even if it has a single one.
    if not hasattr(value, "__index__") or getattr(value, "ndim", 0) > 0:
        return False
    with suppress(ArgumentTypeError):
        integer("sizes", value)
        return True
    return False


def _part(name: str, part: Any) -> Layout:
    try:
        return Layout.of(part)
    except DatasetError as error:
        raise DatasetError(f"parts[{name!r}]", error.problem, error.value, hint=error.hint) from error


def _checked_sizes(sizes: Any) -> tuple[Ids, int]:
    # A valid number of samples, as each order has: a sixth of the time of all the checks.
    if isinstance(sizes, list) and len(sizes) == 1 and type(sizes[0]) is int and 0 <= sizes[0] <= LARGEST:
        return read_only(np.array(sizes, dtype=np.int64)), sizes[0]
    if isinstance(sizes, str | bytes | bool | set | frozenset | dict) or not is_iterable(sizes):
        raise ArgumentTypeError("sizes", "must be an integer or a list of integers", sizes)
    array = integers("sizes", sizes if isinstance(sizes, np.ndarray) else list(sizes))
    if array.ndim != 1:
        raise ArgumentTypeError("sizes", "must be a flat list of integers", sizes)
    if (array < 0).any():
        raise ArgumentValueError("sizes", "must not be negative", int(array[array < 0][0]))
    total = sum(array.tolist())  # in Python's integers, which do not overflow
    if total > LARGEST:
        raise ArgumentRangeError("sizes", "add up to more than 2^62 samples", total)
    return read_only(array.astype(np.int64)), total


def _checked_names(names: Iterable[str] | None, num_files: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or not is_iterable(names):
        raise ArgumentTypeError("names", "must be a list of strings", names)
    checked = tuple(names)
    for name in checked:
        if not isinstance(name, str):
            raise ArgumentTypeError("names", "must hold strings only", name)
    if len(checked) != num_files:
        raise ArgumentValueError("names", f"must be as many as the {num_files} files", len(checked))
    return checked
