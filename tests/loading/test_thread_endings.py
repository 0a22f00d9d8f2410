"""How threads begin and end: errors, breaks, samples that hang, forks, and the end of the script."""

from __future__ import annotations

import gc
import threading
from contextlib import suppress

import pytest

import samplerkit as sk
from samplerkit.loading.background import start_thread
from tests.jobs import ended
from tests.load_free_timer import LoadFreeTimer
from tests.loading.numbers import Numbers, ids_of, numbers_loader
from tests.loading.test_loader_workers import stuck_loader
from tests.loading.worker_kinds import THREADS
from tests.waiting import threads_of_loaders, wait_until


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


class LeftByHandlerError(Exception):
    """What the handler of a signal raises."""


@pytest.mark.parametrize("options", [{"num_workers": 2, "workers": "threads"}, {"device": "cpu"}], ids=str)
def test_an_error_of_a_signal_handler_while_a_thread_starts_is_raised_unchanged(options, monkeypatch):
    start = getattr(threading, START)

    def interrupted(target, *arguments, **named):
        start(target, *arguments, **named)
        target.__self__._started.wait()  # from then on the thread is not among the starting ones
        raise LeftByHandlerError

    with sk.Loader(range(8), sk.SequentialSampler(), batch_size=2, **options) as loader:
        with monkeypatch.context() as patch:
            patch.setattr(threading, START, interrupted)
            with pytest.raises(LeftByHandlerError):
                next(iter(loader))
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_a_thread_that_cannot_be_started_is_an_error_whatever_is_being_handled(monkeypatch):
    def refused(*_, **__):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, START, refused)
    for handled in (None, OSError("before")):
        with suppress(OSError):
            try:
                if handled is not None:
                    raise handled
            finally:
                with pytest.raises(RuntimeError, match="can't start"):
                    start_thread(threading.Thread())
