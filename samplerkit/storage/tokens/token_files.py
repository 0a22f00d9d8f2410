"""Opened token files, and the positions of sequences: an index is read page by page, never as a whole."""

from __future__ import annotations

import io
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.order.caching import Latest, cached_property
from samplerkit.order.typing import Ids
from samplerkit.storage.arrays import npy_header
from samplerkit.storage.files.stored import ByteFiles, Stored, stored_files
from samplerkit.storage.remote.access import RemoteAccess
from samplerkit.storage.tokens.arguments import KINDS, KINDS_HINT, Dtype, TokenPaths, range_of, share_of
from samplerkit.storage.urls import shown

HEADER: Final = struct.Struct("<9sQBQQ")
"""The header of an index: magic bytes, version, type of tokens, number of sequences and of documents."""

PAGE: Final = 4096
"""The number of sequences of a page: 48 KiB of an index."""

MAX_PAGES: Final = 1536
"""The largest number of pages in memory: 48 MiB."""

MAGIC: Final = b"MMIDIDX\x00\x00"

MEGATRON: Final[dict[int, str]] = {1: "u1", 2: "i1", 3: "i2", 4: "i4", 5: "i8", 8: "u2"}
"""The types of tokens by Megatron's codes; Megatron has two more codes, of floats."""

_HINT = "the index does not belong to its .bin, or is damaged: make it again"
_MAX_HEADER = 1 << 16


@dataclass(frozen=True, eq=False)
class Pointers:
    """The first token of each sequence of one file.

    Args:
        data: the files of a dataset, including indexes. Many small pages of an index are read, so a remote
            index is fetched as a whole, once per machine.
        place: the number of this index in `data`.
        count: the number of sequences.
        tokens: the number of tokens of the file.
        itemsize: the size of a token in bytes.
        pages: the most recently used pages of all indexes, by index and page number.
    """

    data: ByteFiles
    place: int
    count: int
    tokens: int
    itemsize: int
    pages: Latest[Ids]

    @property
    def name(self) -> str:
        """The name of the index in error messages."""
        return self.data.files[self.place].name

    def first_token(self, sequence: int) -> int:
        """Returns the first token of a sequence; for the number after the last one, the number of tokens.

        Raises:
            DatasetError: the index contradicts itself.
        """
        return self.tokens if sequence >= self.count else self.bounds(sequence)[0]

    def sequences_of(self, begin: int, end: int) -> range:
        """Returns the sequences that hold the tokens in [begin, end), and empty ones between them."""
        return range(self._sequence_at(begin), self._sequence_at(end - 1) + 1)

    def _sequence_at(self, token: int) -> int:
        """Returns the sequence that holds a token."""
        page = self._page_of(token)
        # If several sequences begin at a token, all but the last are empty.
        return page * PAGE + int(np.searchsorted(self._page(page), token, side="right")) - 1

    def bounds(self, sequence: int) -> tuple[int, int]:
        """Returns the first token of a sequence, and the one after its last."""
        page, place = divmod(sequence, PAGE)
        firsts = self._page(page)
        is_last = place + 1 == firsts.size
        return int(firsts[place]), self._heads[page + 1] if is_last else int(firsts[place + 1])

    def between(self, begin: int, end: int) -> Ids:
        """Returns the tokens in (begin, end) at which non-empty sequences begin."""
        parts: list[Ids] = []
        for page in range(self._page_of(begin), bisect_left(self._heads, end)):
            firsts = self._page(page)
            parts.append(firsts[firsts.searchsorted(begin + 1) : firsts.searchsorted(end)])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def edges(self) -> Ids:
        """Reads the whole index: returns the first token of each sequence and, last, the number of tokens."""
        return np.append(self._read_firsts(range(self.count), self.tokens), self.tokens)

    @cached_property
    def _heads(self) -> list[int]:
        """The first token of each page and, last, the number of tokens; a list is the fastest to search."""
        firsts = range(0, self.count, PAGE)
        data = self.data.read(self.place, [(self._byte_of(first), 8) for first in firsts])
        # A wrong one does not fit its page, or the page before, one of which each search for a token reads.
        pointers = np.frombuffer(b"".join(data), dtype="<i8")
        return [*(pointers // self.itemsize).tolist(), self.tokens]

    def _page_of(self, token: int) -> int:
        """Returns the page that holds a token: the last one, if several pages begin at the token."""
        return bisect_right(self._heads, token) - 1

    def _page(self, page: int) -> Ids:
        """Returns the first tokens of the sequences of a page."""

        def read() -> Ids:
            sequences = range(page * PAGE, min(self.count, (page + 1) * PAGE))
            return self._read_firsts(sequences, self._heads[page + 1])

        return self.pages.get((self.place, page), read)

    def _read_firsts(self, sequences: range, end: int) -> Ids:
        """Reads the first tokens of sequences, up to a token; pointers are checked against lengths."""
        start, count = sequences.start, len(sequences)
        parts = [(self._byte_of(start), 8 * count), (HEADER.size + 4 * start, 4 * count)]
        of_pointers, of_lengths = self.data.read(self.place, parts)
        pointers = np.frombuffer(of_pointers, dtype="<i8")
        lengths = np.frombuffer(of_lengths, dtype="<i4").astype(np.int64)
        ends = np.append(pointers[1:], end * self.itemsize)
        wrong = (lengths < 0) | (pointers + lengths * self.itemsize != ends)
        wrong[:1] |= (pointers[:1] != 0) & (start == 0)
        if wrong.any():
            number = int(np.argmax(wrong))
            at, sequence = self._byte_of(sequences[number]), sequences[number]
            problem = f"lists at byte {at} a wrong start of sequence {sequence}, {pointers[number]}"
            raise DatasetError(self.name, problem, hint=_HINT)
        return pointers // self.itemsize

    def _byte_of(self, sequence: int) -> int:
        """Returns the offset of the pointer to a sequence in the index, in bytes."""
        return HEADER.size + 4 * self.count + 8 * sequence


@dataclass(frozen=True)
class TokenFile:
    """A token file as it was when it was opened, or the part of it that is read.

    Args:
        name: the name in error messages.
        dtype: the type of a token.
        begin: the offset of the first token in bytes.
        tokens: the number of tokens.
        pointers: the positions of its sequences; None if the file has no index.
        first: for a part, its first token in the file.
        sequences: for a part, its first sequence and the one after its last.
    """

    name: str
    dtype: Dtype
    begin: int
    tokens: int
    pointers: Pointers | None = None
    first: int = 0
    sequences: tuple[int, int] = (0, 0)

    @property
    def index(self) -> Pointers:
        """The positions of its sequences.

        Raises:
            DatasetError: the file has no index.
        """
        if self.pointers is None:
            hint = "give the prefix of a .bin and an .idx, or set documents= to the token that ends them"
            raise DatasetError(self.name, "has no index of documents", hint=hint)
        return self.pointers

    def part(self, split: str | None, part: str) -> TokenFile:
        """Returns a part of the file, in whole sequences if it has an index; without a split, the file."""
        if split is None:
            return self
        share, pointers = share_of(split, part), self.pointers
        if pointers is None:
            sequences, (first, end) = (0, 0), range_of(share, self.tokens)
        else:
            sequences = range_of(share, pointers.count)
            first, end = map(pointers.first_token, sequences)
        begin, tokens = self.begin + first * self.dtype.itemsize, max(0, end - first)
        return replace(self, begin=begin, tokens=tokens, first=first, sequences=sequences)


class OpenedFiles:
    """The opened files of a dataset: their data and indexes, checked against each other.

    Args:
        paths: the paths of each file.
        dtype: the type of the tokens, if the user gave it; raw files do not store it.
        storage: fetches remote files.
        whole: whether remote data files are fetched as a whole into the cache of this machine.

    Raises:
        DatasetError: a file is missing or truncated, has another type than the others, or contradicts its
            index.
        ArgumentValueError: a raw file is given without `dtype`.
    """

    def __init__(
        self, paths: Sequence[TokenPaths], dtype: Dtype | None, storage: RemoteAccess | None, *, whole: bool
    ) -> None:
        indexes = [path.index for path in paths if path.index is not None]
        stored = stored_files([*(path.data for path in paths), *indexes], storage)
        self.data: Final = ByteFiles(stored, None if whole else storage)
        self._place_of: Final = {path: place for place, path in enumerate(indexes, len(paths))}
        self._pages: Final = Latest[Ids](MAX_PAGES)
        self.files: Final = tuple(self._open(number, path, dtype) for number, path in enumerate(paths))
        expected = self.files[0].dtype if dtype is None else dtype
        for file in self.files:
            if file.dtype != expected:
                hint = "all files of a dataset have one type of tokens: that of dtype=, or of the first file"
                raise DatasetError(file.name, f"holds {file.dtype}, and not {expected}", hint=hint)

    def _open(self, number: int, path: TokenPaths, dtype: Dtype | None) -> TokenFile:
        data = self.data.files[number]
        if path.index is not None:
            return self._open_megatron(data, self._place_of[path.index])
        if shown(path.data).endswith(".npy"):
            return _open_npy(data)
        name, size = data.name, data.size
        if dtype is None:
            hint = f"for example dtype='uint16'; for Megatron's .bin and .idx, give the prefix, {name[:-4]!r}"
            raise ArgumentValueError("dtype", "must be given for raw tokens", name, hint=hint)
        if size % dtype.itemsize:
            problem = f"has {size} bytes: at byte {size - size % dtype.itemsize} a token of {dtype} is cut"
            hint = "give the dtype that it was written with, or fetch it again"
            raise DatasetError(name, problem, hint=hint)
        return TokenFile(name, dtype, 0, size // dtype.itemsize)

    def _open_megatron(self, data: Stored, place: int) -> TokenFile:
        stored = self.data.files[place]
        name, index, size = data.name, stored.name, stored.size
        (head,) = stored.read([(0, min(size, HEADER.size))])
        magic, version, code, n, m = HEADER.unpack(head.ljust(HEADER.size, b"\0"))
        if magic != MAGIC or version != 1 or code not in MEGATRON:
            problem = f"is not an index of Megatron's integers: its {size} bytes begin with {head[:18]!r}"
            raise DatasetError(index, problem, hint=f"give the prefix of a .bin and an .idx; {KINDS_HINT}")
        dtype = np.dtype("<" + MEGATRON[code])
        rows = HEADER.size + 12 * n + 8 * m
        if size != rows + n:
            _require_size(index, size, rows, f"its header of {n} sequences")
        end = 0
        if n:
            at = HEADER.size + 4 * n + 8 * (n - 1)
            last = b"".join(stored.read([(HEADER.size + 4 * (n - 1), 4), (at, 8)]))
            length, pointer = struct.unpack("<iq", last)
            end = pointer + length * dtype.itemsize
        _require_size(name, data.size, end, f"its index {index}")
        tokens = end // dtype.itemsize
        pointers = Pointers(self.data, place, n, tokens, dtype.itemsize, self._pages)
        return TokenFile(name, dtype, 0, tokens, pointers, sequences=(0, n))


def _open_npy(data: Stored) -> TokenFile:
    name, size = data.name, data.size
    (head,) = data.read([(0, min(size, _MAX_HEADER))])
    file = io.BytesIO(head)
    try:
        shape, dtype = npy_header(file)
    except Exception as error:  # for a damaged header, also a TokenError
        raise DatasetError(name, f"is not an npy file ({error})", hint="fetch or make it again") from error
    if len(shape) != 1 or dtype.str[1:] not in KINDS or dtype.newbyteorder("<") != dtype:
        problem = f"holds {dtype.str} of shape {shape}"
        raise DatasetError(name, problem, hint=f"{KINDS_HINT}, in an array of one dimension")
    begin, tokens = file.tell(), int(shape[0])
    _require_size(name, size, begin + tokens * dtype.itemsize, "its header")
    return TokenFile(name, dtype, begin, tokens)


def _require_size(name: str, size: int, expected: int, source: str) -> None:
    if size != expected:
        problem = f"has {size} bytes, but {source} needs {expected} bytes"
        hint = "it was cut, or is still being written: fetch or make both again"
        raise DatasetError(name, problem, hint=hint)
