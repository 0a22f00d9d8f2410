"""Each error of an archive has its place, the value and a hint; damage is found wherever it is."""

import errno
import gc
import gzip
import logging
import os
from collections import Counter
from contextlib import contextmanager, nullcontext
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

import samplerkit as sk
from samplerkit.storage.files.stored import CHANGED, Stored
from samplerkit.storage.open_files import AbsentError
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.format.headers import BLOCK
from samplerkit.storage.tar.index.find_or_make import Cache, make_index, unpack
from samplerkit.testing.contract import same
from tests.storage.forging import forge
from tests.storage.tar.shards import jpeg_tiles, long_names, python_sources, read_by_webdataset, write

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
    ("name", "problem", "kind"),
    [
        ("nowhere", f"cannot be read ({NOT_FOUND}", AbsentError),
        ("loop", "cannot be read (Too many levels of symbolic links)", sk.DatasetError),
        (".", "is not a regular file; give the files themselves", AbsentError),
    ],
)
def test_a_file_that_cannot_be_inspected(tmp_path, name, problem, kind):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with expect_error(f"{tmp_path}/{name}: {problem}", kind):
        Stored.of(f"{tmp_path}/{name}")


def test_errors_of_a_copy_name_its_original(tmp_path):
    """The copy was made by another process, or removed by someone while it is in use."""
    copy = tmp_path / "copy"
    storage = SimpleNamespace(fetch=lambda url: nullcontext(SimpleNamespace(path=str(copy))))
    copy.write_bytes(b"xy")
    archive = Stored("s3://b/x.tar?token=5", 1, 0, storage)
    descriptors = Path("/proc/self/fd")
    gc.collect()  # files that earlier tests left open
    before = [*descriptors.iterdir()]
    with expect_error(
        f"s3://b/x.tar: was changed while it was in use: it had 1 bytes, got '2 bytes'; {CHANGED}"
    ):
        archive.open()
    gc.collect()  # the caught error has referred to the open file
    assert [*descriptors.iterdir()] == before
    copy.unlink()
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
        for read in (Stored.of(str(path)).open, lambda: dataset[0]):
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
    with expect_error(f"{gzipped}: was changed while it was in use; {CHANGED}"):
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
    archive = Stored.of("/proc/self/mem")
    with expect_error("/proc/self/mem: cannot be read (Input/output error)", AbsentError):
        unpack(archive, Cache.of(tmp_path / "cache"))


SMALL = [(name, data) for name, data in python_sources() if len(data) < 4000]

SHARDS = {
    "ustar": (SMALL[:8], "tar ustar"),
    "pax by webdataset": (jpeg_tiles()[:6], "webdataset"),
    "gnu with long names": (long_names()[4:8], "tar gnu"),
    "pax with long names": (long_names()[4:8], "tarfile pax"),
}


def outcome(path, expected):
    """Reads a shard: an error and a counted skip, or the same samples; else the test fails."""
    stamp = {"cache": path.parent / "no-cache-is-shared" / path.name, "progress": False}
    lenient = TarDataset(path, on_error="skip", **stamp)
    samples = list(lenient)
    complete = [dict(sample, __url__=str(path)) for sample in expected]
    try:
        strict = list(TarDataset(path, **stamp))
    except sk.DatasetError as error:
        assert str(path) in str(error)  # noqa: PT017  # the test is whether there is an error
        assert "at byte" in str(error)  # noqa: PT017
        assert len(lenient.skipped) > 0
        assert all(sample in complete for sample in samples), "a sample was made up or cut"
        return "refused"
    assert len(lenient.skipped) == 0
    assert strict == samples == complete, "damage went unnoticed"
    return "changes nothing"


def headers(data):
    """Where the blocks that hold a header begin: those with the magic of tar."""
    starts = range(0, len(data), BLOCK)
    return [start for start in starts if data[start + 257 : start + 262] == b"ustar"]


@pytest.mark.parametrize("name", ["ustar", "gnu with long names", "pax with long names", "gzip"])
def test_every_truncation_is_found(tmp_path, name):
    if name == "gzip":
        original = write(tmp_path / "original.tar.gz", jpeg_tiles()[:45])
        data = original.read_bytes()
        end_mark = len(data)
    else:
        original = write(tmp_path / "original.tar", *SHARDS[name])
        data = original.read_bytes()
        end_mark = len(data.rstrip(b"\0"))
        end_mark += -end_mark % BLOCK + 2 * BLOCK
    expected = read_by_webdataset([original])
    outcomes = Counter()
    path = tmp_path / "cut.tar"
    # Steps that are no divisor of a block, so that all places in one are tried.
    for length in [*range(0, len(data), BLOCK // 2 - 1), len(data) - 8, len(data) - 1, len(data)]:
        path.write_bytes(data[:length])
        result = outcome(path, expected)
        outcomes[result] += 1
        assert result == ("refused" if length < end_mark else "changes nothing"), length
    print(f"{name}: {dict(outcomes)}")
    assert outcomes["refused"] > 20


@pytest.mark.parametrize(
    ("name", "count"),
    [
        pytest.param("ustar", 1, id="a header of ustar"),
        pytest.param("gnu with long names", 1, id="a header of gnu", marks=pytest.mark.campaign),
        # One of pax, and that of the member after it.
        pytest.param("pax by webdataset", 2, id="two headers of pax", marks=pytest.mark.campaign),
    ],
)
def test_every_flipped_bit_of_a_header_is_found(tmp_path, name, count, caplog):
    caplog.set_level(logging.CRITICAL, logger="samplerkit")  # thousands of warnings hide what CI prints
    path = write(tmp_path / "shard.tar", *SHARDS[name])
    data = path.read_bytes()
    expected = read_by_webdataset([path])
    before = indexed(path)
    assert not len(before.skipped)
    places = headers(data)[3:][:count]
    assert len(places) == count
    harmless = []
    with path.open("r+b", buffering=0) as file:
        for start in places:
            for byte, bit in product(range(BLOCK), range(8)):
                os.pwrite(file.fileno(), bytes([data[start + byte] ^ 1 << bit]), start + byte)
                after = indexed(path)
                is_reported = len(after.skipped) > 0
                # A few are also read by the dataset: above all those that the index does not report.
                if not is_reported or (start + byte * 8 + bit) % 1009 == 0:
                    assert (outcome(path, expected) == "refused") == is_reported
                if not is_reported:
                    assert same((before.fields, before.arrays), (after.fields, after.arrays))
                    harmless.append((byte, bit))
                os.pwrite(file.fileno(), data[start + byte : start + byte + 1], start + byte)
    flips = len(places) * BLOCK * 8
    print(f"{name}: {flips} flips, {len(harmless)} change nothing, all of them in the checksum's padding")
    # Only there can a bit change and the number stay: "0" and " " before it, NUL and " " after it.
    assert {byte for byte, _ in harmless} <= set(range(148, 156))
    assert {bit for _, bit in harmless} <= {4, 5}
    assert path.read_bytes() == data


def indexed(path):
    return make_index(Stored.of(str(path)), Cache(path.parent / "unused"), checksums=False)


def test_a_flip_that_no_one_notices_would_fail_the_test(tmp_path):
    path = write(tmp_path / "shard.tar", python_sources()[:4])
    expected = read_by_webdataset([path])
    data = bytearray(path.read_bytes())
    data[BLOCK] ^= 1  # in the first file's data, which only checksums guard
    path.write_bytes(data)
    with pytest.raises(AssertionError, match=r"unnoticed|made up"):
        outcome(path, expected)


def test_flips_of_data_are_found_with_checksums(tmp_path):
    path = write(tmp_path / "shard.tar", jpeg_tiles()[:6])
    data = path.read_bytes()
    dataset = TarDataset(path, checksums=True)
    samples = list(dataset)
    size = len(samples[0]["jpg"])
    status = path.stat()
    for place in range(BLOCK, BLOCK + size, 61):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
            with pytest.raises(
                sk.DatasetError, match=r"damaged data at byte 512: 'jpg' of 'photo0/tile_000'"
            ):
                dataset[0]
            assert dataset[1] == samples[1]
