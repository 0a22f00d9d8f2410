"""The cache of whole files on a small disk that is full."""

from __future__ import annotations

import os
import random

import pytest

from samplerkit.errors import DatasetError
from tests.storage.remote.contents import cached_sizes, content, leftovers

DATA = random.Random(11).randbytes(8_000_000)


def test_a_full_disk_makes_the_cache_smaller(server, storage, small_disk):
    reader = storage(cache=small_disk, max_cache_bytes=1 << 40)
    data = [DATA[number:][:3_000_000] for number in range(5)]
    for number, each in enumerate(data):
        assert content(reader.fetch(server.put(f"/{number}", each))) == each
    assert cached_sizes(small_disk) == [3_000_000] * 2
    assert leftovers(small_disk) == []


def test_a_disk_full_of_other_files_is_an_error_with_the_missing_bytes(server, storage, small_disk):
    (small_disk / "precious").write_bytes(bytes(6_000_000))
    reader = storage(cache=small_disk, max_cache_bytes=1 << 40)
    with pytest.raises(
        DatasetError,
        match=r"\(No space left on device\): \d+ of 3000000 bytes are missing.*cache=",
    ):
        reader.fetch(server.put("/a", DATA[:3_000_000]))
    assert leftovers(small_disk) == ["precious"]
    # What is smaller fits all the same, in whole and again and again.
    for number in range(5):
        assert (
            content(reader.fetch(server.put(f"/{number}", DATA[number:][:1_000_000])))
            == DATA[number:][:1_000_000]
        )


def test_a_disk_without_a_free_block_has_room_after_own_files_are_evicted(server, storage, small_disk):
    reader = storage(cache=small_disk, max_cache_bytes=1 << 40)
    reader.fetch(server.put("/a", DATA[:1_000_000])).close()
    with (small_disk / "precious").open("wb", 0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))
    assert content(reader.fetch(server.put("/b", DATA[1:1_000_001]))) == DATA[1:1_000_001]
    assert leftovers(small_disk) == ["precious"]


def test_a_disk_that_is_full_of_files_in_use_evicts_none(server, storage, small_disk):
    reader = storage(cache=small_disk, max_cache_bytes=1 << 40)
    pinned = [reader.fetch(server.put(f"/{number}", DATA[number:][:3_000_000])) for number in range(2)]
    with pytest.raises(DatasetError, match="No space left on device"):
        reader.fetch(server.put("/more", DATA[:4_000_000]))
    assert [content(each) for each in pinned] == [DATA[:3_000_000], DATA[1:3_000_001]]


def test_a_filesystem_without_fallocate_holds_a_cache(server, storage, tmp_path, monkeypatch):
    """Such a filesystem reads the existing bytes and writes them again."""
    take = os.posix_fallocate

    def as_of_nfs(descriptor, offset, size):
        os.pread(descriptor, 1, 0)
        take(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", as_of_nfs)
    assert content(storage(cache=tmp_path).fetch(server.put("/a", DATA[:100]))) == DATA[:100]


def test_without_a_limit_the_cache_uses_half_of_the_free_space(server, storage, small_disk):
    reader = storage(cache=small_disk)
    for number in range(5):
        content(reader.fetch(server.put(f"/{number}", DATA[number:][:1_500_000])))
    assert cached_sizes(small_disk) == [1_500_000] * 2
    with pytest.raises(DatasetError, match="half of the free space on its disk"):
        reader.fetch(server.put("/large", DATA[:5_000_000]))
