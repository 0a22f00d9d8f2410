"""Where each sequence of a Megatron index begins: looked up by bisection, page by page, never read whole."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass
from threading import Lock
from typing import Final, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.arguments import LARGEST
from samplerkit.order.typing import Ids
from samplerkit.storage.tokens.byte_files import ByteFiles
from samplerkit.storage.tokens.token_files import HEADER, TokenFile

PAGE: Final = 4096
"""Sequences of a page: 48 KiB of an index."""

MOST_PAGES: Final = 1536
"""Pages in memory, 48 MiB; then all are dropped."""

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
