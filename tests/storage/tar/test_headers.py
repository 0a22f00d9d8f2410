"""A header that is read by itself says what it says in a run of them."""

from __future__ import annotations

import tarfile

import pytest

from samplerkit.storage.tar.format.headers import BLOCK, SMALLEST, Window, padded, parse

LONG = ["/".join(["folder"] * 20) + "/a.txt", "p" * 155 + "/" + "n" * 100]
NAMES = ["a.txt", "x" * 100, "folder/a.txt", *LONG]


@pytest.mark.parametrize("size", [0, 1, 512, 513, 8**7])
@pytest.mark.parametrize("name", NAMES, ids=len)
@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT])
def test_one_header_and_a_run_of_them_are_read_alike(format, name, size):
    if format == tarfile.GNU_FORMAT:
        name = name[:100]  # longer ones stand in a member of their own
    member = tarfile.TarInfo(name)
    member.size = size
    block = member.tobuf(format)
    header = parse(block)
    assert (header.name, header.size, header.kind) == (name.encode(), size, b"0")
    names, offsets, sizes, end = Window(0, block + bytes((SMALLEST - 1) * BLOCK)).run(0)
    assert (names, offsets, sizes, end) == ([header.name], [BLOCK], [header.size], BLOCK + padded(size))
