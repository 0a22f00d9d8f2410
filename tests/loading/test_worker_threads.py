"""Threads as workers: they read at the same time, in order, and end with their loop."""

import gc
import threading
import time
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.loading.run.run import Run
from tests.jobs import ended
from tests.loading.numbers import Numbers, ids_of, numbers_loader
from tests.loading.test_loader_workers import stuck_loader
from tests.loading.worker_kinds import THREADS, with_workers
from tests.numbers import Made
from tests.storage.crowd import run_in_threads
from tests.waiting import LoadFreeTimer, new_threads, threads_of_loaders, wait_until


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
    with loader, pytest.raises(sk.StateError, match="begun by a thread that reads for its loader"):
        next(iter(loader))


class OddError(Exception):
    """Cannot be made again from its message, as another process would have to."""

    def __init__(self, code, *, place):
        super().__init__(f"{code} at {place}")
        self.code = code


@pytest.mark.parametrize(
    "error",
    [OddError(7, place="here"), StopIteration(), SystemExit(3), KeyError("x"), KeyboardInterrupt()],
    ids=repr,
)
@pytest.mark.parametrize("by", ["threads", "threads for a device"])
def test_an_error_of_the_dataset_is_raised_unchanged_at_its_place_and_the_rest_follows(error, by):
    class Broken(Numbers):
        is_broken = True

        def __getitem__(self, index):
            if index == 17 and self.is_broken:
                assert threading.current_thread() is not threading.main_thread()
                raise error
            return index

    dataset, received = Broken(30), []
    options = {"device": "cpu"} if by.endswith("a device") else {}
    loader = sk.Loader(dataset, sk.SequentialSampler(), batch_size=2, **THREADS, **options)
    with pytest.raises(RuntimeError if isinstance(error, StopIteration) else type(error)) as caught:
        for batch in loader:
            received += batch.tolist()
    assert received == [*range(16)]
    assert error in (caught.value, caught.value.__cause__)
    state, dataset.is_broken = loader.state_dict(), False
    assert state["position"] == 16
    loader.load_state_dict(state)
    assert [index for batch in loader for index in batch.tolist()] == [*range(16, 30)]
    loader.close()
    wait_until(lambda: not threads_of_loaders())


def test_a_handler_that_closes_the_loader_while_it_waits_ends_the_wait():
    loader, received = stuck_loader(**THREADS), []
    closing = threading.Timer(0.3, loader.close)
    closing.start()
    with pytest.raises(sk.StateError, match="close"):
        for batch in loader:
            received += batch.tolist()
    assert received == [0, 1, 2, 3]
    loader.dataset.released.set()
    closing.join()


@pytest.mark.parametrize(
    "options",
    [
        {"run_ahead": True, **THREADS},
        {"persistent_workers": True, **THREADS},
        {"device": "cpu", "run_ahead": True},
    ],
)
def test_a_loader_that_is_dropped_leaves_no_thread_behind(options):
    before = set(threading.enumerate())
    loader = numbers_loader(**{"num_workers": 0, **options})
    ids_of(loader)
    assert set(threading.enumerate()) - before
    del loader
    gc.collect()
    wait_until(lambda: not set(threading.enumerate()) - before)


AT_THE_END = """
import sys, threading, time, samplerkit as sk
class Slow:
    def __len__(self): return 100
    def __getitem__(self, index):
        if index > 4:
            time.sleep(60)
        return index
options = {options}
loader = sk.Loader(Slow(), sk.SequentialSampler(), batch_size=2, num_workers=2, workers="threads", **options)
kept = iter(loader)
next(kept)
{end}
"""


@pytest.mark.parametrize(
    ("options", "end"), [({}, ""), ({"device": "cpu", "run_ahead": True}, "raise ValueError")], ids=str
)
def test_a_script_ends_though_its_threads_are_in_the_middle_of_a_sample(end, options):
    with LoadFreeTimer() as timer:
        code, _, errors = ended("-c", AT_THE_END.format(options=options, end=end), seconds=120)
    assert code == ("ValueError" in end), errors
    assert "Fatal" not in errors
    assert "ignored" not in errors
    assert timer.seconds < 20  # a sample alone takes sixty


START = "_start_joinable_thread" if hasattr(threading, "_start_joinable_thread") else "_start_new_thread"
"""The function that `Thread.start` calls, since Python 3.13 and before."""


def refused(*_, **__):
    raise RuntimeError("can't start new thread")


def test_threads_that_could_not_be_started_are_not_waited_for_by_the_next_iteration(monkeypatch):
    options = {"num_workers": 1, "workers": "threads", "persistent_workers": True}
    with sk.Loader(range(8), sk.SequentialSampler(), batch_size=4, timeout=20, **options) as loader:
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="can't start"):
            patch.setattr(threading, START, refused)
            next(iter(loader))
        assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
