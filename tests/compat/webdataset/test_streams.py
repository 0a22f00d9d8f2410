"""Archives as streams, as commands write them: read as strictly as files."""

from __future__ import annotations

import gzip
import io
import os
import tarfile

import pytest

import samplerkit as sk
from samplerkit.compat.webdataset.commands import samples_of


def in_pieces(data, size=1000):
    return iter(data[start : start + size] for start in range(0, len(data), size))


def archive(*members, kind=tarfile.PAX_FORMAT):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=kind) as tar:
        for name, data, *type_ in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            if type_:
                member.type, member.size, member.linkname = type_[0], 0, "x"
            tar.addfile(member, io.BytesIO(data))
    return stream.getvalue()


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_stream_yields_the_same_as_a_file(tmp_path, kind, is_compressed):
    long = "folder/" * 10 if kind == tarfile.USTAR_FORMAT else "folder_é/" * 30
    members = [
        ("README", b"not a sample"),
        ("__meta__/x.txt", b"neither"),
        ("folder/", b"", tarfile.DIRTYPE),
        *(
            (f"{long}{number}.{field}", f"{number}{field}".encode() * number)
            for number in range(5)
            for field in ("TXT", "seg.png")
        ),
        ("last.cls", b"7"),
    ]
    data = archive(*members, kind=kind)
    data = gzip.compress(data) if is_compressed else data
    path = tmp_path / ("a.tar.gz" if is_compressed else "a.tar")
    path.write_bytes(data)
    expected = list(sk.TarDataset(path, cache=tmp_path))
    assert len(expected) == 6
    for size in (1000, 1 << 20):
        assert list(samples_of(in_pieces(data, size), str(path))) == expected


FLAWS = {
    "a link": (archive(("a.txt", b"1"), ("b.txt", b"", tarfile.SYMTYPE)), "link at byte 1024"),
    "a name outside the folder": (archive(("../a.txt", b"1")), "unsafe name at byte 0"),
    "a key twice": (archive(("a.txt", b"1"), ("b.txt", b"1"), ("a.cls", b"1")), "duplicate key at byte 2048"),
    "a field twice": (archive(("a.txt", b"1"), ("a.TXT", b"1")), "duplicate field at byte 1024"),
    "a reserved field": (archive(("a.__key__", b"1")), "reserved field at byte 0"),
    "a damaged gzip": (gzip.compress(archive(("a.txt", b"1" * 9000)))[:-20] + bytes(20), "damaged gzip"),
    "half a gzip": (gzip.compress(archive(("a.txt", os.urandom(9000))))[:5000], "compressed data end early"),
    "bzip2": (b"BZh91AY&SY", "bzip2, which is not supported"),
}


@pytest.mark.parametrize(("data", "text"), FLAWS.values(), ids=FLAWS.keys())
def test_a_stream_is_read_as_strictly_as_a_file(data, text):
    with pytest.raises(sk.DatasetError, match=text):
        list(samples_of(in_pieces(data), "pipe:x"))


@pytest.mark.parametrize("size", [1 << 33, 1 << 80])
def test_a_false_size_in_a_header_takes_no_memory(size):
    member = tarfile.TarInfo("a.txt")
    member.size = size
    data = member.tobuf(tarfile.GNU_FORMAT) + b"few bytes"
    with pytest.raises(sk.DatasetError, match=r"truncated at byte 0: the archive ends in 'a\.txt'"):
        list(samples_of(in_pieces(data), "pipe:x"))


def test_a_truncated_stream_is_never_a_shorter_epoch():
    data = archive(*((f"{number}.txt", b"x" * 700) for number in range(4)))[: 4 * 1536 + 1024]
    assert len(list(samples_of(in_pieces(data), "pipe:x"))) == 4
    for end in {*range(0, len(data), 37), *range(0, len(data), 512)}:
        with pytest.raises(sk.DatasetError, match="truncated"):
            list(samples_of(in_pieces(data[:end]), "pipe:x"))
