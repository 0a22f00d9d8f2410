"""Where samples lie, in numpy arrays: those of one archive, and those of several joined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.caching import cached_property
from samplerkit.order.layout import Layout
from samplerkit.storage.arrays import Array, Column, UnreadableFileError, read_arrays, write_arrays
from samplerkit.storage.names import short_names
from samplerkit.storage.tar.format.flaws import Flaw, Reason, Skipped
from samplerkit.storage.tar.format.headers import BLOCK
from samplerkit.storage.tar.index.archive import Archive

Edge = tuple[bytes, tuple[str, ...], int]
"""The key, the fields and the place of the first or the last sample of an archive."""


@final
@dataclass(frozen=True)
class Index:
    """Where the samples of one archive lie.

    Args:
        archive: the archive as it was when it was indexed.
        unpacked_size: bytes of the plain tar file, for a compressed archive; else None.
        fields: the distinct tuples of fields that samples have.
        flaws: what is wrong with the archive, each reason at most `MOST_PLACES` times.
        counts: how many flaws there are of each reason.
        ignored: how many files belong to no sample: those without an extension, and `__name__` ones.
        is_certain: whether it was made from this very state of the archive. What lies beside a remote archive
            tells only its size, so each header is compared before what it says is believed.
        arrays: `first` (shape (samples + 1,)): the number of each sample's first member; `signature`
            (samples,): the number of its fields; `key_end` (samples + 1,) and `keys`: its key, in bytes;
            `offset` and `size` (members,): where each member's data lie; `crc` (members,), on request:
            their CRC-32.
    """

    archive: Archive
    unpacked_size: int | None
    fields: tuple[tuple[str, ...], ...]
    flaws: tuple[Flaw, ...]
    counts: Mapping[str, int]
    ignored: int
    arrays: Mapping[str, Array]
    is_certain: bool = True

    @classmethod
    def of_file(
        cls, archive: Archive, meta: Mapping[str, Any], arrays: Mapping[str, Array], *, is_certain: bool
    ) -> Index:
        """Makes an index of what a file of one says, once that was looked at."""
        return cls(
            archive,
            meta["unpacked_size"],
            tuple(tuple(names) for names in meta["fields"]),
            tuple(Flaw(archive.url, *flaw) for flaw in meta["flaws"]),
            meta["counts"],
            meta["ignored"],
            arrays,
            is_certain,
        )

    @property
    def num_samples(self) -> int:
        """The number of samples."""
        return self.arrays["signature"].size

    @property
    def num_members(self) -> int:
        """The number of files that belong to samples."""
        return self.arrays["offset"].size

    @property
    def is_lost(self) -> bool:
        """Whether it stands for an archive that is not there, or may not be read."""
        return any(flaw.reason == "unreadable" for flaw in self.flaws)

    def serves(self, checksums: bool) -> bool:
        """Whether it has checksums, if they are asked for."""
        return not checksums or "crc" in self.arrays

    def key(self, sample: int) -> bytes:
        """Returns the key of a sample."""
        begin, end = self.arrays["key_end"][sample : sample + 2].tolist()
        return self.arrays["keys"][begin:end].tobytes()

    def edge(self, sample: int) -> Edge:
        """Returns the key, the fields and the place of a sample; nothing where there is none."""
        if not 0 <= sample < self.num_samples:
            return b"", (), 0
        place = int(self.arrays["offset"][int(self.arrays["first"][sample])]) - BLOCK
        return self.key(sample), self.fields[int(self.arrays["signature"][sample])], place

    def stale(self) -> DatasetError:
        """Returns the error for an index beside an archive that is of another state of it."""
        return DatasetError(
            self.archive.url,
            "has an index beside it that is of another state of it",
            hint="make it again with `samplerkit index` and put it there, or take it away",
        )

    def write(self, path: Path) -> None:
        """Writes the index to a file.

        Raises:
            OSError: it cannot be written.
        """
        meta = {
            "size": self.archive.size,
            "mtime_ns": self.archive.version,
            "is_certain": self.is_certain,
            "unpacked_size": self.unpacked_size,
            "fields": self.fields,
            "flaws": [(flaw.offset, flaw.reason, flaw.detail) for flaw in self.flaws],
            "counts": dict(self.counts),
            "ignored": self.ignored,
        }
        write_arrays(path, meta, {name: Column.of(array) for name, array in self.arrays.items()})


def split_between(last: Edge, first: Edge, archive: str) -> tuple[int, Reason, str] | None:
    """Returns the place and the flaw of a last sample that continues in the next archive; else None."""
    (key, fields, _), (next_key, next_fields, place) = last, first
    # Keys may be counted again in each archive: only files that complete one another are one sample.
    if fields and key == next_key and next_fields and set(fields).isdisjoint(next_fields):
        return place, "split sample", f"{key.decode('utf-8', 'replace')!r} begins in {archive}"
    return None


@final
@dataclass(frozen=True)
class Catalogue:
    """Where the samples of several archives lie.

    Args:
        archives: as they were when they were indexed.
        meta: the values that are no arrays: `fields`, `unpacked`, `flaws`, `counts`, `ignored`,
            `identity` and `fingerprint`.
        arrays: those of an `Index`, those of all archives joined, and `samples`: how many samples each
            archive has.
        path: the file that is mapped; None where the arrays are in memory only.
    """

    archives: tuple[Archive, ...]
    meta: Mapping[str, Any]
    arrays: Mapping[str, Array]
    path: Path | None

    @cached_property
    def layout(self) -> Layout:
        """How many samples lie in which archive."""
        names = short_names(tuple(archive.url for archive in self.archives))
        return Layout(self.arrays["samples"], names)

    @cached_property
    def fields(self) -> tuple[tuple[str, ...], ...]:
        """The distinct tuples of fields that samples have."""
        return tuple(tuple(names) for names in self.meta["fields"])

    @cached_property
    def skipped(self) -> Skipped:
        """What was skipped."""
        flaws = (Flaw(self.archives[number].url, *flaw) for number, *flaw in self.meta["flaws"])
        return Skipped.of(flaws, self.meta["counts"])

    @classmethod
    def of(cls, index: Index) -> Catalogue:
        """Makes the catalogue of one archive, in memory only."""
        meta = {
            "fields": index.fields,
            "unpacked": [index.unpacked_size],
            "flaws": [(0, flaw.offset, flaw.reason, flaw.detail) for flaw in index.flaws],
            "counts": index.counts,
        }
        samples = np.array([index.num_samples], dtype=np.int64)
        return cls((index.archive,), meta, {**index.arrays, "samples": samples}, None)

    @classmethod
    def read(cls, archives: tuple[Archive, ...], path: Path, *, verify: bool) -> Catalogue | None:
        """Maps the catalogue of some archives; None if it is not there, or is damaged."""
        try:
            meta, arrays = read_arrays(path, verify=verify)
        except (OSError, UnreadableFileError):
            return None
        return cls(archives, meta, arrays, path)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.path is None:
            return Catalogue, (self.archives, self.meta, dict(self.arrays), None)
        return _reopened, (self.archives, self.path, self.meta["fingerprint"])


def _reopened(archives: tuple[Archive, ...], path: Path, fingerprint: str) -> Catalogue:
    """Maps a catalogue in another process."""
    found = Catalogue.read(archives, path, verify=False)
    if found is None or found.meta.get("fingerprint") != fingerprint:
        hint = "leave the cache alone while it is in use, and make the dataset again"
        raise DatasetError("cache", "has lost an index that is in use", str(path), hint=hint)
    return found
