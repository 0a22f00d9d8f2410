"""Unpacked copies of gzip archives: counted, bounded, and checked against their CRC-32."""

from __future__ import annotations

import gzip
import io
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage import inflate
from samplerkit.storage.tar.codecs import Decode
from samplerkit.storage.tar.dataset import TarDataset
from tests.storage.remote.contents import bytes_held, cached_sizes, leftovers
from tests.storage.tar.shards import jpeg_tiles, python_sources, write, write_tar

SAMPLES, BYTES = 20, 10_000
SHARD = 240_000
"""More bytes than an unpacked shard of these samples takes."""


@pytest.fixture
def shards(tmp_path):
    """Six gzip archives of 20 samples of 10 kB each, and the data by key."""
    draw = random.Random(3)
    samples = {f"{number:03}": draw.randbytes(BYTES) for number in range(6 * SAMPLES)}
    each = ({"__key__": key, "bin": data} for key, data in samples.items())
    paths = []
    for path in map(Path, write_tar(tmp_path / "plain-%d.tar", each, samples_per_shard=SAMPLES, index=False)):
        paths.append(path.with_suffix(".tar.gz"))
        paths[-1].write_bytes(gzip.compress(path.read_bytes(), 1))
        path.unlink()
    return [str(path) for path in paths], samples


def copies(folder):
    return sorted((folder / "remote").glob("*.file"))


def test_a_gzip_archive_is_unpacked_once_and_a_changed_one_again(tmp_path):
    path, cache = write(tmp_path / "shard.tar.gz", jpeg_tiles()), tmp_path / "cache"
    assert len(list(TarDataset(path, cache=cache))) == 60
    (copy,) = copies(cache)
    inode = copy.stat().st_ino
    assert len(list(TarDataset(path, cache=cache))) == 60
    assert copy.stat().st_ino == inode
    write(path, python_sources())
    assert TarDataset(path, cache=cache)[0]["__key__"].startswith("email/")
    assert len(copies(cache)) == 2
    # Where space is short, the copy of the older version is evicted first.
    size = sum(each.stat().st_size for each in copies(cache))
    other = write(tmp_path / "other.tar.gz", jpeg_tiles()[:9])
    assert len(TarDataset(other, cache=cache, remote={"max_cache_bytes": size})) == 3
    assert copy not in copies(cache)
    assert len(copies(cache)) == 2


@pytest.mark.parametrize("workers", [0, 2])
def test_unpacked_copies_count_in_the_bound_of_the_cache(tmp_path, shards, workers):
    paths, samples = shards
    bound = 3 * SHARD
    dataset = TarDataset(paths, cache=tmp_path / "cache", remote={"max_cache_bytes": bound, "timeout": 60})
    loader = sk.Loader(dataset, sk.RandomSampler(seed=7), batch_size=4, num_workers=workers, collate_fn=list)

    received, most = [], 0
    for batch in loader:
        received += batch
        most = max(most, bytes_held(tmp_path / "cache" / "remote"))
    assert Counter(sample["__key__"] for sample in received) == Counter(samples.keys())
    assert all(sample["bin"] == samples[sample["__key__"]] for sample in received)
    assert SHARD // 2 < most <= bound
    assert leftovers(tmp_path / "cache" / "remote") == []


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_an_archive_that_unpacks_to_more_than_it_may_is_an_error_that_names_the_limit(tmp_path, on_error):
    path = tmp_path / "bomb.tar.gz"
    path.write_bytes(gzip.compress(bytes(10_000_000)))
    remote = {"max_unpacked_bytes": 5_000_000}
    dataset = TarDataset(path, on_error=on_error, cache=tmp_path / "cache", remote=remote)
    problem = r"bomb\.tar\.gz: unpacks to more than 5000000 bytes \(max_unpacked_bytes\).*use remote="
    with pytest.raises(sk.DatasetError, match=problem):
        len(dataset)
    assert leftovers(tmp_path / "cache" / "remote") == []
    assert cached_sizes(tmp_path / "cache" / "remote") == []


@pytest.mark.parametrize("name", ["bin.gz", "npz"])
def test_a_field_that_unpacks_to_more_than_memory_should_hold_is_an_error(monkeypatch, name):
    monkeypatch.setattr(inflate, "_FIELD_FLOOR", 1 << 20)  # the limit itself takes a second to fill
    zeros = np.zeros(2 << 20, np.uint8)
    stream = io.BytesIO()
    if name == "npz":
        np.savez_compressed(stream, a=zeros)
    else:
        stream.write(gzip.compress(zeros, 1))
    problem = f"field '{name}': unpacks to more than \\d+ bytes, 200 times .*; leave it out by only="
    with pytest.raises(sk.DatasetError, match=problem):
        Decode(())({"__key__": "a", name: stream.getvalue()})
