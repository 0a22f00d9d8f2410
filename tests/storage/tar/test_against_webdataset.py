"""The same shards read by webdataset's own reader: the same keys, fields and bytes, in the same order."""

from __future__ import annotations

import tarfile

import pytest

from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.format.headers import parse
from tests.storage.checks import identical
from tests.storage.tar.shards import (
    SOURCES,
    WRITERS,
    jpeg_tiles,
    python_sources,
    read_by_webdataset,
    write,
    write_by_tarfile,
)

# Ustar has room for names of 255 bytes in two parts, v7 for 100 bytes.
TOO_LONG = {(f"{writer} ustar", "long names") for writer in ("tarfile", "tar")}
TOO_LONG |= {("tar v7", source) for source in ("names in two parts", "long names")}
CASES = [
    (writer, source, ".tar") for writer in WRITERS for source in SOURCES if (writer, source) not in TOO_LONG
]
CASES += [("tar pax", "python", ".tar.gz"), ("webdataset", "jpeg", ".tgz")]


@pytest.mark.parametrize(("writer", "source", "suffix"), CASES)
def test_samples_are_the_same_to_the_byte_and_in_the_same_order(tmp_path, writer, source, suffix):
    path = write(tmp_path / f"shard{suffix}", SOURCES[source](), writer)
    dataset = TarDataset(path)
    expected = read_by_webdataset([path])
    assert len(expected) >= 12
    assert identical(list(dataset), expected)
    assert dataset.keys() == [sample["__key__"] for sample in expected]
    assert len(dataset.skipped) == 0


NAMES = [
    "plain.txt",
    "./dotted/start.txt",
    "train.v2/n01/0001.seg.png",
    "train.v2/n01/0001.JPG",
    "upper/KEY.TXT",
    "upper/KEY.Ünicode",
    "no_extension",
    "folder.d/no_extension",
    ".hidden",
    "folder/.hidden",
    "a.b/.hidden",
    "x/y/.hidden.txt",
    "ends.",
    "dots..txt",
    "space in name.txt",
    "__meta__/info.json",
    "__meta__",
    "__almost__.json",
    "__almost_/x.json",
    "deep/__meta__/x.json",
    "line\nbreak.txt",
    "back\\slash.txt",
    "double//slash.txt",
]


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_names_are_split_as_by_webdataset(tmp_path, kind):
    write_by_tarfile([(name, b"abc") for name in NAMES], tmp_path / "shard.tar", kind)
    with tarfile.open(tmp_path / "shard.tar", "a", format=kind) as archive:
        folder = tarfile.TarInfo("a_folder.d")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    expected = read_by_webdataset([tmp_path / "shard.tar"])
    assert len(expected) > 10
    assert list(TarDataset(tmp_path / "shard.tar")) == expected


def test_names_that_are_not_utf8_are_the_same(tmp_path):
    files = [(name, b"") for name in ("é/ö.txt", "é/ö.ü")]
    write_by_tarfile(files, tmp_path / "shard.tar", tarfile.GNU_FORMAT, encoding="latin-1")
    expected = read_by_webdataset([tmp_path / "shard.tar"])
    assert len(expected) == 1
    assert list(TarDataset(tmp_path / "shard.tar")) == expected


@pytest.mark.parametrize("place", range(1, 12))
def test_each_byte_of_a_size_in_base_256_counts(tmp_path, place):
    path = write(tmp_path / "shard.tar", jpeg_tiles(), "tarfile gnu")
    data = bytearray(path.read_bytes())
    data[124:136] = b"\x80" + int(data[124:135], 8).to_bytes(11, "big")
    data[124 + place] ^= 0x40
    data[148:156] = b"%06o\0 " % (sum(data[:148]) + sum(data[156:512]) + 8 * 32)
    header = bytes(data[:512])
    assert parse(header).size == tarfile.TarInfo.frombuf(header, "utf-8", "strict").size


def test_global_pax_headers_hold_for_all_members(tmp_path):
    path = tmp_path / "shard.tar"
    write_by_tarfile(python_sources(), path, tarfile.PAX_FORMAT, pax_headers={"comment": "x"})
    assert list(TarDataset(path)) == read_by_webdataset([path])
