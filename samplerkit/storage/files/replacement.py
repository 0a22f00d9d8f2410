"""Which file goes, and which ones come next: by the future where it is known, else by the past."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator
from typing import Any, Generic, final

from samplerkit.storage.files.shelf import Content, Shelf
from samplerkit.storage.files.uses import NEVER, Uses


@final
class Replacement(Generic[Content]):
    """Chooses between the files at hand, without threads.

    Where it is known what is read next, the file goes whose next use lies furthest in the future (Belady
    1966), and those come that are used next. Elsewhere the file goes that was used least recently, and the
    next ones come while files are read one after another.

    Args:
        shelf: the files at hand.
        num_files: the number of files.
        read_ahead: how many may come before they are wanted.

    Attributes:
        uses: what is read next; None where nobody told.
        held: how many threads read from each file now: none of these goes.
    """

    def __init__(self, shelf: Shelf[Content], num_files: int, read_ahead: int) -> None:
        self._shelf = shelf
        self._num_files = num_files
        self._read_ahead = read_ahead
        self.uses: Uses | None = None
        self.held: dict[int, int] = {}
        self._last: int | None = None
        self._is_sequential = False

    def turn_to(self, file: int) -> bool:
        """Is told that a file is wanted now; tells whether what came ahead was a wrong guess."""
        moves = 0 if self._last is None else file - self._last
        self._last = file
        if moves:
            self._is_sequential = moves == 1
        return bool(moves) and self.uses is None and not self._is_sequential

    def hold(self, file: int) -> None:
        """Is told that a thread reads from a file from now on."""
        self.held[file] = self.held.get(file, 0) + 1

    def let_go(self, file: int) -> None:
        """Is told that a thread reads from a file no more."""
        left = self.held.pop(file, 0) - 1
        if left > 0:
            self.held[file] = left

    def next_use(self, file: int) -> float:
        """Gives the number of the next batch that uses a file, `NEVER` if none is known.

        Where nobody told, the file that was used last is taken to be used next.
        """
        if self.uses is None:
            return 0 if file == self._last else NEVER
        return self.uses.next_use(file)

    def unneeded(self) -> list[int]:
        """Gives the files that are not used again, as far as is known."""
        files = self._shelf.contents
        return [file for file in files if self.next_use(file) == NEVER and file not in self.held]

    def victim(self) -> int | None:
        """Gives the file whose next use is furthest away; of several, the least recently used."""
        return self._shelf.furthest(self.next_use, self.held)

    def victim_for(self, file: int) -> int | None:
        """Gives the file that would have to go for another one when that is used, if it can go already."""
        uses = self.uses
        if uses is None:
            found = self.victim()
            return None if found == self._last else found
        batch = uses.next_use(file)
        files = [*self._shelf.contents, *self._shelf.loading]
        found = max(files, key=lambda file: (uses.next_use(file, batch), uses.next_use(file) > batch))
        can_go = found in self._shelf.contents and found not in self.held
        return found if can_go and uses.next_use(found) > batch else None

    def wanted_next(self, number: int, failed: Container[int]) -> list[int]:
        """Gives the files that are wanted next and are not here, the first first.

        Args:
            number: how many of them.
            failed: files that are not tried again before they are wanted.
        """

        def missing(files: Iterable[tuple[int, int]]) -> Iterator[Any]:
            return (entry for entry in files if entry[1] not in self._shelf and entry[1] not in failed)

        if self.uses is not None:
            return [file for _, file in heapq.nsmallest(number, missing(self.uses.upcoming_files()))]
        if self._last is None or not self._is_sequential:
            return []
        end = min(self._num_files, self._last + 1 + self._read_ahead)
        following = ((file, file) for file in range(self._last + 1, end))
        return [file for _, file in missing(following)][:number]
