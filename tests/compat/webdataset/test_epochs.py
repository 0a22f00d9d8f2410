"""The epochs of the drop-in for webdataset, counted over workers of every kind; and its states."""

import contextlib
import copy
import gc
import json
import multiprocessing
import os
import pickle
import resource
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from samplerkit.compat.webdataset import WebDataset, epochs
from tests.compat.webdataset.shards import (
    as_list,
    is_even,
    loader,
    number_of,
    numbers,
    once_each,
    received,
    write,
)

WORKERS = {
    "no workers": {},
    "new workers each epoch": {"num_workers": 3},
    "persistent workers": {"num_workers": 3, "persistent_workers": True},
}


@pytest.fixture
def dataset(tmp_path):
    return numbers(write(tmp_path, 5, 53), tmp_path).shuffle(20)


def open_files():
    """Returns the open descriptors with their paths; those of an earlier test may be closed meanwhile."""
    opened = set()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the folder itself
            opened.add((path.name, str(path.readlink())))
    return opened


@pytest.mark.parametrize("options", WORKERS.values(), ids=WORKERS.keys())
def test_epochs_are_complete_and_differ_after_an_early_break_and_repeat_by_set_epoch(dataset, options):
    batches = loader(dataset, **options)
    epochs = {0: received(batches), 1: received(batches)}
    for _ in range(2):
        for _batch in batches:
            break
    epochs[4] = received(batches)
    assert dataset.epoch == 5
    assert [Counter(epoch) for epoch in epochs.values()] == [once_each(53)] * 3
    assert epochs[0] != epochs[1] != epochs[4] != epochs[0]
    for number in (4, 0, 1):
        dataset.set_epoch(number)
        assert dataset.epoch == number
        assert received(batches) == epochs[number]


@pytest.mark.campaign
def test_spawned_workers_count_epochs(tmp_path, dataset):
    batches = loader(dataset, num_workers=2, multiprocessing_context="spawn")
    for _batch in batches:
        break
    second = received(batches)
    assert dataset.epoch == 2
    forked = numbers(f"{tmp_path}/many-*.tar", tmp_path).shuffle(20)
    forked.set_epoch(1)
    assert received(loader(forked, num_workers=2)) == second
    assert Counter(second) == once_each(53)


class WithEpoch(torch.utils.data.IterableDataset):
    """A user's dataset that sets the epoch in each worker."""

    def __init__(self, dataset, epoch):
        self.dataset, self.epoch = dataset, epoch

    def __iter__(self):
        self.dataset.set_epoch(self.epoch)
        return iter(self.dataset)


def test_each_worker_may_set_the_epoch(dataset):
    epochs = [received(loader(dataset, num_workers=3)) for _ in range(3)]
    for number in (1, 1, 0):
        read = received(loader(WithEpoch(dataset, number), num_workers=3))
        assert read == epochs[number]


def be_late(worker):
    if worker == 0:
        time.sleep(0.7)


def test_a_worker_that_starts_after_another_has_ended_begins_the_same_epoch(tmp_path):
    dataset = numbers(write(tmp_path, 2, 2), tmp_path, seed=7).shuffle(2).select(is_even)
    ended = threading.Event()

    def wait_for_ended_workers():
        while not ended.wait(0.01):
            # Reaps processes that have ended.
            multiprocessing.active_children()

    thread = threading.Thread(target=wait_for_ended_workers)
    thread.start()
    try:
        for epoch in range(1, 3):
            torch.manual_seed(0)
            assert received(loader(dataset, num_workers=3, worker_init_fn=be_late)) == [0]
            assert dataset.epoch == epoch
    finally:
        ended.set()
        thread.join()


def test_two_concurrent_loaders_of_a_dataset_read_two_epochs(dataset):
    pairs = list(zip(loader(dataset, num_workers=2), loader(dataset, num_workers=2), strict=True))
    first, second = (received(batches) for batches in zip(*pairs, strict=True))
    assert Counter(first) == Counter(second) == once_each(53)
    assert first != second


def count_in_a_process(dataset, queue):
    queue.put([list(dataset) for _ in range(2)])


def test_a_process_that_is_not_a_worker_counts_separately(dataset):
    first = list(dataset)
    processes = multiprocessing.get_context("fork")
    queue = processes.Queue()
    both = [processes.Process(target=count_in_a_process, args=(dataset, queue)) for _ in range(2)]
    for process in both:
        process.start()
    results = [queue.get(timeout=60) for _ in both]
    for process in both:
        process.join(60)
    assert results[0] == results[1], "each resumes at the epoch of its parent"
    assert results[0][0] != first != results[0][1] != results[0][0]
    assert list(dataset) == results[0][0]


@pytest.mark.parametrize("make", [copy.deepcopy, lambda dataset: pickle.loads(pickle.dumps(dataset))])  # noqa: S301  # our own
def test_a_copy_counts_separately_from_the_current_epoch_on(tmp_path, make):
    dataset = numbers(write(tmp_path, 2, 20), tmp_path).shuffle(20)
    list(dataset)
    other = make(dataset)
    assert other.epoch == 1
    assert list(other) == list(dataset)
    list(other)
    assert (other.epoch, dataset.epoch) == (3, 2)


def test_no_file_is_open_and_nothing_runs_before_an_iteration(tmp_path):
    urls = write(tmp_path, 2, 20)
    gc.collect()  # else files of earlier tests are closed in between
    before = open_files()
    datasets = [numbers(urls, tmp_path).shuffle(20).batched(4) for _ in range(5)]
    assert open_files() <= before
    for dataset in datasets:
        assert len(list(dataset)) == 5
    del datasets, dataset
    assert open_files() <= before


def test_too_many_open_files_are_an_error_and_no_epoch_is_repeated(tmp_path):
    dataset = numbers(write(tmp_path, 2, 20), tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        with pytest.raises(sk.WorkerError, match="open files"):
            iter(dataset)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sorted(received(loader(dataset, num_workers=1))) == list(range(20))
    assert dataset.epoch == 1


def test_a_worker_without_the_file_raises_an_error_and_does_not_count_separately(tmp_path, monkeypatch):
    dataset, parent, open_file = numbers(write(tmp_path, 2, 20), tmp_path), os.getpid(), epochs._nameless_file

    def fail_in_parent():
        if os.getpid() == parent:
            raise sk.WorkerError("epoch", "no file")
        return open_file()

    monkeypatch.setattr(epochs, "_nameless_file", fail_in_parent)
    with pytest.raises(sk.WorkerError, match="started this worker could open no file"):
        received(loader(dataset, num_workers=1))


@pytest.mark.parametrize(("workers", "at"), [(0, 1), (2, 5)])
@pytest.mark.parametrize("batched", [False, True])
def test_a_loader_resumes_from_its_state_and_continues_with_the_next_epoch(tmp_path, workers, at, batched):
    urls = write(tmp_path, 3, 50)

    def make():
        dataset = numbers(urls, tmp_path).shuffle(20).select(is_even)
        if batched:
            return StatefulDataLoader(dataset.batched(3, None), batch_size=None, num_workers=workers)
        return StatefulDataLoader(dataset, batch_size=3, num_workers=workers, collate_fn=as_list)

    loader, state, read = make(), None, []
    list(loader)
    for step, batch in enumerate(loader, start=1):
        read.append(batch)
        if step == at:
            state = json.dumps(loader.state_dict(), default=str)
    following = list(loader)
    assert Counter(number for batch in following for number in batch) == once_each(50) - Counter(
        range(1, 50, 2)
    )
    resumed = make()
    resumed.load_state_dict(json.loads(state))
    assert list(resumed) == read[at:]
    assert list(resumed) == following


def test_a_loaded_state_is_returned_until_something_is_read(tmp_path):
    urls = write(tmp_path, 2, 20)
    dataset, loaded = (numbers(urls, tmp_path).shuffle(20) for _ in range(2))
    items = iter(dataset)
    for _ in range(5):
        next(items)
    state = dataset.state_dict()
    list(loaded)
    loaded.load_state_dict(state)
    assert loaded.state_dict() == state
    assert list(loaded) == list(items)


def resume(state, dataset):
    dataset.load_state_dict(state)
    return iter(dataset)


def test_a_state_of_another_run_is_refused(tmp_path):
    urls = write(tmp_path, 3, 30)
    state = numbers(urls, tmp_path).shuffle(20).state_dict()
    list(resume(state, numbers(urls, tmp_path).shuffle(20)))
    write(tmp_path / "other", 3, 30)
    with sk.TarWriter(f"{tmp_path}/x-%d.tar") as writer:
        writer.write({"__key__": "a", "txt": "1"})
    cases = {
        "order": numbers(urls, tmp_path, seed=1).shuffle(20),
        "dataset": numbers(f"{tmp_path}/x-0.tar", tmp_path).shuffle(20),
        "num_shards": numbers(urls, tmp_path, world=sk.World(2, 0)).shuffle(20),
    }
    for field, dataset in cases.items():
        with pytest.raises(sk.StateError, match=field):
            resume(state, dataset)
    same = numbers(urls, tmp_path).shuffle(20)
    for wrong, text in (
        (3, "not the state"),
        ({**state, "schema": 9}, "schema"),
        ({**state, "rows": -1}, "rows"),
    ):
        with pytest.raises(sk.StateError, match=text):
            resume(wrong, same)


def test_resuming_what_cannot_be_resumed_is_an_error_with_the_reason(tmp_path):
    urls = write(tmp_path, 1, 10)
    for dataset, text in (
        (numbers(urls, tmp_path).compose(iter), r"of \.compose"),
        (numbers(urls, tmp_path).listed(3).unlisted(), r"of \.unlisted"),
        (WebDataset(f"pipe:cat {urls}", allow_commands=True).decode().map(number_of), "commands"),
    ):
        state = dataset.state_dict()
        with pytest.raises(sk.StateError, match=text):
            resume(state, dataset)
        # It can be read otherwise, also by a stateful loader.
        loader = StatefulDataLoader(dataset, batch_size=None, num_workers=1)
        assert len(list(loader)) == len(list(dataset))
