"""Threads as workers: they read at the same time, in order; a dataset gets one call for all."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.loading.run.run import Run
from tests.loading.numbers import Numbers, numbers_loader
from tests.loading.worker_kinds import THREADS, with_workers
from tests.numbers import Made
from tests.storage.crowd import run_in_threads
from tests.waiting import new_threads, wait_until


class Meeting(Numbers):
    """A sample is read when another thread reads one too."""

    def __init__(self, size):
        super().__init__(size)
        self.meeting = threading.Barrier(2, timeout=60)

    def __getitem__(self, index):
        self.meeting.wait()
        return index, threading.get_ident()


def test_two_threads_read_at_the_same_time_and_the_batches_come_in_order():
    with sk.Loader(Meeting(40), sk.RandomSampler(seed=3), batch_size=4, collate_fn=list, **THREADS) as loader:
        read = [sample for batch in loader for sample in batch]
    assert [index for index, _ in read] == list(sk.RandomSampler(seed=3).order(40))
    assert Counter(Counter(thread for _, thread in read).values()) == {20: 2}


@dataclass
class Calls:
    """The calls of `set_epoch` and `expect`, and the reads that they overlapped."""

    epochs: list[int]
    expected: list[list[int]]
    broken: list[str]


class Recording:
    """Records its calls; nobody may read during a `set_epoch`."""

    def __init__(self, while_read=lambda: time.sleep(0.002)):
        self.calls = Calls([], [], [])
        self.while_read = while_read
        self._lock = threading.Lock()
        self._reading = 0

    def __len__(self):
        return 12

    def set_epoch(self, epoch):
        with self._lock:
            if self._reading:
                self.calls.broken.append("read while an epoch began")
        self.calls.epochs.append(epoch)

    def expect(self, upcoming):
        self.calls.expected.append([index for ids in upcoming for index in ids.tolist()])

    def __getitems__(self, ids):
        epoch = self.calls.epochs[-1]
        with self._lock:
            self._reading += 1
        self.while_read()
        with self._lock:
            self._reading -= 1
            if self.calls.epochs[-1] != epoch:
                self.calls.broken.append("an epoch began while it was read")
        return [(index, epoch) for index in ids.tolist()]


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"run_ahead": True}], ids=str)
def test_set_epoch_is_called_once_for_all_threads_and_never_during_a_read(options):
    dataset, sampler, options = Recording(), sk.RandomSampler(seed=5), with_workers("3 threads") | options
    with sk.Loader(dataset, sampler, batch_size=1, collate_fn=list, **options) as loader:
        for epoch in range(4):
            expected = [(index, epoch) for index in sampler.order(12, epoch)[:].tolist()]
            assert [sample for batch in loader for sample in batch] == expected
    calls = dataset.calls
    assert calls.broken == []
    assert calls.epochs[:4] == [0, 1, 2, 3]
    assert calls.expected[:4] == [sampler.order(12, epoch)[:].tolist() for epoch in range(4)]


def test_a_dataset_that_is_read_while_an_epoch_begins_would_be_noticed():
    epoch_is_set = threading.Event()
    dataset = Recording(epoch_is_set.wait)
    dataset.set_epoch(0)
    reader = threading.Thread(target=dataset.__getitems__, args=(np.arange(2),))
    reader.start()
    wait_until(lambda: dataset._reading)
    dataset.set_epoch(1)
    epoch_is_set.set()
    reader.join()
    assert dataset.calls.broken == ["read while an epoch began", "an epoch began while it was read"]


def test_the_function_of_a_worker_is_called_in_each_thread_and_its_error_is_raised_in_the_loop():
    class Named(Meeting):
        def __getitem__(self, index):
            super().__getitem__(index)
            return local.number

    local = threading.local()
    options = {**THREADS, "worker_init_fn": lambda number: setattr(local, "number", number)}
    with sk.Loader(Named(8), sk.SequentialSampler(), batch_size=1, **options) as loader:
        assert {int(batch) for batch in loader} == {0, 1}

    def fails(number):
        raise OSError(f"thread {number} has no room")

    with pytest.raises(OSError, match="has no room"):
        list(numbers_loader(**{**THREADS, "worker_init_fn": fails}))


def test_batches_ahead_of_the_loop_are_bounded():
    read = []
    dataset = Made(100, lambda index: read.append(index) or index)
    loader = sk.Loader(dataset, sk.SequentialSampler(), batch_size=1, prefetch_factor=3, **THREADS)
    with loader:
        for _ in loader:
            if loader.step == 5:
                time.sleep(0.1)
                assert len(read) <= 5 + 2 * 3
                break


def test_threads_that_request_different_epochs_at_once_each_get_their_own_order():
    sampler = sk.RandomSampler(seed=3)
    run = Run.of(sampler, range(8), sk.World(1, 0))

    def read_order(epoch):
        expected = sampler.undealt_order(range(8), epoch, constants=run.constants).recipe
        for _ in range(10_000):
            assert run.epoch(epoch).order.recipe == expected

    run_in_threads(lambda: read_order(0), lambda: read_order(1))


@pytest.fixture(autouse=True)
def _no_thread_remains():
    before = set(threading.enumerate())
    yield
    wait_until(lambda: not new_threads(before))


def test_an_epoch_that_the_dataset_refused_once_is_set_again():
    class Busy(Numbers):
        """Refuses the second epoch once."""

        epoch = -1

        def set_epoch(self, epoch):
            if epoch == 1 and not refused:
                refused.append(epoch)
                raise OSError("busy")
            self.epoch = epoch

        def __getitem__(self, index):
            return self.epoch

    refused = []
    with sk.Loader(Busy(8), batch_size=4, persistent_workers=True, **THREADS) as loader:
        assert torch.cat([*loader]).unique().tolist() == [0]
        with pytest.raises(OSError, match="busy"):
            list(loader)
        assert torch.cat([*loader]).unique().tolist() == [1]


def test_a_dataset_that_iterates_over_its_own_loader_from_a_thread_is_an_error():
    dataset = Made(8, lambda _: next(iter(loader)))
    loader = sk.Loader(dataset, sk.SequentialSampler(), batch_size=2, **THREADS)
    with loader, pytest.raises(sk.StateError, match="which a thread began that reads for it"):
        next(iter(loader))
