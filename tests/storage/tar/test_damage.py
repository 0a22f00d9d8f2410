"""Damage is never silent: each truncation and each flipped bit of a header is an error or changes nothing."""

from __future__ import annotations

import logging
import os
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

import samplerkit as sk
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.format.headers import BLOCK
from samplerkit.storage.tar.index.finding import Cache, make_index
from samplerkit.storage.tar.index.index import Index
from samplerkit.testing.contract import same
from tests.storage.tar.shards import Files, jpeg_tiles, long_names, python_sources, read_by_webdataset, write

SMALL = [(name, data) for name, data in python_sources() if len(data) < 4000]

SHARDS: dict[str, tuple[Files, str]] = {
    "ustar": (SMALL[:8], "tar ustar"),
    "pax by webdataset": (jpeg_tiles()[:6], "webdataset"),
    "gnu with long names": (long_names()[4:8], "tar gnu"),
    "pax with long names": (long_names()[4:8], "tarfile pax"),
}


def outcome(path: Path, expected: list[dict]) -> str:
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


def headers(data: bytes) -> list[int]:
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


def indexed(path: Path) -> Index:
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
