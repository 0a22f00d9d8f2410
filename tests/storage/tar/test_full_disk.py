"""Writing to a small disk that is full: an error that names it, and no partial files."""

from __future__ import annotations

import random

import pytest

import samplerkit as sk
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.writer import TarWriter

DATA = random.Random(5).randbytes(300_000)
"""A tenth of a shard: 8 MiB hold two shards of ten and a part of the third one."""


def write_until_full(writer):
    for number in range(60):
        writer.write({"__key__": f"{number:02}", "bin": DATA})


def file_names(disk):
    return sorted(path.name for path in disk.iterdir())


@pytest.mark.parametrize("name", ["x-%d.tar", "x-{0..5}.tar"])
def test_a_full_disk_is_an_error_and_leaves_whole_shards_only(small_disk, name):
    writer = TarWriter(f"{small_disk}/{name}", samples_per_shard=10)
    with (
        pytest.raises(
            sk.DatasetError,
            match=rf"^{small_disk}/x-2\.tar: cannot be written \(No space left on device\); make room",
        ) as caught,
        writer,
    ):
        write_until_full(writer)
    assert caught.value.__cause__.errno == 28
    assert file_names(small_disk) == ["x-0.tar", "x-0.tar.skidx", "x-1.tar", "x-1.tar.skidx"]
    assert TarDataset(writer.paths).keys() == [f"{number:02}" for number in range(20)]


def test_an_index_without_room_leaves_a_whole_shard(small_disk):
    writer = TarWriter(f"{small_disk}/x-%d.tar")
    for number in range(400):
        writer.write({"__key__": f"{number:03}" + "k" * 90, "bin": b""})
    # Whole pages for 400 headers and the end, and nothing else.
    (small_disk / "other").write_bytes(bytes((8 << 20) - 217_088))
    with pytest.raises(
        sk.DatasetError,
        match=r"x-0\.tar\.skidx: cannot be written \(No space .*; the shard is whole: make its index by",
    ):
        writer.close()
    with pytest.raises(sk.DatasetError, match=r"x-0\.tar\.skidx: cannot be written \(No space"):
        writer.write({"__key__": "later", "bin": b""})
    assert file_names(small_disk) == ["other", "x-0.tar"]
    assert len(TarDataset(writer.paths)) == 400


def test_an_error_of_the_user_is_not_hidden_by_a_full_disk(small_disk):
    (small_disk / "other").write_bytes(bytes((8 << 20) - 4096))
    with pytest.raises(ZeroDivisionError), TarWriter(f"{small_disk}/x-%d.tar") as writer:
        writer.write({"__key__": "a", "bin": b"x" * 10})
        raise ZeroDivisionError
    assert file_names(small_disk) == ["other"]
