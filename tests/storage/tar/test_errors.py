"""Each error of opening and reading an archive has its place, the value and a hint, word for word."""

from __future__ import annotations

import errno
import gzip
import os
from contextlib import contextmanager
from pathlib import Path

import pytest

import samplerkit as sk
from samplerkit.storage.opening import AbsentError
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.index.archive import Archive
from samplerkit.storage.tar.index.finding import Cache, unpack
from tests.storage.forging import forge
from tests.storage.tar.shards import write

NOT_FOUND = "No such file or directory); restore it, or leave it out of the dataset"

LARGE = 70_000
"""Bytes of a file that is read by itself."""


@contextmanager
def expect_error(text, kind=sk.DatasetError):
    """Expects an error of exactly this class with exactly this message."""
    with pytest.raises(sk.DatasetError) as caught:
        yield
    message = str(caught.value).partition("\nsamplerkit:")[0]
    assert (type(caught.value), message) == (kind, text)


@pytest.fixture(name="path")
def fixture_path(tmp_path):
    """Ten samples: nine small ones of two files, and a large one."""
    files = [(f"{n}.{name}", f"{n} {name}".encode()) for n in range(9) for name in ("txt", "cls")]
    return write(tmp_path / "shard.tar", [*files, ("9.bin", bytes(LARGE)), ("9.txt", b"last")])


@pytest.fixture(name="dataset")
def fixture_dataset(path, tmp_path):
    dataset = TarDataset(path, cache=tmp_path / "cache", max_handles=1)
    len(dataset)
    return dataset


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nowhere", f"cannot be read ({NOT_FOUND}"),
        ("loop", "cannot be read (Too many levels of symbolic links)"),
        (".", "is not a regular file; give the files themselves"),
    ],
)
def test_a_file_that_cannot_be_inspected(tmp_path, name, problem):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with expect_error(f"{tmp_path}/{name}: {problem}", AbsentError):
        Archive.of(f"{tmp_path}/{name}")


def test_errors_of_a_copy_name_its_original(tmp_path):
    with expect_error(f"s3://b/x.tar: cannot be read ({NOT_FOUND}", AbsentError):
        Archive.of("s3://b/x.tar", f"{tmp_path}/copy", "tag")
    (tmp_path / "copy").write_bytes(b"x")
    archive = Archive.of("s3://b/x.tar", f"{tmp_path}/copy", "tag")
    (tmp_path / "copy").write_bytes(b"xy")
    descriptors = Path("/proc/self/fd")
    before = [*descriptors.iterdir()]
    with expect_error("s3://b/x.tar: was changed while it was in use; make the dataset again"):
        archive.open()
    assert [*descriptors.iterdir()] == before
    (tmp_path / "copy").unlink()
    hint = "do not change it while it is in use, and start again"
    with expect_error(f"cache: was emptied while it was in use, got '{tmp_path}'; {hint}"):
        archive.open()


def test_an_archive_that_was_removed(path, dataset):
    path.unlink()
    with expect_error(f"{path}: cannot be opened ({NOT_FOUND}", AbsentError):
        dataset[0]


def test_a_lack_of_descriptors_is_an_error_and_no_missing_archive(path, tmp_path, monkeypatch):
    """The archive is not at fault: it is an error, also where missing archives are skipped."""
    dataset = TarDataset(path, cache=tmp_path / "cache", lengths=[10], on_error="skip")
    dataset.keys()
    dataset.close()

    def refuse(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        for read in (Archive.of(str(path)).open, lambda: dataset[0]):
            with expect_error(f"{path}: cannot be opened (Too many open files)"):
                read()
    assert dataset[0]["txt"] == b"0 txt"


@pytest.mark.parametrize(
    ("cut", "ids", "length", "start", "available"),
    [
        # A small sample is read by one call, from its first file to the end of its last one.
        pytest.param(2 * 1024 + 3, [1], 1024 + 5, 2560, 0, id="one small sample, none of it"),
        pytest.param(2560 + 900, [1], 1024 + 5, 2560, 900, id="one small sample, a part of it"),
        pytest.param(2560 + 900, [1, 2], 3072 + 5, 2560, 900, id="two neighbours"),
        # A large one is read file by file.
        pytest.param(18_944 + 60_000, [9], LARGE, 18_944, 60_000, id="one large sample"),
        pytest.param(18_944 + 60_000, [0, 9], LARGE, 18_944, 60_000, id="a small and a large sample"),
    ],
)
def test_an_archive_that_became_shorter(path, dataset, cut, ids, length, start, available):
    first = dataset[0]
    os.truncate(path, cut)
    problem = f"became shorter while in use: of {length} bytes at byte {start} it has {available}"
    with expect_error(f"{path}: {problem}; make the dataset again"):
        dataset[ids[0]] if len(ids) == 1 else dataset.__getitems__(ids)
    assert dataset[0] == first


@pytest.fixture(name="gzipped")
def fixture_gzipped(path, tmp_path):
    """A gzip archive whose index is cached."""
    gzipped = Path(f"{path}.gz")
    gzipped.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    len(TarDataset(gzipped, cache=tmp_path / "cache"))
    return gzipped


def test_an_index_of_another_unpacked_size(gzipped, tmp_path):
    (joint,) = (tmp_path / "cache").glob("*.catalogue")
    forge(joint, lambda meta, _: meta.update(unpacked=[meta["unpacked"][0] + 512]))
    dataset = TarDataset(gzipped, cache=tmp_path / "cache")
    len(dataset)
    with expect_error(f"{gzipped}: was changed while it was in use; make the dataset again"):
        dataset[0]


def test_a_gzip_archive_that_was_damaged_after_it_was_indexed(gzipped, tmp_path):
    (copy,) = (tmp_path / "cache" / "remote").glob("*.file")
    copy.unlink()
    status = gzipped.stat()
    data = bytearray(gzipped.read_bytes())
    data[-8] ^= 1  # its own checksum
    gzipped.write_bytes(data)
    os.utime(gzipped, ns=(status.st_atime_ns, status.st_mtime_ns))
    detail = "Error -3 while decompressing data: incorrect data check; the whole archive is in doubt"
    hint = "fetch or make the archive again, or use on_error='skip' to count and skip what is damaged"
    dataset = TarDataset(gzipped, cache=tmp_path / "cache")
    len(dataset)
    with expect_error(f"{gzipped}: damaged gzip at byte 0: {detail}; {hint}"):
        dataset[0]


def test_an_archive_that_cannot_be_read_while_it_is_unpacked(tmp_path):
    # The memory of a process is a file whose first bytes cannot be read.
    archive = Archive.of("/proc/self/mem")
    with expect_error("/proc/self/mem: cannot be read (Input/output error)"):
        unpack(archive, Cache.of(tmp_path / "cache"))
