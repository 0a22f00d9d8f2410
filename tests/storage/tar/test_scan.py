"""How much of an archive is read to find its members."""

from __future__ import annotations

import os
import tarfile
import threading

import pytest

from samplerkit.storage.tar.format.headers import BLOCK, parse
from samplerkit.storage.tar.format.samples import is_header_of
from samplerkit.storage.tar.format.scan import DENSE_WINDOW, SPARSE_WINDOW, scan
from tests.storage.tar.shards import write_by_tarfile


@pytest.fixture
def pieces(monkeypatch):
    """The number of bytes of each piece that this thread reads."""
    read, pread, own_thread = [], os.pread, threading.get_ident()

    def record(descriptor, length, offset):
        data = pread(descriptor, length, offset)
        if threading.get_ident() == own_thread:
            read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", record)
    return read


def names_of_members(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        members = scan(descriptor, str(path), path.stat().st_size)
    finally:
        os.close(descriptor)
    assert members.flaws == []
    return members.names


@pytest.mark.parametrize("length", [5, 200])
def test_an_archive_of_small_files_is_read_once_in_large_pieces(tmp_path, pieces, length):
    """Also where each header follows another one for a name that does not fit into it."""
    path = tmp_path / "small.tar"
    write_by_tarfile([(f"{n:0{length}}.txt", b"x" * 3000) for n in range(1500)], path, tarfile.GNU_FORMAT)
    size = path.stat().st_size
    assert len(names_of_members(path)) == 1500
    assert 2 < sum(piece > SPARSE_WINDOW for piece in pieces) <= size // DENSE_WINDOW + 5
    assert sum(pieces) <= 1.2 * size


def test_little_but_headers_is_read_of_an_archive_of_large_files(tmp_path, pieces):
    path, count = tmp_path / "large.tar", 300
    member = tarfile.TarInfo("a.bin")
    member.size = 1 << 20
    with path.open("wb") as file:
        for number in range(count):
            file.seek(number * (member.size + BLOCK))
            file.write(member.tobuf())
        file.truncate(count * (member.size + BLOCK) + 2 * BLOCK)  # the data are holes, which no disk keeps
    assert len(names_of_members(path)) == count
    assert sum(pieces) <= 2 * DENSE_WINDOW + count * SPARSE_WINDOW


def test_a_long_name_in_two_fields_of_a_header_is_joined():
    name = f"{'d' * 90}/{'f' * 90}.bin"
    assert parse(tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT)).name == name.encode()


def test_a_size_may_be_written_in_all_twelve_digits_and_a_name_ends_at_its_zero(tmp_path):
    path = tmp_path / "small.tar"
    write_by_tarfile([(f"{number}.txt", bytes(900)) for number in range(99)], path, tarfile.USTAR_FORMAT)
    data = bytearray(path.read_bytes())
    for at in range(0, 99 * 1536, 1536):
        data[at + 124 : at + 136], data[at + 148 : at + 156] = b"%012o" % 900, b" " * 8
        data[at + 99] = ord("x")
        data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + BLOCK])
    path.write_bytes(data)
    assert names_of_members(path) == [b"%d.txt" % number for number in range(99)]


def test_a_header_must_state_the_size_of_a_file_below_8_gib():
    """Above, it may be in another header before it, as pax writes it."""
    block = tarfile.TarInfo("a.bin").tobuf()
    assert [is_header_of(block, "a", "bin", size) for size in (0, 8**11 - 1, 8**11)] == [True, False, True]
    assert not is_header_of(bytes(BLOCK), "a", "bin", 0)
