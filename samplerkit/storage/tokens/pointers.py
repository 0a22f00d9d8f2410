"""Files of tokens, looked at, and where sequences begin: an index is read page by page, and never whole."""

from __future__ import annotations

import io
import os
import struct
from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final, final

import numpy as np

from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.order.arguments import LARGEST
from samplerkit.order.typing import Ids
from samplerkit.storage.arrays import npy_header
from samplerkit.storage.missing_file import AbsentError
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tokens.byte_files import ByteFiles
from samplerkit.storage.tokens.token_files import (
    HEADER,
    KINDS,
    KNOWN,
    MAGIC,
    MEGATRON,
    Dtype,
    TokenFile,
    TokenPaths,
    url_end,
)
from samplerkit.storage.urls import is_remote

PAGE: Final = 4096
"""Sequences of a page: 48 KiB of an index."""

MOST_PAGES: Final = 1536
"""Pages in memory, 48 MiB; then all are dropped."""

_FLOATS = {6: "float64", 7: "float32"}
_MOST_HEADER = 1 << 16
_HINT = "the index does not belong to its .bin, or is damaged: make it again"


@final
class Pages:
    """What a process knows of the indexes of a dataset: pages by index and number, and where pages begin.

    Of pages that hold tokens it knows by index, in order, the first token, the one behind, and the number.
    """

    def __init__(self) -> None:
        self.firsts: dict[tuple[int, int], Ids] = {}
        self.heads: dict[tuple[int, int], int] = {}
        self.ranges: dict[int, list[tuple[int, int, int]]] = {}
        self.puts_in: Final = Lock()

    def __reduce__(self) -> tuple[type[Pages], tuple[()]]:
        return Pages, ()


@final
@dataclass(frozen=True, eq=False)
class Pointers:
    """The first token of each sequence of one file.

    Args:
        indexes: the indexes of a dataset.
        place: of this index there.
        file: the file of tokens.
        pages: what is known of all of them.
    """

    indexes: ByteFiles
    place: int
    file: TokenFile
    pages: Pages

    @property
    def count(self) -> int:
        """The number of sequences."""
        return self.file.sequences or 0

    def first_token(self, sequence: int) -> int:
        """Returns the token at which a sequence begins; behind the last one, how many tokens there are.

        Raises:
            DatasetError: the index says something that cannot be.
        """
        return self.file.tokens if sequence >= self.count else self._head(sequence)

    def sequence_at(self, token: int) -> int:
        """Returns the sequence in which a token lies."""
        page = self._page_of(token)
        # Of sequences that begin at one token all but the last are empty.
        return page * PAGE + int(np.searchsorted(self._page(page), token, side="right")) - 1

    def bounds(self, sequence: int) -> tuple[int, int]:
        """Returns the first token of a sequence, and the one behind its last."""
        page, place = divmod(sequence, PAGE)
        firsts = self._page(page)
        is_last = place + 1 == firsts.size
        end = self._page_end(page) if is_last else int(firsts[place + 1])
        return int(firsts[place]), end

    def between(self, begin: int, end: int) -> Ids:
        """Returns the tokens in (begin, end) at which sequences begin, empty ones of no account."""
        page = self._page_of(begin)
        found: list[Ids] = []
        while page < self._num_pages:
            firsts = self._page(page)
            low, high = int(firsts.searchsorted(begin + 1)), int(firsts.searchsorted(end))
            found.append(firsts[low:high])
            if high < firsts.size:
                break
            page += 1
        return found[0] if len(found) == 1 else np.concatenate(found)

    def lengths(self, begin: int, end: int) -> Ids:
        """Returns the tokens of the sequences from `begin` up to before `end`, from the index; int32."""
        data = self.indexes.read(self.place, HEADER.size + 4 * begin, 4 * (end - begin))
        return np.frombuffer(data, dtype="<i4")

    @property
    def _num_pages(self) -> int:
        return -(-self.count // PAGE)

    def _page_of(self, token: int) -> int:
        """The page in which a token lies; of pages that begin there the last one."""
        ranges = self.pages.ranges.get(self.place, ())
        at = bisect_right(ranges, (token, LARGEST)) - 1
        if at >= 0:
            # Looked at once: another thread may put a page in before it meanwhile.
            begin, end, page = ranges[at]
            if begin <= token < end:
                return page
        return bisect_right(range(self._num_pages), token, key=self._page_head) - 1

    def _page_head(self, page: int) -> int:
        """The first token of a page, without reading the page: so a bisection reads little."""
        head = self.pages.heads.get((self.place, page))
        if head is None:
            head = self.pages.heads[self.place, page] = self._head(page * PAGE)
        return head

    def _page_end(self, page: int) -> int:
        """The token behind a page."""
        return self._page_head(page + 1) if page + 1 < self._num_pages else self.file.tokens

    def _head(self, sequence: int) -> int:
        at = HEADER.size + 4 * self.count + 8 * sequence
        (pointer,) = np.frombuffer(self.indexes.peek(self.place, at, 8), dtype="<i8").tolist()
        token, rest = divmod(pointer, self.file.dtype.itemsize)
        if rest or not 0 <= token <= self.file.tokens or (token and not sequence):
            raise self._lie(sequence, pointer)
        return int(token)

    def _page(self, page: int) -> Ids:
        """The first tokens of the sequences of a page, checked against their lengths."""
        known = self.pages.firsts.get((self.place, page))
        if known is not None:
            return known
        begin, end = page * PAGE, min(self.count, (page + 1) * PAGE)
        at = HEADER.size + 4 * self.count + 8 * begin
        pointers = np.frombuffer(self.indexes.read(self.place, at, 8 * (end - begin)), dtype="<i8")
        ends = np.append(pointers[1:], self._page_end(page) * self.file.dtype.itemsize)
        lengths = self.lengths(begin, end).astype(np.int64)
        wrong = (lengths < 0) | (pointers + lengths * self.file.dtype.itemsize != ends)
        if wrong.any():
            number = int(np.argmax(wrong))
            raise self._lie(begin + number, int(pointers[number]))
        firsts = pointers // self.file.dtype.itemsize
        if len(self.pages.firsts) >= MOST_PAGES:
            self.pages.firsts.clear()
            self.pages.ranges.clear()
        self.pages.firsts[self.place, page] = firsts
        covered = int(firsts[0]), int(ends[-1]) // self.file.dtype.itemsize, page
        # One at a time, else they may come out of order. A page that is left out is found by bisection.
        if covered[0] < covered[1] and self.pages.puts_in.acquire(blocking=False):
            try:
                insort(self.pages.ranges.setdefault(self.place, []), covered)
            finally:
                self.pages.puts_in.release()
        return firsts

    def _lie(self, sequence: int, pointer: int) -> DatasetError:
        at = HEADER.size + 4 * self.count + 8 * sequence
        problem = f"says at byte {at} that sequence {sequence} begins at byte {pointer} of {self.file.name}"
        where = f"{problem}, which is not where the ones beside it end or begin"
        return DatasetError(self.indexes.name(self.place), where, hint=_HINT)


@final
class Opened:
    """The files of a dataset, looked at: their data, their indexes, and what is known of each.

    Args:
        paths: of each file.
        dtype: of the tokens, where the user says it; raw files do not hold it.
        storage: fetches remote files.
        whole: whether remote data files are fetched into the cache of this machine.

    Raises:
        DatasetError: a file is not there, is truncated, has another type than the others, or contradicts its
            index.
        ArgumentValueError: nothing says the type of raw tokens.
    """

    def __init__(
        self, paths: Sequence[TokenPaths], dtype: Dtype | None, storage: RemoteStorage | None, *, whole: bool
    ) -> None:
        for path in paths:
            _require_known(path)
        self.data: Final = ByteFiles([path.data for path in paths], storage, whole=whole)
        # What asks for pages of an index asks for many small ones: it is fetched once a machine.
        indexed = [number for number, path in enumerate(paths) if path.index is not None]
        self.indexes: Final = ByteFiles(
            [paths[number].index or "" for number in indexed], storage, whole=True
        )
        self.index_of: Final = {number: place for place, number in enumerate(indexed)}
        self._pages: Final = Pages()
        self.files: Final = tuple(self._opened(number, path, dtype) for number, path in enumerate(paths))
        first = self.files[0]
        for file in self.files:
            if file.dtype != first.dtype:
                problem = f"holds {file.dtype}, and {first.name} {first.dtype}"
                raise DatasetError(file.name, problem, hint="files of one dataset have one type of tokens")

    def pointers(self, number: int) -> Pointers | None:
        """Returns where the sequences of a file begin; None where it has no index."""
        place = self.index_of.get(number)
        return None if place is None else Pointers(self.indexes, place, self.files[number], self._pages)

    def close(self) -> None:
        """Lets go of what is open."""
        self.data.close()
        self.indexes.close()

    def _opened(self, number: int, path: TokenPaths, dtype: Dtype | None) -> TokenFile:
        if path.index is not None:
            return self._of_megatron(number, dtype)
        if url_end(path.data).endswith(".npy"):
            return self._of_npy(number, dtype)
        name, size = self.data.name(number), self.data.files[number].size
        if dtype is None:
            hint = f"say dtype='uint16', for one; of Megatron's .bin and .idx give the prefix, {name[:-4]!r}"
            raise ArgumentValueError("dtype", "must be said for raw tokens", name, hint=hint)
        if size % dtype.itemsize:
            problem = f"has {size} bytes: at byte {size - size % dtype.itemsize} a token of {dtype} is cut"
            raise DatasetError(
                name, problem, hint="say the dtype that it was written with, or fetch it again"
            )
        return TokenFile(name, dtype, 0, size // dtype.itemsize)

    def _of_npy(self, number: int, said: Dtype | None) -> TokenFile:
        name, size = self.data.name(number), self.data.files[number].size
        file = io.BytesIO(self.data.peek(number, 0, min(size, _MOST_HEADER)))
        try:
            shape, dtype = npy_header(file)
        except (ValueError, EOFError) as error:
            raise DatasetError(name, f"is no npy file ({error})", hint="fetch or make it again") from error
        if len(shape) != 1 or dtype.str[1:] not in KINDS or dtype.newbyteorder("<") != dtype:
            problem = f"holds {dtype.str} of shape {shape}"
            raise DatasetError(name, problem, hint=f"{KNOWN}, in an array of one dimension")
        _require_dtype(name, dtype, said)
        begin, tokens = file.tell(), int(shape[0])
        _require_size(name, size, begin + tokens * dtype.itemsize, "its header")
        return TokenFile(name, dtype, begin, tokens)

    def _of_megatron(self, number: int, said: Dtype | None) -> TokenFile:
        place = self.index_of[number]
        name, index, size = self.data.name(number), self.indexes.name(place), self.indexes.files[place].size
        if size < HEADER.size:
            problem = f"ends at byte {size}, within its header of {HEADER.size} bytes"
            raise DatasetError(index, problem, hint="fetch or make it again")
        magic, version, code, n, m = HEADER.unpack(self.indexes.peek(place, 0, HEADER.size))
        if magic != MAGIC or version != 1:
            problem = f"is no index of Megatron's: it begins with {magic!r}, version {version}"
            raise DatasetError(index, problem, hint="give the prefix of a .bin and an .idx")
        if code not in MEGATRON:
            what = f"{_FLOATS[code]} numbers" if code in _FLOATS else f"a type of number {code}, at byte 17"
            raise DatasetError(index, f"says {what}, which are no tokens", hint=KNOWN)
        dtype = np.dtype("<" + MEGATRON[code])
        _require_dtype(name, dtype, said)
        rows = HEADER.size + 12 * n + 8 * m
        if size not in {rows, rows + n}:
            problem = f"has {size} bytes, and its header says {rows}: {n} sequences, {m} documents"
            raise DatasetError(
                index, problem, hint=f"it is wrong from byte {min(size, rows)} on: make it again"
            )
        end = 0
        if n:
            (length,) = struct.unpack("<i", self.indexes.peek(place, HEADER.size + 4 * (n - 1), 4))
            at = HEADER.size + 4 * n + 8 * (n - 1)
            (pointer,) = struct.unpack("<q", self.indexes.peek(place, at, 8))
            if length < 0 or pointer < 0 or pointer % dtype.itemsize:
                problem = (
                    f"says at byte {at} that sequence {n - 1} begins at byte {pointer}, of {length} tokens"
                )
                raise DatasetError(index, problem, hint="it does not belong to its .bin: make it again")
            end = pointer + length * dtype.itemsize
        _require_size(name, self.data.files[number].size, end, f"its index {index}")
        return TokenFile(name, dtype, 0, end // dtype.itemsize, n)


def _require_known(path: TokenPaths) -> None:
    """Requires that a prefix is one: any other name was taken for it.

    Raises:
        AbsentError: there is no file that it begins.
    """
    if path.index is None or is_remote(path.data):
        return
    if not os.path.lexists(path.data) and not os.path.lexists(path.index):
        name = path.data.removesuffix(".bin")
        problem = "is of no known format, and there is neither a .bin nor an .idx of that name"
        hint = "known: .npy, raw .bin, and Megatron's .bin with its .idx, named by their prefix"
        raise AbsentError(name, problem, hint=hint)


def _require_size(name: str, size: int, told: int, who: str) -> None:
    if size < told:
        problem = f"ends at byte {size}, and {who} says {told} bytes"
        raise DatasetError(name, problem, hint="it was cut: fetch or make it again")
    if size > told:
        problem = f"continues behind byte {told}, where {who} says that it ends, up to byte {size}"
        raise DatasetError(name, problem, hint="wait until it is written, or make both again")


def _require_dtype(name: str, dtype: Dtype, said: Dtype | None) -> None:
    if said is not None and said != dtype:
        raise DatasetError(name, f"holds {dtype}, and dtype says", said.name, hint="leave dtype out")
