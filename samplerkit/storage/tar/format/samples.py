"""Grouping of the members of an archive into samples, as in webdataset."""

import re
from itertools import compress, pairwise
from typing import Any

import numpy as np

from samplerkit.order.intervals import edges_of
from samplerkit.storage.arrays import Array, narrow
from samplerkit.storage.tar.format.flaws import Flaw, Reason
from samplerkit.storage.tar.format.headers import BLOCK, REGULAR, HeaderError, parse
from samplerkit.storage.tar.format.scan import Members

RESERVED = frozenset({"__key__", "__url__"})
"""Fields that every sample has in addition to those of its files."""

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
    folder, slash, file = name.rpartition(b"/")
    stem, dot, extension = file.partition(b".")
    # For a hidden file the key is its folder, as in webdataset, unless that has a dot.
    if not dot or (not stem and (not slash or b"." in folder.rpartition(b"/")[2])):
        return None
    return folder + slash + stem, extension


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


class Grouping:
    """The grouping of the members of an archive into samples.

    The files of a sample must be consecutive. A sample with a flaw is left out completely; so is the last
    sample of an archive that ends in a flaw, since files of it may be lost.

    Args:
        members: the members, in their order.
        archive: the name of the archive in flaws.
    """

    def __init__(self, members: Members, archive: str) -> None:
        self._members = members
        self._archive = archive
        self._flaws = [*members.flaws]
        # These three have an entry per sample.
        self._keys: list[bytes] = []
        self._names: list[tuple[str, ...]] = []
        self._first: list[int] = []  # of each sample, its first file; and the number of files
        self._bad: list[int] = []  # samples with a flaw

    def samples(self) -> Samples:
        """Groups the members, finds samples with flaws, and returns the other samples."""
        self._assign()
        self._check_fields()
        self._check_keys()
        ends_early = any(flaw.reason != "data after the end" for flaw in self._members.flaws)
        if ends_early and self._keys:
            last, detail = len(self._keys) - 1, "more of it may be lost with what follows"
            self._flaw(last, self._first[last], "incomplete sample", detail)
        return self._build()

    def _build(self) -> Samples:
        is_kept = np.ones(len(self._keys), dtype=bool)
        is_kept[self._bad] = False
        widths = np.diff(self._first)
        entries = self._numbers[np.repeat(is_kept, widths)]
        keys = [*compress(self._keys, is_kept.tolist())]
        names = [*compress(self._names, is_kept.tolist())]
        numbers = {each: number for number, each in enumerate(dict.fromkeys(names))}
        size = np.frombuffer(self._members.sizes, dtype=np.int64)[entries]
        arrays: dict[str, Array] = {
            "samples": np.array([len(keys)], dtype=np.int64),
            "first": ends_of(widths[is_kept]),
            "signature": np.array([*map(numbers.__getitem__, names)], dtype=narrow(len(numbers))),
            "key_end": ends_of([*map(len, keys)]),
            "keys": np.frombuffer(b"".join(keys), dtype=np.uint8),
            "offset": np.frombuffer(self._members.offsets, dtype=np.int64)[entries],
            "size": size.astype(narrow(int(size.max(initial=0)))),
        }
        return tuple(numbers), arrays, self._flaws

    def _assign(self) -> None:
        """Assigns each member to a sample: the current one if the key is the same, else a new one."""
        names, bad = self._members.names, self._members.bad
        # One search over all names decides whether each name has to be checked for rare cases.
        joined = b"\0".join([b"", *names])
        is_rare = bool(bad) or any(text in joined for text in (b"\0/", b"..", b"\0__"))
        extensions, known, others, last = list[bytes](), set[bytes](), list[int](), None
        for number, name in enumerate(names):
            # Usually no folder has a dot, and the extension is known: then it has no slash.
            key, _, extension = name.partition(b".")
            if extension not in known or not key:
                parts = self._split(number, name)
                if parts is None:
                    others.append(number)
                    continue
                key, extension = parts
                if extension and not is_rare:
                    known.add(extension)
                if number in bad:
                    self._bad.append(len(self._keys) - (key == last))
            if key != last:
                last = key
                self._keys.append(key)
                self._first.append(number - len(others))
            extensions.append(extension)
        self._numbers = np.delete(np.arange(len(names)), others)
        self._first.append(len(extensions))
        # Most samples have the same extensions, which become one tuple of fields.
        fields: dict[tuple[bytes, ...], tuple[str, ...]] = {}
        for begin, end in pairwise(self._first):
            own = tuple(extensions[begin:end])
            if own not in fields:
                fields[own] = tuple(each.decode("utf-8", "surrogateescape").lower() for each in own)
            self._names.append(fields[own])

    def _split(self, number: int, name: bytes) -> tuple[bytes, bytes] | None:
        """Splits a name; returns None if it belongs to no sample."""
        shown = repr(name.decode("utf-8", "replace"))
        if is_unsafe(name):
            # Directories belong to the key, so all files of this sample have unsafe names.
            self._note(number, "unsafe name", shown)
            return None
        if number in self._members.bad:
            reason, detail = self._members.bad[number]
            self._note(number, reason, f"{shown} is {detail}")
        return None if is_meta(name) else split_name(name)

    def _check_fields(self) -> None:
        distinct = set(self._names)
        wrong = {names for names in distinct if len({*names, *RESERVED}) < len(names) + len(RESERVED)}
        for sample, names in enumerate(self._names) if wrong else ():
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
                self._bad.append(earlier)
                detail = f"{self._shown(sample)} is in two places of the shard"
                self._flaw(sample, self._first[sample], "duplicate key", detail)

    def _flaw(self, sample: int, entry: int, reason: Reason, detail: str) -> None:
        """Records a flaw of a sample at one of its files."""
        self._bad.append(sample)
        self._note(int(self._numbers[entry]), reason, detail)

    def _note(self, member: int, reason: Reason, detail: str) -> None:
        offset = self._members.offsets[member] - BLOCK
        self._flaws.append(Flaw(self._archive, offset, reason, detail))

    def _shown(self, sample: int) -> str:
        return repr(self._keys[sample].decode("utf-8", "replace"))


def ends_of(sizes: Any) -> Array:
    """Returns the starts of concatenated items, and the end of the last one."""
    ends = edges_of(np.array(sizes, dtype=np.int64))
    return ends.astype(narrow(int(ends[-1])))
