"""A pool has as many threads as simultaneous calls; a terminal shows the progress of long work."""

import gc
import io
import itertools
import sys
import threading
import weakref

import pytest

from samplerkit.storage import threads
from samplerkit.storage.files.packages import extra
from samplerkit.storage.threads import Pool, Stop, Stopped, in_threads
from tests.storage.crowd import Child
from tests.waiting import wait_until

MOST = 4


def thread_names():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pool-of-a-test-")]


def test_idle_threads_are_reused_and_new_ones_start_only_when_all_are_busy():
    stop = Stop()
    pool = Pool(MOST, "pool-of-a-test", stop)
    try:
        for number in (1, 1, 2, 3, MOST):
            # Each call waits for all others, so each has a thread of its own at that moment.
            gate = threading.Barrier(number, timeout=60)
            assert pool.map(lambda i, _, gate=gate: (gate.wait(), i)[1], range(number)) == [*range(number)]
            wait_until(lambda: pool._idle >= len(thread_names()))  # each returns to waiting
            assert len(thread_names()) == number
        pool.map(lambda item, _: item, range(50))
        assert len(thread_names()) == MOST
    finally:
        stop.set()
        pool.end()
    assert thread_names() == []


def test_no_thread_remains_when_all_work_is_done():
    for _ in range(20):
        assert dict(in_threads(abs, range(-9, 0), MOST, "pool-of-a-test")) == {n: -n for n in range(-9, 0)}
        assert thread_names() == []


def test_items_of_closed_results_are_released_while_all_threads_are_busy():
    stop, may_end = Stop(), threading.Event()
    pool = Pool(1, "pool-that-forgets", stop)
    items = [threading.Event() for _ in range(3)]  # the first two signal that they have started
    last = weakref.ref(items[2])

    def call(item, _):
        item.set()
        if item is not first:
            may_end.wait(60)

    first, second = items[:2]
    try:
        results = pool.each(call, items)
        assert next(results) == (0, None)
        assert second.wait(60)
        results.close()
        del results, items
        gc.collect()
        assert last() is None
    finally:
        may_end.set()
        stop.set()
        pool.end()


def test_a_call_that_waits_for_a_thread_is_not_made_once_its_stop_is_set():
    stop, made = Stop(), []
    pool = Pool(1, "pool-that-stops", stop)

    def call(number, _):
        made.append(number)
        stop.set()

    with pytest.raises(Stopped):
        pool.map(call, range(3))
    pool.end()
    assert made == [0]


@pytest.mark.parametrize("sets_outer", [False, True])
def test_a_sleep_ends_when_its_stop_is_set(sets_outer):
    outer = Stop()
    stop = Stop(outer)
    other = threading.Timer(0.01, (outer if sets_outer else stop).set)
    other.start()
    with pytest.raises(Stopped):
        stop.sleep(60)
    other.join()


@pytest.mark.parametrize("seconds", [0, 60])
def test_a_sleep_after_its_stop_was_set_does_not_wait(seconds):
    stop = Stop()
    stop.sleep(0)
    stop.set()
    with pytest.raises(Stopped):
        stop.sleep(seconds)


class Terminal(io.StringIO):
    """A terminal that records its output."""

    def isatty(self):
        return True


def test_a_progress_line_is_rewritten_a_few_times_a_second_and_not_at_each_step(monkeypatch):
    terminal, clock = Terminal(), itertools.count()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(threads.time, "monotonic", lambda: next(clock) * threads.PATIENCE_SECONDS / 16)
    line = threads.TerminalLine()
    for done in range(101):
        line("counting", done, 1000)
    shown = "".join(f"\rcounting {done} of 1,000" for done in range(16, 101, 4))
    assert terminal.getvalue() == shown
    line("counting", 1000, 1000)
    assert terminal.getvalue() == shown + "\rcounting 1,000 of 1,000\n"
    for done in range(9):  # in less than a second
        line("counting", done, 8)
    assert terminal.getvalue() == shown + "\rcounting 1,000 of 1,000\n"
    monkeypatch.setattr("sys.stderr", None)  # as of a process that began without one
    line("counting", 8, 8)


def import_slow_package():
    """Imports a package of the test; a module cannot be sent."""
    return extra("slow_to_import", "slow").NAME


def test_a_child_that_is_forked_while_a_thread_imports_a_package_can_import_it(tmp_path, monkeypatch):
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(0.5)\nNAME = 'slow'")
    monkeypatch.syspath_prepend(tmp_path)
    thread = threading.Thread(target=import_slow_package)
    thread.start()
    wait_until(lambda: "slow_to_import" in sys.modules)
    assert Child(import_slow_package).result() == "slow"
    thread.join()
    del sys.modules["slow_to_import"]
