"""Threads as workers: they read at the same time, in order; a dataset is told once for all."""

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
from tests.loading.worker_kinds import THREADS, beside
from tests.numbers import Made
from tests.storage.crowd import all_done
from tests.waiting import begun_since, wait_until


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
class Told:
    """What a dataset was told, and whether it was read meanwhile."""

    epochs: list[int]
    expected: list[list[int]]
    broken: list[str]


class Telling:
    """Knows what it was told; while it is told an epoch, nobody may read."""

    def __init__(self, while_read=lambda: time.sleep(0.002)):
        self.told = Told([], [], [])
        self.while_read = while_read
        self._lock = threading.Lock()
        self._reading = 0

    def __len__(self):
        return 12

    def set_epoch(self, epoch):
        with self._lock:
            self.told.broken += ["read while an epoch began"] if self._reading else []
        self.told.epochs.append(epoch)

    def expect(self, upcoming):
        self.told.expected.append([index for ids in upcoming for index in ids.tolist()])

    def __getitems__(self, ids):
        epoch = self.told.epochs[-1]
        with self._lock:
            self._reading += 1
        self.while_read()
        with self._lock:
            self._reading -= 1
            self.told.broken += [] if self.told.epochs[-1] == epoch else ["an epoch began while it was read"]
        return [(index, epoch) for index in ids.tolist()]


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"run_ahead": True}], ids=str)
def test_a_dataset_is_told_once_for_all_threads_and_never_while_it_is_read(options):
    dataset, sampler, options = Telling(), sk.RandomSampler(seed=5), {**beside("3 threads"), **options}
    with sk.Loader(dataset, sampler, batch_size=1, collate_fn=list, **options) as loader:
        for epoch in range(4):
            expected = [(index, epoch) for index in sampler.order(12, epoch)[:].tolist()]
            assert [sample for batch in loader for sample in batch] == expected
    told = dataset.told
    assert told.broken == []
    assert told.epochs[:4] == [0, 1, 2, 3]
    assert told.expected[:4] == [sampler.order(12, epoch)[:].tolist() for epoch in range(4)]


def test_a_dataset_that_is_read_while_an_epoch_begins_would_be_noticed():
    is_told = threading.Event()
    dataset = Telling(is_told.wait)
    dataset.set_epoch(0)
    reader = threading.Thread(target=dataset.__getitems__, args=(np.arange(2),))
    reader.start()
    wait_until(lambda: dataset._reading)
    dataset.set_epoch(1)
    is_told.set()
    reader.join()
    assert dataset.told.broken == ["read while an epoch began", "an epoch began while it was read"]


def test_the_function_of_a_worker_is_called_in_each_thread_and_its_error_is_raised_in_the_loop():
    class Named(Meeting):
        def __getitem__(self, index):
            super().__getitem__(index)
            return here.number

    here = threading.local()
    options = {**THREADS, "worker_init_fn": lambda number: setattr(here, "number", number)}
    with sk.Loader(Named(8), sk.SequentialSampler(), batch_size=1, **options) as loader:
        assert {int(batch) for batch in loader} == {0, 1}

    def fails(number):
        raise OSError(f"thread {number} has no room")

    with pytest.raises(OSError, match="has no room"):
        list(numbers_loader(**{**THREADS, "worker_init_fn": fails}))


def test_batches_that_the_loop_has_not_asked_for_are_bounded():
    read = []
    noting = Made(100, lambda index: read.append(index) or index)
    loader = sk.Loader(noting, sk.SequentialSampler(), batch_size=1, prefetch_factor=3, **THREADS)
    with loader:
        for _ in loader:
            if loader.step == 5:
                time.sleep(0.1)
                assert len(read) <= 5 + 2 * 3
                break


def test_threads_that_ask_for_the_orders_of_different_epochs_at_once_get_each_its_own():
    sampler = sk.RandomSampler(seed=3)
    run = Run.of(sampler, range(8), sk.World(1, 0))

    def ask(epoch):
        wanted = sampler.undealt_order(range(8), epoch, constants=run.constants).recipe
        for _ in range(10_000):
            assert run.undealt(epoch).recipe == wanted

    all_done(lambda: ask(0), lambda: ask(1))


@pytest.fixture(autouse=True)
def _no_thread_is_left():
    before = set(threading.enumerate())
    yield
    wait_until(lambda: not begun_since(before))


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
