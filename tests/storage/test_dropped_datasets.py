"""A dataset that is dropped without `close` is freed at once: it is in no reference cycle."""

import gc
import threading
import weakref
from contextlib import suppress
from unittest.mock import patch

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.errors import SamplerkitError
from samplerkit.storage.remote.access import Span
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage
from tests.storage.files.folders import write_npz
from tests.storage.remote import faults
from tests.storage.remote.server import served
from tests.storage.tar.remote_shards import LENGTHS, PATTERN, write_shards
from tests.waiting import new_threads, wait_until


@pytest.fixture(autouse=True)
def without_collector():
    """Only reference counts free objects."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def options(tmp_path):
    return RemoteOptions(cache=tmp_path / "cache", timeout=0.5, attempts=2, retry_seconds=0.01)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    write_shards(folder)
    return folder


def require_freed(reference, before):
    """Waits until an object is freed and its threads end: without the collector a cycle stays for ever."""
    wait_until(lambda: reference() is None and not new_threads(before))


def read_one_that_is_too_large(storage, url):
    with patch("samplerkit.storage.remote.retries.MAX_BYTES", 5):
        storage.read_small(url)


READS = {
    "parts": lambda storage, url: storage.read([Span(url, number, 5) for number in range(9)]),
    "parts of no file": lambda storage, url: storage.read([Span(url, 0, 5), Span(url + "x", 0, 5)] * 3),
    "version": lambda storage, url: storage.version(url),
    "version of no file": lambda storage, url: storage.version(url + "x"),
    "no small file": lambda storage, url: storage.read_small(url + "x"),
    "small file": lambda storage, url: storage.read_small(url),
    "small file that is too large": read_one_that_is_too_large,
    "whole file": lambda storage, url: storage.fetch(url).close(),
    "no whole file": lambda storage, url: storage.fetch(url + "x"),
    "part beyond the end": lambda storage, url: storage.read([Span(url, 900, 500)]),
}


@pytest.mark.parametrize("fault", [None, faults.status(500), faults.reset_connection])
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_dropped_storage_is_freed_with_its_threads(options, read, fault):
    with served() as server:
        url = server.put("/a", bytes(1000))
        before = set(threading.enumerate())
        storage = RemoteStorage(options)
        if fault is not None:
            server.always["GET", "/a"] = server.always["VERSION", "/a"] = fault
        with suppress(SamplerkitError):
            read(storage, url)
        reference = weakref.ref(storage)
        del storage
        require_freed(reference, before)


@pytest.mark.parametrize("fetch", ["shards", "ranges"])
@pytest.mark.parametrize("missing", [False, True], ids=["all present", "all missing"])
def test_a_dropped_dataset_of_shards_is_freed_with_its_threads(tmp_path, shards, fetch, missing):
    with served(shards) as server:
        before = set(threading.enumerate())
        dataset = sk.TarDataset(
            f"{server.url}/{PATTERN}{'x' if missing else ''}",
            cache=tmp_path / "cache",
            lengths=LENGTHS,
            fetch=fetch,
            remote={"retry_seconds": 0.01, "attempts": 2},
        )
        dataset.expect(iter([np.arange(first, first + 6) for first in range(0, 96, 6)]))
        with suppress(SamplerkitError):
            dataset.__getitems__(np.arange(6))
        storage = weakref.ref(dataset._source.shards.storage)
        del dataset
        require_freed(storage, before)


@pytest.mark.parametrize("suffix", ["", "x"], ids=["all present", "all missing"])
def test_a_dropped_dataset_of_files_is_freed_with_its_threads(tmp_path, options, suffix):
    folder = tmp_path / "data"
    write_npz(folder, [4, 4, 4, 4])
    with served(folder) as server:
        before = set(threading.enumerate())
        urls = [f"{server.url}/{path.name}{suffix}" for path in sorted(folder.iterdir())]
        dataset = sk.FileDataset(urls, "npz", lengths=[4] * 4, read_ahead=2, threads=2, remote=options)
        dataset.expect(iter([np.arange(first, first + 2) for first in range(0, 16, 2)]))
        for _ in range(3):
            with suppress(SamplerkitError):
                dataset.__getitems__(np.arange(2))
        with suppress(SamplerkitError):
            dataset.shard_bytes()
        storage = weakref.ref(dataset._storage)
        del dataset
        require_freed(storage, before)
