"""How members of an archive are found and named, compared with webdataset."""

import os
import tarfile
import threading

import braceexpand
import pytest

import samplerkit as sk
from samplerkit.storage import names
from samplerkit.storage.names import expand_braces
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.format.headers import BLOCK, parse
from samplerkit.storage.tar.format.samples import is_header_of
from samplerkit.storage.tar.format.scan import DENSE_WINDOW, SPARSE_WINDOW, scan
from samplerkit.storage.tar.read.shards import archive_names
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


@pytest.mark.parametrize(
    "pattern",
    [
        "train-{000000..001281}.tar",
        "{0..9}.tar",
        "{08..11}.tar",
        "{9..1}.tar",
        "{0..10..2}.tar",
        "{000..010..5}-{a,b}.tar",
        "{a,b}{1..3}.tar",
        "{a,b{1..2},c}.tar",
        "{x,y}/{0..1}/{00..02}.tar",
        "{a..e}.tar",
        "{a,}.tar",
        "{train,val}-{0..1}.{tar,tgz}",
        "plain.tar",
    ],
)
def test_braces_expand_as_in_webdataset(pattern):
    assert expand_braces(pattern) == list(braceexpand.braceexpand(pattern))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in ("b-1.tar", "b-10.tar", "b-9.tar", "B-2.tar", "sub/c.tar", "b-1.tar.skidx", "odd{1}.tar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_globs_are_sorted_by_bytes_and_leave_indexes_out(folder):
    assert archive_names("[bB]-*") == ("B-2.tar", "b-1.tar", "b-10.tar", "b-9.tar")
    assert archive_names("**/*.tar")[-1] == "sub/c.tar"
    several = ["b-9.tar", folder / "b-1.tar", "b-9.tar"]
    assert archive_names(iter(several)) == ("b-9.tar", f"{folder}/b-1.tar", "b-9.tar")
    assert archive_names(f"{folder}/{{b,B}}-?.tar") == tuple(
        f"{folder}/{name}.tar" for name in ("b-1", "b-9", "B-2")
    )


@pytest.mark.usefixtures("folder")
def test_a_file_whose_name_has_braces_is_taken_as_it_is():
    assert archive_names("odd{1}.tar") == ("odd{1}.tar",)


WRONG_BRACES = dict.fromkeys(("{a..5}", "{5..a}", "{1}", "{}"), "has braces without a range or a choice")
WRONG_BRACES |= {f"{{0..{'9' * 5000}}}": "has braces without a range or a choice"}
WRONG_BRACES |= {"{0..99999999999999999999}": "more than 10000000 archives"}  # more than fit into 64 bits


@pytest.mark.parametrize("braces", WRONG_BRACES, ids=lambda braces: braces[:12])
def test_braces_without_a_choice_or_with_too_long_a_range_are_refused_at_once(braces):
    with pytest.raises(sk.ArgumentValueError, match=WRONG_BRACES[braces]):
        expand_braces(f"train-{braces}.tar")


def test_too_many_names_are_refused(monkeypatch):
    monkeypatch.setattr(names, "MAX_NAMES", 10_000)  # the limit itself takes seconds to count up to
    with pytest.raises(sk.ArgumentValueError, match="more than 10000 archives"):
        expand_braces("{0..99}{000..999}.tar")


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


def test_a_name_without_a_dot_is_none_of_a_sample_also_after_an_empty_extension(tmp_path):
    files = [("a.", b"1"), ("b", b"2"), ("c.txt", b"3"), ("folder.d/c", b"4"), ("folder.d/c.txt", b"5")]
    write_by_tarfile(files, tmp_path / "shard.tar", tarfile.USTAR_FORMAT)
    expected = read_by_webdataset([tmp_path / "shard.tar"])
    assert [sample["__key__"] for sample in expected] == ["a", "c", "folder.d/c"]
    assert list(TarDataset(tmp_path / "shard.tar")) == expected


def test_names_that_are_not_utf8_are_the_same(tmp_path):
    files = [(name, b"") for name in ("é/ö.txt", "é/ö.ü")]
    write_by_tarfile(files, tmp_path / "shard.tar", tarfile.GNU_FORMAT, encoding="latin-1")
    expected = read_by_webdataset([tmp_path / "shard.tar"])
    assert len(expected) == 1
    assert list(TarDataset(tmp_path / "shard.tar")) == expected


def test_a_first_sample_without_a_byte_is_read(tmp_path):
    path = tmp_path / "shard.tar"
    write_by_tarfile([("a.txt", b""), ("b.txt", b"x")], path, tarfile.USTAR_FORMAT)
    assert [sample["txt"] for sample in TarDataset(path).__getitems__([0])] == [b""]


def test_all_six_digits_of_a_checksum_count(tmp_path):
    name = f"{'я' * 70}/{'я' * 40}.txt"
    write_by_tarfile([(name, b"data")], tmp_path / "shard.tar", tarfile.USTAR_FORMAT)
    header = (tmp_path / "shard.tar").read_bytes()[:512]
    assert (header[148:149], parse(header).name) == (b"1", name.encode())
    assert [sample["__key__"] for sample in TarDataset(tmp_path / "shard.tar")] == [name.removesuffix(".txt")]


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
