"""Grouping of the members of an archive into samples, as in webdataset."""

from __future__ import annotations

import re
from collections.abc import Sequence, Sized
from itertools import compress, pairwise
from typing import final

import numpy as np

from samplerkit.order.intervals import edges_of
from samplerkit.storage.arrays import Array, narrow
from samplerkit.storage.tar.format.flaws import Flaw, Reason
from samplerkit.storage.tar.format.headers import BLOCK, REGULAR, HeaderError, parse
from samplerkit.storage.tar.format.scan import Members

RESERVED = frozenset({"__key__", "__url__"})
"""Fields that every sample has in addition to those of its files."""

# For a hidden file the key is its folder, as in webdataset, unless that has a dot. `?+` does not backtrack,
# which would take quadratic time for forged names.
_SAMPLE = re.compile(rb"((?:.*/)?+[^./]+|(?:.*/)?[^./]*/)\.([^/]*)\Z", re.DOTALL)
_META = re.compile(rb"__[^/]*__(?:/|\Z)")
_LONGEST_NAME = 99
_LARGEST_SIZE = 8**11
_UNSAFE = re.compile(rb"/|(?:.*/)?\.\.(?:/|\Z)", re.DOTALL)


def split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """Splits the name of a member into the key of its sample and its extension.

    The key ends at the first dot of the last path component; directories belong to it.

    Returns:
        Key and extension, or None for a name without an extension.

    Source: the WebDataset format, "The WebDataset Format", section on file names.

    Example:
        >>> split_name(b"train.v2/n01/0001.seg.png"), split_name(b"README")
        ((b'train.v2/n01/0001', b'seg.png'), None)
    """
    match = _SAMPLE.match(name)
    return None if match is None else (match[1], match[2])


def is_unsafe(name: bytes) -> bool:
    """Returns whether a name is absolute or leads out of the folder of the archive.

    Example:
        >>> is_unsafe(b"/etc/a.txt"), is_unsafe(b"a/../b.txt"), is_unsafe(b"a/..b.txt")
        (True, True, False)
    """
    return _UNSAFE.match(name) is not None


def is_meta(name: bytes) -> bool:
    """Returns whether a name or its first folder has the form `__name__`: such members are not samples.

    Example:
        >>> is_meta(b"__notes__"), is_meta(b"__notes__/a.txt"), is_meta(b"__notes__.txt")
        (True, True, False)
    """
    return _META.match(name) is not None


def is_header_of(block: bytes, key: str, field: str, size: int) -> bool:
    """Returns whether a block is the header of a given file of a sample.

    A name that does not fit into the header is in an extended header before it; then only the size and the
    checksum are compared.
    """
    try:
        header = parse(block)
    except HeaderError:
        return False
    if header.kind not in REGULAR or (header.size != size and size < _LARGEST_SIZE):
        return False
    name = f"{key}.{field}"
    if len(name) > _LONGEST_NAME or not name.isascii():
        return True
    parts = split_name(header.name)
    return parts is not None and (parts[0], parts[1].lower()) == (key.encode(), field.encode())


Samples = tuple[tuple[tuple[str, ...], ...], dict[str, Array], list[Flaw]]
"""The distinct tuples of fields of samples, in the order of their files; arrays as in `Index`; and flaws."""


def group(members: Members, archive: str) -> Samples:
    """Groups the members of an archive into samples.

    The files of a sample must be consecutive. A sample with a flaw is left out completely; so is the last
    sample of an archive that ends in a flaw, since files of it may be lost.
    """
    return _Grouping(members, archive).samples()


@final
class _Grouping:
    """The state of grouping: `_numbers` and `_fields` have an entry per file, `_keys` one per sample."""

    def __init__(self, members: Members, archive: str) -> None:
        self._members = members
        self._archive = archive
        self._flaws: list[Flaw] = []
        self._keys: list[bytes] = []
        self._first: list[int] = []
        self._numbers: list[int] = []
        self._fields: list[str] = []
        self._bad: set[int] = set()

    def samples(self) -> Samples:
        """Groups the members, finds samples with flaws, and returns the other samples."""
        self._assign()
        self._first.append(len(self._fields))
        self._signatures = [tuple(self._fields[begin:end]) for begin, end in pairwise(self._first)]
        self._check_fields()
        self._check_keys()
        ends_early = any(flaw.reason != "data after the end" for flaw in self._members.flaws)
        if ends_early and self._keys:
            last = len(self._keys) - 1
            self._flaw(
                last, self._first[last], "incomplete sample", "more of it may be lost with what follows"
            )
        return self._build()

    def _build(self) -> Samples:
        keys, signatures, entries = self._keys, self._signatures, self._numbers
        if self._bad:
            is_kept = [at not in self._bad for at in range(len(keys))]
            spans = compress(pairwise(self._first), is_kept)
            entries = [number for begin, end in spans for number in entries[begin:end]]
            keys, signatures = list(compress(keys, is_kept)), list(compress(signatures, is_kept))
        fields = tuple(dict.fromkeys(signatures))
        numbers = {names: number for number, names in enumerate(fields)}
        size = np.array([self._members.sizes[at] for at in entries], dtype=np.int64)
        arrays: dict[str, Array] = {
            "samples": np.array([len(keys)], dtype=np.int64),
            "first": _ends(signatures),
            "signature": np.array([*map(numbers.__getitem__, signatures)], dtype=narrow(len(fields))),
            "key_end": _ends(keys),
            "keys": np.frombuffer(b"".join(keys), dtype=np.uint8),
            "offset": np.array([self._members.offsets[at] for at in entries], dtype=np.int64),
            "size": size.astype(narrow(int(size.max(initial=0)))),
        }
        return fields, arrays, [*self._members.flaws, *self._flaws]

    def _assign(self) -> None:
        """Assigns each member to a sample: the current one if the key is the same, else a new one."""
        names, bad = self._members.names, self._members.bad
        # One search over all names decides whether each name has to be checked for rare cases.
        joined = b"\0".join([b"", *names])
        is_rare = bool(bad) or any(text in joined for text in (b"\0/", b"..", b"\0__"))
        lowered: dict[bytes, str] = {}
        for number, name in enumerate(names):
            parts = self._split(number, name) if is_rare else split_name(name)
            if parts is None:
                continue
            key, extension = parts
            if not self._keys or key != self._keys[-1]:
                self._keys.append(key)
                self._first.append(len(self._fields))
            if extension not in lowered:
                lowered[extension] = extension.decode("utf-8", "surrogateescape").lower()
            self._fields.append(lowered[extension])
            self._numbers.append(number)
            if number in bad:
                reason, detail = bad[number]
                shown = name.decode("utf-8", "replace")
                self._flaw(len(self._keys) - 1, len(self._fields) - 1, reason, f"{shown!r} is {detail}")

    def _split(self, number: int, name: bytes) -> tuple[bytes, bytes] | None:
        """Splits a name; returns None if it belongs to no sample."""
        if is_unsafe(name):
            # Directories belong to the key, so all files of this sample have unsafe names.
            self._note(number, "unsafe name", repr(name.decode("utf-8", "replace")))
            return None
        parts = None if is_meta(name) else split_name(name)
        if parts is None and number in self._members.bad:
            self._note(number, *self._members.bad[number])
        return parts

    def _check_fields(self) -> None:
        distinct = set(self._signatures)
        wrong = {names for names in distinct if len({*names, *RESERVED}) < len(names) + len(RESERVED)}
        for sample, names in enumerate(self._signatures) if wrong else ():
            if names in wrong:
                at = next(at for at, name in enumerate(names) if name in RESERVED or name in names[:at])
                reason: Reason = "reserved field" if names[at] in RESERVED else "duplicate field"
                detail = f"{names[at]!r} of {self._shown(sample)}"
                self._flaw(sample, self._first[sample] + at, reason, detail)

    def _check_keys(self) -> None:
        if len(set(self._keys)) == len(self._keys):
            return
        places: dict[bytes, int] = {}
        for sample, key in enumerate(self._keys):
            earlier = places.setdefault(key, sample)
            if earlier != sample:
                # Either may be a part of the other, so both are left out.
                self._bad.add(earlier)
                detail = f"{self._shown(sample)} is in two places of the shard"
                self._flaw(sample, self._first[sample], "duplicate key", detail)

    def _flaw(self, sample: int, entry: int, reason: Reason, detail: str) -> None:
        """Records a flaw of a sample at one of its files."""
        self._bad.add(sample)
        self._note(self._numbers[entry], reason, detail)

    def _note(self, member: int, reason: Reason, detail: str) -> None:
        offset = self._members.offsets[member] - BLOCK
        self._flaws.append(Flaw(self._archive, offset, reason, detail))

    def _shown(self, sample: int) -> str:
        return repr(self._keys[sample].decode("utf-8", "replace"))


def _ends(texts: Sequence[Sized]) -> Array:
    """Returns the starts of concatenated items, and the end of the last one."""
    ends = edges_of(np.array([*map(len, texts)], dtype=np.int64))
    return ends.astype(narrow(int(ends[-1])))
