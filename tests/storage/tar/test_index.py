"""The index: where it is kept, when it is used, what it costs, and that an old one is never used."""

from __future__ import annotations

import gzip
import os
import pickle
from pathlib import Path

import pytest

import samplerkit as sk
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.index import finding as index_module
from tests.storage.tar.shards import jpeg_tiles, python_sources, write


@pytest.fixture
def scanned(monkeypatch):
    """The names of the archives that are scanned, in order."""
    names = []
    scan = index_module.scan

    def record(descriptor, archive, size):
        names.append(Path(archive).name)
        return scan(descriptor, archive, size)

    monkeypatch.setattr(index_module, "scan", record)
    return names


def write_two(tmp_path):
    paths = [tmp_path / "data" / name for name in ("one.tar", "two.tar")]
    paths[0].parent.mkdir(exist_ok=True)
    write(paths[0], jpeg_tiles())
    write(paths[1], python_sources())
    return paths


def file_names(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_an_index_is_made_once_and_never_among_the_data(tmp_path, cache_home, scanned, monkeypatch):
    paths = write_two(tmp_path)
    first = list(TarDataset(paths))
    assert sorted(scanned) == ["one.tar", "two.tar"]
    assert list(TarDataset(paths)) == first
    assert list(TarDataset(paths[::-1]).in_order([0])) == [first[60]]
    monkeypatch.chdir(tmp_path / "data")
    assert len(TarDataset("one.tar")) == 60  # the same archive by another name
    assert sorted(scanned) == ["one.tar", "two.tar"]
    assert file_names(tmp_path / "data") == ["one.tar", "two.tar"]
    assert len(file_names(cache_home)) > 2
    len(TarDataset(paths, cache=tmp_path / "own"))
    assert sorted(scanned) == sorted(["one.tar", "two.tar"] * 2)
    assert len(file_names(tmp_path / "own")) > 2


def test_an_archive_that_was_written_again_is_indexed_again(tmp_path, cache_home, scanned):
    paths = write_two(tmp_path)
    before = TarDataset(paths)
    fingerprint = before.fingerprint
    write(paths[1], python_sources()[:-2])
    after = TarDataset(paths)
    assert len(after) == len(before) - 1
    assert after.fingerprint != fingerprint
    assert sorted(scanned) == ["one.tar", "two.tar", "two.tar"]
    samples = list(after)
    assert len(list(cache_home.rglob("*.catalogue"))) == 1, "old ones pile up"
    os.utime(paths[0], ns=(0, 12345))
    assert list(TarDataset(paths)) == samples
    assert scanned[3:] == ["one.tar"]


def test_a_cache_that_cannot_be_written_to_leaves_the_index_in_memory(tmp_path):
    paths = write_two(tmp_path)
    samples = list(TarDataset(paths))
    (tmp_path / "file").write_text("no folder")
    dataset = TarDataset(paths, cache=tmp_path / "file")
    assert list(dataset) == samples
    assert list(pickle.loads(pickle.dumps(dataset))) == samples  # noqa: S301  # our own


def test_the_fingerprint_depends_on_the_samples_and_not_on_the_path(tmp_path):
    (tmp_path / "sub").mkdir()
    write(tmp_path / "sub" / "one.tar", jpeg_tiles(), "tarfile gnu")
    ours = TarDataset(write(tmp_path / "sub" / "two.tar", jpeg_tiles(), "tar pax")).fingerprint
    assert TarDataset(tmp_path / "sub" / "one.tar").fingerprint == ours
    assert TarDataset(write(tmp_path / "sub" / "two.tar.gz", jpeg_tiles())).fingerprint == ours
    changed = [*jpeg_tiles()]
    changed[1] = (changed[1][0], b"7")
    path = write(tmp_path / "sub" / "three.tar", changed)
    assert TarDataset(path).fingerprint == ours
    checked = [TarDataset(one, checksums=True).fingerprint for one in (path, tmp_path / "sub" / "one.tar")]
    assert len({ours, *checked}) == 3


def test_offsets_beyond_4_gib_are_right(tmp_path):
    path = tmp_path / "big.tar"
    one = write(
        tmp_path / "one.tar", [("a.bin", b"x" * 100), ("a.cls", b"1"), ("b.cls", b"2")], "tarfile gnu"
    )
    data = bytearray(one.read_bytes())
    hole = 5 << 30
    data[124:136] = b"%011o\0" % hole
    data[148:156] = b"%06o\0 " % (sum(data[:148]) + sum(data[156:512]) + 8 * 32)
    with path.open("wb") as file:
        file.write(data[:512])
        file.seek(512 + hole)  # a hole: the file system keeps no 5 GiB
        file.write(data[1024:])
    dataset = TarDataset(path)
    assert dataset.keys() == ["a", "b"]
    assert dataset[1]["cls"] == b"2"
    assert int(dataset._source.contents.arrays["size"][0]) == hole


CHANGED = "was changed while it was in use"
CHANGES = {
    "longer": (lambda size: size + 512, {}, CHANGED),
    "shorter": (lambda size: size - 512, {}, CHANGED),
    "written again": (lambda size: size, {}, CHANGED),
    "cut": (lambda size: size // 2, {"checksums": True}, r"became shorter than \d+ bytes while it was read"),
}


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
@pytest.mark.parametrize("change", CHANGES)
def test_an_archive_that_changes_while_its_index_is_made_is_an_error(tmp_path, monkeypatch, name, change):
    size_after, options, problem = CHANGES[change]
    path = write(tmp_path / "plain.tar", jpeg_tiles()).rename(tmp_path / name)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    scan = index_module.scan

    def scan_and_change(descriptor, archive, size):
        members = scan(descriptor, archive, size)
        with Path(f"/proc/self/fd/{descriptor}").resolve().open("r+b") as file:  # a gzip archive's copy
            file.truncate(size_after(size))
            os.utime(file.fileno(), ns=(1, 1))
        return members

    monkeypatch.setattr(index_module, "scan", scan_and_change)
    dataset = TarDataset(path, cache=tmp_path / "cache", **options)
    if name.endswith(".gz") and change == "written again":
        assert len(dataset) > 0  # of a copy, which belongs to its cache, only the size is compared
        return
    with pytest.raises(sk.DatasetError, match=problem):
        len(dataset)
