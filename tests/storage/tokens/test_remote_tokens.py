"""Tokens at URLs, by requests for windows or from files that are fetched once, equal local ones."""

from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.errors import DatasetError
from samplerkit.order.deal import World
from tests.storage.remote.server import served
from tests.storage.tokens.test_reading import write_pair
from tests.waiting import wait_until

NAMES = ("a", "b")


@pytest.fixture(name="web")
def fixture_web(tmp_path):
    folder = tmp_path / "data"
    rng = np.random.default_rng(0)
    for name in NAMES:
        write_pair(folder / name, (rng.integers(0, 9000, length) for length in rng.integers(0, 400, 100)))
        write_pair(folder / "far" / name, [rng.integers(0, 9000, 500_000)])
    np.save(folder / "c.npy", rng.integers(0, 250, 5000).astype(np.uint8))
    with served(folder) as web:
        web.folder = folder
        yield web


def open_tokens(place, remote=None, **arguments):
    options = {"documents": "idx", "outputs": ("tokens", "cu_seqlens"), "block_len": 128, **arguments}
    return sk.TokenDataset([f"{place}/{name}" for name in NAMES], 64, seed=3, remote=remote, **options)


@pytest.mark.parametrize(("fetch", "workers"), [("ranges", 0), ("shards", 2)])
def test_urls_give_the_batches_of_local_files(web, tmp_path, fetch, workers):
    remote = {"cache": tmp_path / "cache"}
    read, stats = {}, None
    for place in (web.folder, web.url):
        with open_tokens(place, remote=remote, fetch=fetch) as data:
            loader = sk.Loader(
                data, sk.RandomSampler(seed=5), batch_size=16, num_workers=workers, world=World(1, 0)
            )
            with loader:
                read[place] = [
                    {name: value.tolist() for name, value in batch.items()}
                    for _ in range(2)
                    for batch in loader
                ]
            stats = data.stats
            assert data.is_remote == (place == web.url)
    assert read[web.folder] == read[web.url]
    assert stats.requests >= len(web.calls("GET")) > 0
    if fetch == "shards":
        counts = {name: count for (method, name), count in web.counts.items() if name.endswith(".bin")}
        assert set(counts) == {"a.bin", "b.bin"}
        assert {web.counts["GET", f"{name}.bin"] for name in NAMES} == {1}


def test_adjacent_windows_are_one_request(web):
    data = sk.TokenDataset([f"{web.url}/far/{name}" for name in NAMES], 100, phase=False)
    assert len(data) == 2 * 4999
    before = web.counts["GET", "a.bin"]
    ids = np.arange(300)
    rows = data.__getitems__(ids[::-1])
    assert web.counts["GET", "a.bin"] - before == 1
    assert np.array_equal(
        rows, sk.TokenDataset(web.folder / "far" / "a", 100, phase=False).__getitems__(ids[::-1])
    )
    before = web.counts["GET", "a.bin"]
    data.__getitems__([0, 1200, 2400, 3600])
    assert web.counts["GET", "a.bin"] - before == 4


def test_nothing_of_a_file_is_read_before_a_window_of_it_is_requested(web):
    data = sk.TokenDataset([f"{web.url}/far/{name}" for name in NAMES], 100)
    assert len(data) == 10_000
    assert web.counts["GET", "a.bin"] == 0
    # The header; then the last length with the last pointer.
    assert web.counts["GET", "a.idx"] == 2
    data.__getitems__([0])
    assert web.counts["GET", "b.bin"] == 0


def test_arrays_at_urls_are_read(web):
    near, far = (sk.TokenDataset(f"{place}/c.npy", 100, seed=1) for place in (web.folder, web.url))
    assert far.fingerprint == near.fingerprint
    assert np.array_equal(far.__getitems__(range(50)), near.__getitems__(range(50)))


def test_an_evicted_copy_frees_its_space_when_another_one_is_opened(web, tmp_path):
    for number in range(4):
        np.save(web.folder / f"{number}.npy", np.full(1000, number, np.uint16))
    remote = {"cache": tmp_path / "cache", "max_cache_bytes": (web.folder / "0.npy").stat().st_size}
    urls = [f"{web.url}/{number}.npy" for number in range(4)]
    with sk.TokenDataset(urls, 100, phase=False, remote=remote, fetch="shards") as data:
        for number, first in enumerate(np.cumsum([0, *data.layout.sizes[:-1]])):
            assert (data[int(first)] == number).all()
        held = [path.readlink() for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    assert sum(str(path).startswith(str(tmp_path)) and "(deleted)" in str(path) for path in held) == 1


@pytest.mark.parametrize("fetch", ["ranges", "shards"])
def test_a_file_that_changes_on_the_server_is_an_error(web, tmp_path, fetch):
    data = open_tokens(web.url, remote={"cache": tmp_path / "cache", "retry_seconds": 0.1}, fetch=fetch)
    assert len(data)
    path = web.folder / "a.bin"
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(DatasetError, match=r"a\.bin: was changed while it was in use"):
        data.__getitems__([0])


def test_the_next_batch_is_requested_once_while_the_current_one_is_used(web):
    data, near = (
        sk.TokenDataset([f"{place}/far/{name}" for name in NAMES], 100, seed=4)
        for place in (web.url, web.folder)
    )
    batches = np.random.default_rng(1).permutation(len(near))[:80].reshape(5, 16)
    for dataset in (data, near):
        dataset.set_epoch(3)
    assert near.expect is None

    def count_requests():
        return web.counts["GET", "a.bin"] + web.counts["GET", "b.bin"]

    assert len(data)
    counts = []
    for ids in batches:
        before = count_requests()
        data.__getitems__(ids)
        counts.append(count_requests() - before)
    assert sum(counts) > 5
    before = count_requests()
    with data:
        data.expect(iter(batches))
        for number, ids in enumerate(batches):
            assert np.array_equal(data.__getitems__(ids), near.__getitems__(ids))
            # The next batch is requested completely, before it is read.
            wait_until(lambda number=number: count_requests() - before == sum(counts[: number + 2]))
        assert count_requests() - before == sum(counts)


def test_unexpected_batches_and_those_of_another_epoch_are_read_correctly(web):
    files = [f"far/{name}" for name in NAMES]
    far, near = (
        sk.TokenDataset([f"{place}/{name}" for name in files], 100) for place in (web.url, web.folder)
    )
    rng = np.random.default_rng(2)
    with far:
        far.expect(np.arange(at, at + 8) for at in range(0, 400, 8))
        for at in range(0, 400, 8):
            ids = np.arange(at, at + 8) if at % 48 else rng.integers(0, len(near), 8)
            epochs = np.where(rng.integers(0, 2, 8) == 1, at // 100, 2)
            assert np.array_equal(far.__getitems__(ids, epochs), near.__getitems__(ids, epochs))
