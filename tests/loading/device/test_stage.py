"""The stage by itself: order, run-ahead, errors, ends, and its figures."""

import gc
import threading
import time
import traceback
import weakref

import pytest
import torch

import samplerkit as sk
from samplerkit.loading import background
from samplerkit.loading.device.stage import DeviceStage, EpochEnd
from samplerkit.loading.stats import DeviceStats, StageCounts
from tests.loading.device.kinds import loading_threads
from tests.waiting import LoadFreeTimer, wait_until


def staged(source, **options):
    return DeviceStage(iter(source), torch.device("cpu"), **options)


class Source:
    """Counts what is pulled from it; may raise at one place."""

    def __init__(self, size=10, *, raises_at=None, error=None):
        self.size, self.raises_at, self.error = size, raises_at, error
        self.pulled = 0
        self.closed_in = None

    def __iter__(self):
        return self

    def __next__(self):
        if self.pulled == self.raises_at:
            raise self.error
        if self.pulled == self.size:
            raise StopIteration
        self.pulled += 1
        return torch.tensor(self.pulled - 1)

    def close(self):
        self.closed_in = threading.current_thread().name


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_exactly_depth_batches_are_loaded_ahead(depth):
    source = Source(100)
    stage = staged(source, depth=depth)
    for taken in range(1, 20):
        next(stage)
        wait_until(lambda: source.pulled >= taken + depth)  # noqa: B023  # called at once
        time.sleep(0.002)
        assert source.pulled == taken + depth
    stage.close()
    assert source.closed_in.startswith("samplerkit-device")


@pytest.mark.parametrize("position", [0, 1, 2, 3, 7, 10])
@pytest.mark.parametrize("error", [OSError("damaged"), KeyError(3), SystemExit(4), KeyboardInterrupt()])
def test_an_error_is_raised_after_all_batches_before_it(position, error):
    stage = staged(Source(raises_at=position, error=error))
    received = []
    with pytest.raises(type(error)) as caught:
        received.extend(batch.item() for batch in stage)
    assert caught.value is error
    assert received == list(range(position))
    assert "self.error" in "".join(traceback.format_exception(caught.value))
    assert list(stage) == []
    assert loading_threads() == []


@pytest.mark.parametrize(
    ("error", "raised"), [(OSError("no room"), OSError), (StopIteration(), RuntimeError)]
)
def test_an_error_of_the_move_is_raised_at_its_position_and_never_ends_the_loop_silently(error, raised):
    class Immovable:
        def to(self, device, non_blocking=False):
            raise error

    stage = staged([torch.zeros(1), Immovable()])
    next(stage)
    with pytest.raises(raised, match=r"no room|StopIteration"):
        next(stage)


def test_close_wakes_a_waiting_loop_and_returns_whether_the_loading_thread_ended():
    loads, may_continue, raised = threading.Event(), threading.Event(), []

    def source():
        loads.set()
        may_continue.wait()
        yield 1

    stage = staged(source())

    def loop():
        try:
            next(stage)
        except sk.StateError as error:
            raised.append(error)

    waiting = threading.Thread(target=loop)
    waiting.start()
    assert loads.wait(20)
    stage.close(0.01)
    waiting.join(10)
    assert not stage.close(0.01)
    assert [str(error) for error in raised] == [
        "state: iteration: was ended by a newer one or by close(); make a loader for each loop"
    ]
    may_continue.set()
    assert stage.close(10)


@pytest.mark.parametrize("in_cycle", [False, True])
def test_a_stage_that_becomes_garbage_ends_its_thread(in_cycle):
    stage = staged(Source(100))
    next(stage)
    assert len(loading_threads()) == 1
    if in_cycle:
        stage.itself = stage
    seen = weakref.ref(stage)
    del stage
    gc.collect()
    assert seen() is None
    wait_until(lambda: loading_threads() == [])


def test_the_exit_of_python_ends_a_thread_that_waits_for_the_loop_at_once():
    stage = staged(Source(100))
    next(stage)
    with LoadFreeTimer() as timer:
        background.end_together(background._RUNNING)
    assert timer.seconds < background.LAST_BATCH_SECONDS
    assert loading_threads() == []


def test_stats_hold_waits_loads_and_copies():
    end = EpochEnd()

    def source():
        for _ in range(4):
            time.sleep(0.02)
            yield torch.zeros(1)
        yield end
        yield torch.zeros(1)

    counts = StageCounts()
    stage = staged(source(), counts=counts)
    for _ in range(4):
        next(stage)
    stats = counts.stats
    assert stats.batches == 4
    assert stats.load_seconds >= 0.08
    assert 0 < stats.copy_seconds < stats.load_seconds
    assert stats.first_wait >= 0.02
    assert stats.total_wait >= stats.first_wait + stats.longest_wait
    assert stats.total_wait < 60
    assert 0 <= stats.cpu_share < 0.9
    assert StageCounts().stats.cpu_share == 0
    assert next(stage) is end
    assert counts.stats == stats
    counts.stats = DeviceStats()
    counts.add(wait=0, load=4, load_cpu=1, copy=0)
    assert counts.stats.cpu_share == 0.25
    counts.stats = DeviceStats()
    next(stage)
    assert counts.stats.batches == 1
