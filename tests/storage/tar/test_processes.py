"""Few open files and shared shards, in threads, in forked and spawned workers, and over many epochs."""

import os
import pickle
import resource
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

import samplerkit as sk
from samplerkit.storage.open_files import Handle, Handles
from samplerkit.storage.tar.dataset import TarDataset
from tests.storage.crowd import Child, run_in_threads
from tests.storage.tar.remote_shards import EACH, LENGTHS, NUMBERS, write_shards


def test_many_shards_are_read_with_few_open_files(tmp_path):
    """Half of them with an index next to them."""
    pattern, descriptors = write_shards(tmp_path, 50), Path("/proc/self/fd")
    before = len([*descriptors.iterdir()])
    for path in sorted(tmp_path.glob("*.skidx"))[::2]:
        path.unlink()
    dataset = TarDataset(pattern, cache=tmp_path / "cache", max_handles=10, progress=False).to_tuple("cls")
    for epoch in range(2):
        order = np.random.default_rng(epoch).permutation(50 * EACH)
        assert [int(number) for (number,) in dataset.__getitems__(order)] == order.tolist()
        assert len([*descriptors.iterdir()]) - before <= 12


def test_a_cache_that_was_emptied_is_an_error_in_another_process(tmp_path):
    cache = tmp_path / "cache"
    dataset = TarDataset(write_shards(tmp_path), cache=cache).decode().to_tuple("cls")
    assert dataset[0] == (0,)
    shutil.rmtree(cache)
    problem = r"cache: has lost an index that is in use, got .*; do not change the cache while it is in use"
    with pytest.raises(sk.DatasetError, match=problem):
        pickle.loads(pickle.dumps(dataset))[0]  # noqa: S301  # our own


def test_a_fork_while_another_thread_reads_does_not_hang(tmp_path):
    dataset = TarDataset(write_shards(tmp_path), max_handles=2)
    stop = threading.Event()

    def read():
        return [int(sample["cls"]) for sample in dataset.__getitems__(NUMBERS)]

    def read_until_stopped():
        while not stop.is_set():
            read()

    thread = threading.Thread(target=read_until_stopped)
    thread.start()
    try:
        for _ in range(4):
            assert Child(read).result() == [*NUMBERS]
    finally:
        stop.set()
        thread.join(30)


def test_a_process_that_may_open_fewer_files_than_there_are_shards_reads_them_all(tmp_path):
    """Each index that is mapped holds a file open; other files of the process are open as well."""
    dataset = TarDataset(
        write_shards(tmp_path, 200), lengths=[EACH] * 200, cache=tmp_path / "cache", progress=False
    )

    def read():
        others = [os.open(__file__, os.O_RDONLY) for _ in range(300)]
        limit = len([*Path("/proc/self/fd").iterdir()]) + 160
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        ids = np.random.default_rng(0).permutation(200 * EACH)
        batches = [*np.split(ids, 30), ids]  # also a batch that is in all shards
        classes = [int(sample["cls"]) for batch in batches for sample in dataset.__getitems__(batch)]
        return classes == np.concatenate(batches).tolist(), len(dataset.keys()), len(others)

    assert Child(read).result() == (True, 200 * EACH, 300)


@pytest.mark.parametrize("max_shards", [1, 2])
def test_the_keys_of_many_shards_are_read_with_few_of_them_open(tmp_path, max_shards):
    pattern, keys = write_shards(tmp_path / "data", index=False), []
    with sk.TarDataset(pattern, lengths=LENGTHS, max_shards=max_shards, cache=tmp_path / "c") as dataset:
        run_in_threads(lambda: keys.extend(dataset.keys()))
    assert keys == [f"{number:05}" for number in NUMBERS]


@pytest.mark.parametrize("is_copy", [True, False])
def test_files_that_were_opened_first_are_closed_for_another_and_so_is_an_evicted_copy(tmp_path, is_copy):
    paths, opened = [tmp_path / str(number) for number in range(5)], []
    for path in paths:
        path.write_bytes(b"data")

    def open_file(number):
        opened.append(number)
        return Handle(os.open(paths[number], os.O_RDONLY), is_copy=is_copy)

    handles = Handles(open_file, max_open=3)
    for number in (0, 1, 2, 0):
        handles.get(number)
    for number in (3, 0, 2):
        assert os.pread(handles.get(number).descriptor, 4, 0) == b"data"
        assert len(handles._latest.items()) <= 3
    assert opened == [0, 1, 2, 3, 0]
    paths[2].unlink()
    handles.get(4)
    assert opened == [0, 1, 2, 3, 0, 4]
    assert len(handles._latest.items()) == (1 if is_copy else 2)
