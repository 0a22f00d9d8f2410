"""Where documents begin in windows of tokens, and which parts of which documents a window is made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from samplerkit.errors import DatasetError, OutOfDatasetError
from samplerkit.order.typing import Ids
from samplerkit.storage.tokens.pointers import Pointers
from samplerkit.storage.tokens.source import TokenSource

Array = np.ndarray[Any, Any]

Span = tuple[int, int | None, int, int]
"""The number of a file and of a document, the first token in it, and how many follow on it."""


def borders_in(source: TokenSource, rows: Array, files: Ids, begins: Ids) -> Array:
    """Tells whether a document begins at a token of a window, shape (n, S + 1).

    One begins with each row, and where a window goes on at the first token of its file.
    """
    found = np.zeros(rows.shape, dtype=bool)
    if isinstance(source.documents, int):
        np.equal(rows[:, :-1], source.documents, out=found[:, 1:])
    found[:, 0] = True
    ends = source.rings.tokens[files] - begins
    seams = np.flatnonzero(ends < rows.shape[1])
    found[seams, ends[seams]] = True
    if source.documents == "idx":
        found.reshape(-1)[_starts_in(source, files, begins, rows.shape[1])] = True
    return found


def spans_of(source: TokenSource, id: int, epoch: int) -> list[Span]:
    """Tells which parts of which documents a window is made of; its last label is in it."""
    files, begins = source.rings.at(np.array([id]), np.array([epoch]))
    file = int(files[0])
    found: list[Span] = []
    pointers = source.pointers(file)
    for _, first, count in _pieces(source, file, int(begins[0])):
        if pointers is None:
            found.append((file, None, first, count))
            continue
        at, document = first, pointers.sequence_at(first)
        while at < first + count:
            start, stop = pointers.bounds(document)
            taken = min(stop, first + count) - at
            if taken > 0:
                found.append((file, document, at - start, taken))
                at += taken
            document += 1
    return found


def windows_with(source: TokenSource, file: int, document: int) -> Ids:
    """Gives the windows that hold some of a document of an index, in some epoch."""
    if not 0 <= file < len(source.opened.files):
        raise OutOfDatasetError("file", f"must be in [0, {len(source.opened.files)})", file)
    pointers = source.pointers(file)
    if pointers is None:
        mend = "give the prefix of a .bin and an .idx"
        raise DatasetError(source.opened.files[file].name, "has no index of documents", mend=mend)
    begin, behind = source.sequences[file]
    if not begin <= document < behind:
        problem = f"must be in [{begin}, {behind}), the documents of {source.opened.files[file].name}"
        raise OutOfDatasetError("document", problem, document)
    first, end = (token - int(source.firsts[file]) for token in pointers.bounds(document))
    nothing = np.zeros(0, dtype=np.int64)
    return nothing if first == end else source.rings.windows_over(file, first, end)


def _starts_in(source: TokenSource, files: Ids, begins: Ids, width: int) -> Ids:
    """Where sequences of the index begin in windows, in the batch laid flat."""
    known: dict[int, Pointers | None] = {}
    found: list[Ids] = []
    moved: list[int] = []
    for row, (file, begin) in enumerate(zip(files.tolist(), begins.tolist(), strict=True)):
        if file not in known:
            known[file] = source.pointers(file)
        pointers = known[file]
        if pointers is None:
            continue
        for at, first, count in _pieces(source, file, begin):
            found.append(pointers.between(first, first + count))
            moved.append(row * width + at - first)
    if not found:
        return np.zeros(0, dtype=np.int64)
    starts: Ids = np.concatenate(found) + np.repeat(moved, [each.size for each in found])
    return starts


def _pieces(source: TokenSource, file: int, begin: int) -> list[tuple[int, int, int]]:
    """Of a window, where each piece stands in it, its first token in the file, and its tokens."""
    (first, tokens), width = source.extents[file], source.rings.seq_len + 1
    rest = tokens - begin
    if rest >= width:
        return [(0, first + begin, width)]
    return [(0, first + begin, rest), (rest, first, width - rest)]
