"""How much the cache may hold, and what has to go for what comes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import final

from samplerkit.errors import DatasetError
from samplerkit.storage.remote.entry import FOLDER_LOCK, Entry, Kept, kept_in
from samplerkit.storage.remote.flock import held, locked
from samplerkit.storage.remote.record import Record
from samplerkit.storage.threads import TICK, Stop


@final
@dataclass(frozen=True)
class DiskSpace:
    """The room of a folder, shared by all processes that use it: they count its files, under a short lock.

    What goes first is what a process that died has left, then versions of a file of which there is a newer
    one, then what was used least recently. Files in use never go, and those of others are never touched.

    Args:
        place: what errors name: for whose file there is to be room, without what is private.
        folder: of the cache.
        most: the bytes that it may hold; None for half of what is free, itself counted as free.
        patience: seconds to wait for files in use, when only they are left.
        stop: ends the waiting.
    """

    place: str
    folder: Path
    most: int | None
    patience: float
    stop: Stop

    @property
    def bound(self) -> int:
        """The bytes that the folder may hold now."""
        return self._bound(kept_in(self.folder))

    def reserve(self, entry: Entry, descriptor: int, size: int) -> None:
        """Makes room for a file, and gives its part that size, so that others count it.

        Args:
            entry: of the file; its lock is held by the caller.
            descriptor: of its part.
            size: that it will have.

        Raises:
            DatasetError: it does not fit.
        """
        end = time.monotonic() + self.patience
        while True:
            with held(self.folder / FOLDER_LOCK, self.stop):
                kept = list(kept_in(self.folder))
                bound = self._bound(kept)
                others = [each for each in kept if each.entry != entry]
                used = self._evicted(others, size - bound)
                if used + size <= bound:
                    os.ftruncate(descriptor, size)
                    return
            if size > bound or time.monotonic() > end:
                raise self._does_not_fit(size, bound, used)
            self.stop.sleep(TICK)

    def name(self, entry: Entry) -> None:
        """Gives the part of an entry, which is whole, its name.

        That is done under the lock of the folder: who lists a folder in which a file gets another name may
        meet it under neither, and would not count it.
        """
        with held(self.folder / FOLDER_LOCK, self.stop):
            entry.part.rename(entry.file)

    def free(self, entry: Entry, size: int, *, is_quota: bool) -> int:
        """Evicts until so much is free on the disk, or in the user's quota; gives how many bytes are missing.

        Args:
            entry: that is being written, and stays.
            size: that is to be free.
            is_quota: the user's quota is used up, and nobody tells what is free in it.
        """
        with held(self.folder / FOLDER_LOCK, self.stop):
            missing = size if is_quota else size - _free_on(self.folder)
            for each in _in_order(each for each in kept_in(self.folder) if each.entry != entry):
                if missing <= 0:
                    break
                if _evict(each.entry):
                    missing -= each.on_disk
            return max(0, missing)

    def _bound(self, kept: Iterable[Kept]) -> int:
        if self.most is not None:
            return self.most
        return (_free_on(self.folder) + sum(each.on_disk for each in kept)) // 2

    def _evicted(self, others: list[Kept], excess: int) -> int:
        """Evicts until no more than `-excess` bytes are left, if that can be; gives how many are."""
        used = sum(each.size for each in others)
        for each in _in_order(others):
            # What a dead process left goes in any case.
            is_wanted_away = used + excess > 0
            if (each.is_part or is_wanted_away) and _evict(each.entry, may_be_whole=is_wanted_away):
                used -= each.size
        return used

    def _does_not_fit(self, size: int, bound: int, used: int) -> DatasetError:
        where = "max_cache_bytes" if self.most is not None else "half of what is free on its disk"
        if size > bound:
            problem = f"does not fit into the cache: {size} bytes, and it may hold {bound} ({where})"
        else:
            problem = f"does not fit into the cache: {size} bytes, and {used} of {bound} ({where}) are in use"
        mend = "raise max_cache_bytes, or say cache=FOLDER on a larger disk"
        return DatasetError(self.place, problem, str(self.folder), mend=mend)


def _in_order(kept: Iterable[Kept]) -> list[Kept]:
    """Sorts by what goes first."""
    by_use = sorted(kept, key=lambda each: each.used)
    newest = {each.entry.address: each.entry.key for each in by_use if not each.is_part}
    return sorted(
        by_use,
        key=lambda each: (not each.is_part, newest.get(each.entry.address) == each.entry.key),
    )


def _evict(entry: Entry, *, may_be_whole: bool = True) -> bool:
    """Deletes an entry that nobody uses; tells whether it is gone.

    Args:
        entry: which.
        may_be_whole: whether it goes also if it has become a whole file meanwhile.
    """
    descriptor = locked(entry.lock, is_exclusive=True, may_make=False)
    if descriptor is None:
        return False
    try:
        if not may_be_whole and entry.file.exists():
            return False
        # An empty one is of a process that died before it wrote the marker, or the machine lost power then.
        is_ours = os.fstat(descriptor).st_size == 0 or Record.read(descriptor) is not None
        if is_ours:
            entry.file.unlink(missing_ok=True)
            entry.part.unlink(missing_ok=True)
            entry.lock.unlink(missing_ok=True)
        return is_ours
    finally:
        os.close(descriptor)


def _free_on(folder: Path) -> int:
    about = os.statvfs(folder)
    return about.f_bavail * about.f_frsize
