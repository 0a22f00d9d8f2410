"""How much of an archive is read to find its members; one header and a run of them are read alike."""

from __future__ import annotations

import os
import tarfile
import threading

import pytest

from samplerkit.storage.tar.format.headers import BLOCK, SMALLEST, Window, padded, parse
from samplerkit.storage.tar.format.scan import DENSE_WINDOW, SPARSE_WINDOW, scan
from tests.storage.tar.shards import by_tarfile


@pytest.fixture
def pieces(monkeypatch):
    """The number of bytes of each piece that this thread reads."""
    read, pread, here = [], os.pread, threading.get_ident()

    def noted(descriptor, length, offset):
        data = pread(descriptor, length, offset)
        if threading.get_ident() == here:
            read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", noted)
    return read


def number_of_members(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        members = scan(descriptor, str(path), path.stat().st_size)
    finally:
        os.close(descriptor)
    assert members.flaws == []
    return len(members.names)


@pytest.mark.parametrize("length", [5, 200])
def test_an_archive_of_small_files_is_read_once_in_large_pieces(tmp_path, pieces, length):
    """Also where a header before each holds a name that does not fit into its own."""
    path = tmp_path / "small.tar"
    by_tarfile([(f"{number:0{length}}.txt", b"x" * 3000) for number in range(1500)], path, tarfile.GNU_FORMAT)
    size = path.stat().st_size
    assert number_of_members(path) == 1500
    assert 2 < sum(piece > SPARSE_WINDOW for piece in pieces) <= size // DENSE_WINDOW + 5
    assert sum(pieces) <= 1.2 * size


def test_of_an_archive_of_large_files_little_but_headers_is_read(tmp_path, pieces):
    path, count = tmp_path / "large.tar", 300
    member = tarfile.TarInfo("a.bin")
    member.size = 1 << 20
    with path.open("wb") as file:
        for number in range(count):
            file.seek(number * (member.size + BLOCK))
            file.write(member.tobuf())
        file.truncate(count * (member.size + BLOCK) + 2 * BLOCK)  # the data are holes, which no disk keeps
    assert number_of_members(path) == count
    assert sum(pieces) <= 2 * DENSE_WINDOW + count * SPARSE_WINDOW


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
