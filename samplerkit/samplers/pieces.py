"""How a dataset of windows of tokens is cut: the windows in a block, and the blocks as a layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.layout import Layout

_MEND = "give a TokenDataset, or say windows_per_block= for another one whose files are whole blocks"


def pieces_of(dataset: Any) -> int | None:
    """Tells how many windows make a block of a dataset: its `windows_per_block`, or that of all its parts.

    Returns:
        None where it says nothing of blocks, or its parts say different numbers.
    """
    said = {*_said(dataset).values()}
    return said.pop() if len(said) == 1 else None


def token_lengths(dataset: Any) -> tuple[int | None, int | None]:
    """Tells the tokens in a window and in a block, as far as a dataset, or all of its parts, say so."""
    leaves = [leaf for _, leaf in _leaves("", dataset)]
    said = {(getattr(leaf, "seq_len", None), getattr(leaf, "block_len", None)) for leaf in leaves}
    return said.pop() if len(said) == 1 else (None, None)


def block_layout(dataset: Any, pieces: int) -> Layout:
    """Gives the layout of the blocks of a dataset: as that of its windows, files and parts too.

    Args:
        dataset: a dataset, a layout, or a number of windows.
        pieces: windows in a block.

    Raises:
        DatasetError: a file is not cut into whole blocks.
    """
    windows = Layout.of(dataset)
    told = getattr(dataset, "block_layout", None)
    blocks = told if isinstance(told, Layout) else _divided(windows, pieces)
    if not np.array_equal(blocks.sizes * pieces, windows.sizes):
        problem = f"has windows that do not make whole blocks of {pieces}"
        raise DatasetError("dataset", problem, windows, mend=_MEND)
    return blocks


def required_pieces(dataset: Any, given: int | None) -> int:
    """Tells how many windows make a block, by what was given, or by the dataset.

    Raises:
        DatasetError: neither says so, or they contradict one another, or parts of a tree do.
    """
    told, said = _said(dataset), pieces_of(dataset)
    if len({*told.values()}) > 1:
        problem = "have different numbers of windows in a block"
        raise DatasetError("parts", problem, told, mend="give all parts one seq_len and one block_len")
    if given is None and said is None:
        raise DatasetError("dataset", "says nothing of blocks", dataset, mend=_MEND)
    if None not in (given, said) and given != said:
        problem = f"contradict the dataset, which has {said} in a block"
        raise DatasetError("windows_per_block", problem, given, mend="leave them out")
    return int(given or said or 1)


def _divided(windows: Layout, pieces: int) -> Layout:
    if windows.parts:
        return Layout.tree({name: _divided(part, pieces) for name, part in windows.parts.items()})
    sizes = windows.sizes // pieces
    return Layout(sizes, windows.names) if windows.has_files else Layout(int(sizes[0]))


def _said(dataset: Any) -> dict[str, int | None]:
    return {name: getattr(leaf, "windows_per_block", None) for name, leaf in _leaves("", dataset)}


def _leaves(name: str, dataset: Any) -> Iterator[tuple[str, Any]]:
    """The datasets at the ends of a tree, unless the tree itself knows its blocks."""
    parts = getattr(dataset, "parts", None)
    if not isinstance(parts, Mapping) or not parts or hasattr(dataset, "windows_per_block"):
        yield name, dataset
        return
    for key, part in parts.items():
        yield from _leaves(f"{name}/{key}" if name else key, part)
