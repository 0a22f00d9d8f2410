"""`Index`: the positions of samples in one archive or in several, and its file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.order.caching import cached_property
from samplerkit.order.intervals import edges_of
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.arrays import Array, read_arrays, write_arrays
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.names import short_names
from samplerkit.storage.tar.format.flaws import REASONS, Flaw, Skipped
from samplerkit.storage.tar.format.headers import BLOCK


@dataclass(frozen=True, eq=False)
class Index:
    """The positions of the samples in some archives.

    Args:
        archives: the archives, in the version that was indexed.
        unpacked: for each archive, the size of the uncompressed tar file if it is compressed; else None.
        fields: the distinct tuples of fields that samples have.
        skipped: the flaws of the archives.
        arrays: `samples`, shape (archives,): the number of samples of each archive; `first`, (samples + 1,):
            the first member of each sample; `signature`, (samples,): the index of its tuple in `fields`;
            `key_end`, (samples + 1,), and `keys`: its key in bytes; `offset` and `size`, (members,): the
            position of each member's data; `crc`, (members,), on request: their CRC-32.
        fingerprint: for joined archives, a string that changes with the samples; else "".
        is_certain: whether it is certainly of this version of the archive. An index next to a remote archive
            is matched by size only, so each header is compared before its entry is used.
        path: the file that is mapped; None if the arrays are only in memory.
    """

    archives: tuple[Stored, ...]
    unpacked: tuple[int | None, ...]
    fields: tuple[tuple[str, ...], ...]
    skipped: Skipped
    arrays: Mapping[str, Array]
    fingerprint: str = ""
    is_certain: bool = True
    path: Path | None = None

    @property
    def archive(self) -> Stored:
        """The only archive, or the first one."""
        return self.archives[0]

    @cached_property
    def layout(self) -> Layout:
        """The number of samples in each archive."""
        return Layout(self.arrays["samples"], short_names(tuple(archive.name for archive in self.archives)))

    @property
    def num_samples(self) -> int:
        """The number of samples."""
        return self.arrays["signature"].size

    @property
    def num_members(self) -> int:
        """The number of files that belong to samples."""
        return self.arrays["offset"].size

    @property
    def is_missing(self) -> bool:
        """Whether its archive is missing or may not be read."""
        return any(flaw.reason == "unreadable" for flaw in self.skipped.places)

    def serves(self, checksums: bool) -> bool:
        """Returns whether it has checksums, if they are required."""
        return not checksums or "crc" in self.arrays

    def keys(self, samples: Ids) -> list[str]:
        """Returns the keys of samples."""
        ends, keys = self.arrays["key_end"], self.arrays["keys"].data
        places = zip(ends[samples].tolist(), ends[samples + 1].tolist(), strict=True)
        return [str(keys[begin:end], "utf-8", "surrogateescape") for begin, end in places]

    def key(self, sample: int) -> str:
        """Returns the key of a sample."""
        return self.keys(np.array([sample]))[0]

    def fields_of(self, sample: int) -> tuple[str, ...]:
        """Returns the fields of a sample."""
        return self.fields[int(self.arrays["signature"][sample])]

    def extents(self, samples: Ids) -> tuple[Ids, Ids]:
        """Returns the offsets at which the first file of each sample begins and its last file ends."""
        first, offset, size = (self.arrays[name] for name in ("first", "offset", "size"))
        last = first[samples + 1].astype(np.int64) - 1
        return offset[first[samples]], offset[last] + size[last].astype(np.int64)

    def part(self, start: int, stop: int) -> dict[str, Array]:
        """Returns the arrays of the samples from `start` to `stop`; `first` and `key_end` as differences."""
        arrays, part = self.arrays, {"signature": self.arrays["signature"][start:stop]}
        for name, others in (("first", ("offset", "size", "crc")), ("key_end", ("keys",))):
            begins = arrays[name][start : stop + 1].astype(np.int64)
            part |= {other: arrays[other][begins[0] : begins[-1]] for other in others if other in arrays}
            part[name] = np.diff(begins)
        return part

    def is_like(self, other: Index) -> bool:
        """Returns whether another index has the same fields and all arrays of this one."""
        return (self.fields, self.unpacked) == (other.fields, other.unpacked) and all(
            np.array_equal(array, other.arrays[name]) for name, array in self.arrays.items()
        )

    def stale(self) -> DatasetError:
        """Returns the error for an index next to an archive that is of another version of it.

        Its copy in the cache is deleted, so that a new index next to the archive is read.
        """
        if self.path is not None:
            with suppress(OSError):
                self.path.unlink()
        problem = "has an index next to it that belongs to another version"
        hint = "make it again with `samplerkit index` and put it there, or remove it"
        return DatasetError(self.archive.name, problem, hint=hint)

    @property
    def meta(self) -> dict[str, Any]:
        """The values other than arrays, as they are written to a file."""
        numbers = {archive.name: number for number, archive in enumerate(self.archives)}
        flaws = self.skipped.places
        return {
            "archives": [(archive.size, archive.version) for archive in self.archives],
            "unpacked": self.unpacked,
            "fields": self.fields,
            "flaws": [(numbers[flaw.archive], flaw.offset, flaw.reason, flaw.detail) for flaw in flaws],
            "fingerprint": self.fingerprint,
            "is_certain": self.is_certain,
        }

    def write(self, path: Path) -> None:
        """Writes the index to a file.

        Raises:
            OSError: the file cannot be written.
        """
        write_arrays(path, self.meta, self.arrays)

    @property
    def load(self) -> Callable[[], Index]:
        """A function that maps the index again, so that it need not be kept or pickled if it is in a file."""
        return partial(replace, self) if self.path is None else partial(reopened, self.path, self.archives)


def read_index(
    path: Path, archives: tuple[Stored, ...], *, verify: bool = True, by_size: bool = False
) -> Index | None:
    """Maps an index; returns None if it is missing, damaged, invalid, or of another version of the archives.

    Args:
        path: the path of the file.
        archives: the archives in their current version.
        verify: whether to check its digest and its numbers; not needed if they were just checked.
        by_size: whether to compare only the sizes of the archives; the index is then not certain.
    """
    num_values = 1 if by_size else 2
    expected = [[archive.size, archive.version][:num_values] for archive in archives]
    try:
        meta, arrays = read_arrays(path, verify=verify)
        if [state[:num_values] for state in meta["archives"]] != expected:
            return None
        flaws = (Flaw(archives[number].name, *flaw) for number, *flaw in meta["flaws"])
        index = Index(
            archives,
            tuple(meta["unpacked"]),
            tuple(map(tuple, meta["fields"])),
            Skipped(tuple(flaws)),
            arrays,
            meta["fingerprint"],
            # Without a tag, two versions of the same size cannot be distinguished.
            meta["is_certain"] and not by_size and all(archive.version for archive in archives),
            None if by_size else path,
        )
        return index if not verify or all(invariants(index)) else None
    except (OSError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None


def cached(index: Index, path: Path) -> Index:
    """Writes an index to the cache, if that is writable.

    Returns:
        The index, mapped from the cache, so that indexes of many archives do not take memory.
    """
    try:
        index.write(path)
    except OSError:
        return index
    mapped = read_index(path, index.archives, verify=False)
    return index if mapped is None else replace(mapped, is_certain=index.is_certain)


def reopened(path: Path, archives: tuple[Stored, ...]) -> Index:
    """Maps an index that was verified before, by this process or another one."""
    index = read_index(path, archives, verify=False)
    if index is None:
        hint = "do not change the cache while it is in use, and make the dataset again"
        raise DatasetError("cache", "has lost an index that is in use", str(path), hint=hint)
    return index


def split_between(index: Index, later: Index) -> Flaw | None:
    """Returns the flaw if the last sample of an archive continues in the next one, else None."""
    if not (index.num_samples and later.num_samples):
        return None
    last = index.num_samples - 1
    # Each archive may number its keys from 0, so equal keys are one sample only if no field is in both.
    if index.key(last) != later.key(0) or not set(index.fields_of(last)).isdisjoint(later.fields_of(0)):
        return None
    place = int(later.arrays["offset"][0]) - BLOCK
    return Flaw(later.archive.name, place, "split sample", f"{later.key(0)!r} begins in {index.archive.name}")


AT_ONCE = 1 << 20
"""Numbers that are checked at a time."""


def invariants(index: Index) -> Iterator[bool]:
    """Yields whether each invariant of an index holds: no number may point outside its arrays or its archive.

    Each check relies on those before it.

    Raises:
        LookupError: an array is missing, or a sample has an unknown tuple of fields.
    """
    yield all(names and all(isinstance(name, str) for name in names) for names in index.fields)
    yield isinstance(index.fingerprint, str)
    yield all(flaw.reason in REASONS for flaw in index.skipped.places)
    arrays = index.arrays
    samples, signature, first = arrays["samples"], arrays["signature"], arrays["first"]
    ends = signature.size + 1
    sizes = {"samples": len(index.archives), "first": ends, "key_end": ends, "size": index.num_members}
    sizes |= {"crc": index.num_members} if "crc" in arrays else {}
    yield all(arrays[name].size == size for name, size in sizes.items())
    starts = edges_of(samples)
    yield samples.min(initial=0) >= 0 and starts[-1] == signature.size
    widths = np.array([len(names) for names in index.fields], dtype=np.int64)
    yield _fill(first, index.num_members, lambda steps, at: steps == widths[signature[at]])
    yield _fill(arrays["key_end"], arrays["keys"].size, lambda steps, _: steps >= 0)
    files = zip(index.archives, index.unpacked, strict=True)
    plain = [archive.size if size is None else size for archive, size in files]
    yield _are_inside(arrays, first[starts].astype(np.int64), np.array(plain, dtype=np.int64))


def _fill(begins: Array, total: int, is_valid: Callable[[Array, slice], Array]) -> bool:
    """Returns whether the starts of samples in another array are consecutive and cover it."""
    return (begins[0], begins[-1]) == (0, total) and all(
        is_valid(np.diff(begins[at : at + AT_ONCE + 1].astype(np.int64)), slice(at, at + AT_ONCE)).all()
        for at in range(0, begins.size - 1, AT_ONCE)
    )


def _are_inside(arrays: Mapping[str, Array], bounds: Array, ends: Array) -> bool:
    """Returns whether files are in ascending order, each within its archive."""
    for at in range(0, arrays["offset"].size, AT_ONCE):
        # Includes the file before, with which the first of this part is compared.
        start = max(0, at - 1)
        offset = arrays["offset"][start : at + AT_ONCE].astype(np.int64)
        size = arrays["size"][start : at + AT_ONCE].astype(np.int64)
        archive = np.searchsorted(bounds, np.arange(start, start + offset.size), side="right") - 1
        # Not the sum of offset and size, which may overflow 64 bits.
        wrong = (offset < BLOCK) | (size < 0) | (size > ends[archive]) | (offset > ends[archive] - size)
        wrong[1:] |= (np.diff(archive) == 0) & (offset[1:] <= offset[:-1])
        if wrong.any():
            return False
    return True
