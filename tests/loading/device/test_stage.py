"""The stage by itself: order, run-ahead, errors, ends, and what it says of its work."""

from __future__ import annotations

import gc
import sys
import threading
import time
import traceback
import weakref

import pytest
import torch

import samplerkit as sk
from samplerkit.loading.device.producer import EPOCH_END, EpochEnd
from samplerkit.loading.device.stage import DeviceStage
from samplerkit.loading.device.streams import current_device
from tests.loading.device.threads import loading_threads
from tests.waiting import wait_until


class Source:
    """Counts what is pulled from it; raises at one place if asked to."""

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


def numbers(batches):
    return [batch.item() for batch in batches]


@pytest.mark.parametrize("depth", [1, 2, 5, 100])
@pytest.mark.parametrize("size", [0, 1, 2, 30])
def test_batches_come_in_order_and_once(size, depth):
    assert numbers(DeviceStage(Source(size), "cpu", depth=depth)) == list(range(size))


def test_the_end_stays_the_end():
    stage = DeviceStage(Source(1), "cpu")
    assert numbers(stage) == [0]
    assert [list(stage), list(stage)] == [[], []]


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_exactly_depth_batches_are_loaded_ahead(depth):
    source = Source(100)
    stage = DeviceStage(source, "cpu", depth=depth)
    for taken in range(1, 20):
        next(stage)
        wait_until(lambda: source.pulled >= taken + depth)  # noqa: B023  # called at once
        time.sleep(0.002)
        assert source.pulled == taken + depth
    stage.close()


def test_no_thread_starts_before_the_first_batch_is_wanted():
    source = Source()
    stage = DeviceStage(source, "cpu")
    assert loading_threads() == []
    assert stage.close()
    assert source.pulled == 0
    assert source.closed_in == "MainThread"


@pytest.mark.parametrize("position", [0, 1, 2, 3, 7, 10])
@pytest.mark.parametrize("error", [OSError("damaged"), KeyError(3), SystemExit(4), KeyboardInterrupt()])
def test_an_error_is_raised_after_all_batches_before_it(position, error):
    stage = DeviceStage(Source(raises_at=position, error=error), "cpu")
    received = []
    with pytest.raises(type(error)) as caught:
        received.extend(batch.item() for batch in stage)
    assert caught.value is error
    assert received == list(range(position))
    assert "__next__" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "self.error" in "".join(traceback.format_exception(caught.value))
    assert list(stage) == []
    assert loading_threads() == []


class Immovable:
    def __init__(self, error):
        self.error = error

    def to(self, device, non_blocking=False):
        raise self.error


def test_an_error_of_the_move_is_raised_at_its_position():
    stage = DeviceStage(iter([torch.zeros(1), Immovable(OSError("no room"))]), "cpu")
    next(stage)
    with pytest.raises(OSError, match="no room"):
        next(stage)


def test_a_stop_iteration_of_the_move_does_not_end_the_loop_silently():
    stage = DeviceStage(iter([Immovable(StopIteration())]), "cpu")
    with pytest.raises(RuntimeError, match="StopIteration"):
        next(stage)


def test_none_is_a_batch():
    assert list(DeviceStage(iter([None, 1, None]), "cpu")) == [None, 1, None]


def test_the_end_of_an_epoch_passes_in_order():
    end = EpochEnd("note")
    items = [1, EPOCH_END, EPOCH_END, 2, end, EPOCH_END, EPOCH_END, EPOCH_END, 3, 4]
    stage = DeviceStage(iter(items), "cpu", depth=1)
    assert list(stage) == items


def test_endless_empty_epochs_are_not_run_ahead_of_without_bound():
    pulled = 0

    def source():
        nonlocal pulled
        while True:
            pulled += 1
            yield EPOCH_END

    stage = DeviceStage(source(), "cpu", depth=2)
    for _ in range(50):
        assert next(stage) is EPOCH_END
    time.sleep(0.02)
    assert pulled <= 50 + 2 + 2
    assert stage.close()


def test_an_endless_source_is_closed_where_it_ran():
    source = Source(sys.maxsize)
    stage = DeviceStage(source, "cpu")
    assert numbers(next(stage) for _ in range(5)) == list(range(5))
    assert stage.close()
    assert source.closed_in == "samplerkit-device"
    with pytest.raises(sk.StateError, match="was ended"):
        next(stage)


def test_close_says_when_the_thread_still_loads():
    may_go_on = threading.Event()

    def source():
        yield 1
        may_go_on.wait()
        yield 2

    stage = DeviceStage(source(), "cpu")
    next(stage)
    assert not stage.close(0.01)
    may_go_on.set()
    assert stage.close(10)


def test_close_wakes_a_loop_that_waits_in_another_thread():
    may_go_on = threading.Event()

    def source():
        may_go_on.wait()
        yield 1

    stage, raised = DeviceStage(source(), "cpu"), []

    def loop():
        try:
            next(stage)
        except sk.StateError as error:
            raised.append(error)

    waiting = threading.Thread(target=loop)
    waiting.start()
    wait_until(loading_threads)
    stage.close(0.01)
    waiting.join(10)
    assert [str(error) for error in raised] == ["state: iteration: was ended by a newer one or by close()"]
    may_go_on.set()
    assert stage.close(10)


@pytest.mark.parametrize("in_cycle", [False, True])
def test_a_stage_that_becomes_garbage_ends_its_thread(in_cycle):
    stage = DeviceStage(Source(100), "cpu")
    next(stage)
    assert len(loading_threads()) == 1
    if in_cycle:
        stage.itself = stage
    seen = weakref.ref(stage)
    del stage
    gc.collect()
    assert seen() is None
    wait_until(lambda: loading_threads() == [])


def test_batches_that_were_handed_out_are_not_kept():
    stage = DeviceStage(({"x": torch.zeros(1)} for _ in range(10)), "cpu")
    seen = weakref.ref(next(stage)["x"])
    next(stage)
    wait_until(lambda: seen() is None)
    stage.close()


def test_undelivered_batches_are_dropped_by_close():
    alive = []

    def source():
        for _ in range(10):
            tensor = torch.zeros(1)
            alive.append(weakref.ref(tensor))
            yield tensor
            del tensor

    stage = DeviceStage(source(), "cpu", depth=3)
    next(stage)
    wait_until(lambda: len(alive) == 4)
    stage.close()
    assert [reference() for reference in alive] == [None] * 4


def test_figures_tell_waits_loads_and_copies():
    def source():
        for _ in range(4):
            time.sleep(0.02)
            yield torch.zeros(1)
        yield EPOCH_END
        yield torch.zeros(1)

    stage = DeviceStage(source(), "cpu")
    for _ in range(4):
        next(stage)
    stats = stage.stats
    assert stats.batches == 4
    assert stats.load_seconds >= 0.08
    assert stats.first_wait >= 0.02
    assert stats.total_wait >= stats.first_wait + stats.longest_wait
    assert stats.mean_wait == stats.total_wait / 4
    assert 0 <= stats.mean_queue_depth < 2
    assert 0 <= stats.cpu_share < 0.9
    assert next(stage) is EPOCH_END
    assert stage.stats == stats
    next(stage)
    assert stage.stats.batches == 1


BAD = {
    "no iterator": ({"source": [1]}, sk.ArgumentTypeError),
    "a depth of 0": ({"depth": 0}, sk.ArgumentRangeError),
    "a negative depth": ({"depth": -2}, sk.ArgumentRangeError),
    "a depth beyond any memory": ({"depth": 2**40}, sk.ArgumentRangeError),
    "a bool as depth": ({"depth": True}, sk.ArgumentTypeError),
    "a float as depth": ({"depth": 2.0}, sk.ArgumentTypeError),
    "an unknown word for pinning": ({"pin_memory": "always"}, sk.ArgumentValueError),
    "a number for pinning": ({"pin_memory": 1}, sk.ArgumentTypeError),
    "a number as device": ({"device": 3}, sk.ArgumentTypeError),
    "a device that torch does not know": ({"device": "gpu"}, sk.ArgumentValueError),
}


@pytest.mark.parametrize(("options", "error"), BAD.values(), ids=BAD.keys())
def test_a_bad_argument_is_refused_by_name(options, error):
    with pytest.raises(error) as caught:
        DeviceStage(**{"source": iter([1]), "device": "cpu", **options})
    assert caught.value.place == next(iter(options))


@pytest.mark.skipif(current_device().type != "cpu", reason="there is an accelerator")
@pytest.mark.parametrize("options", [{"device": "cuda"}, {"device": "xpu:1"}, {"pin_memory": True}])
def test_an_accelerator_that_is_not_there_is_refused(options):
    with pytest.raises(sk.ArgumentValueError):
        DeviceStage(**{"source": iter([1]), "device": "cpu", **options})
