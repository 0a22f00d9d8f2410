"""What the driver of a device calls in which order; under adversarial schedules what the loop reads is right.

The module here only records the calls; tests/gpu runs the real one where there is a device.
"""

import contextlib
import inspect

import pytest
import torch

from samplerkit.loading.device.stage import DeviceStage
from samplerkit.loading.device.streams import DeviceStreams, Streams, current_device, streams_for
from tests.loading.device.kinds import loading_threads
from tests.loading.device.stream_simulator import Schedule
from tests.waiting import wait_until


class Module:
    """A device module by the names that cuda, xpu and npu share."""

    def __init__(self, *, takes_blocking):
        module = self
        self.calls = []
        self.current = "the loop's stream"
        self.has_passed = True

        class Event:
            def __init__(self, **options):
                if options and not takes_blocking:
                    raise TypeError("unexpected keyword argument 'blocking'")

            def record(self, stream):
                module.calls.append(("record", str(stream or module.entered)))

            def query(self):
                return module.has_passed

            def synchronize(self):
                module.calls.append(("synchronize",))

        class Stream:
            def __init__(self, device):
                self.device = device

            def __str__(self):
                return "the side stream"

            def wait_stream(self, stream):
                module.calls.append(("wait_stream", str(stream)))

        self.Event, self.Stream = Event, Stream

    def set_device(self, device):
        self.calls.append(("set_device", str(device)))

    @contextlib.contextmanager
    def stream(self, stream):
        self.calls.append(("enter", str(stream)))
        self.entered = stream
        yield
        self.calls.append(("leave", str(stream)))

    def current_stream(self, device):
        module = self

        class Current:
            def wait_event(self, event):
                module.calls.append(("wait_event",))

            def __str__(self):
                return module.current

        return Current()


class Leaf:
    def __init__(self, calls):
        self.calls = calls

    def to(self, device, non_blocking=False):
        self.calls.append(("copy", str(device), non_blocking))
        return self

    def record_stream(self, stream):
        self.calls.append(("record_stream", str(stream)))


class Hidden:
    """Holds tensors where nobody finds them."""

    def to(self, device, non_blocking=False):
        return self


@pytest.fixture
def module(request, monkeypatch):
    """The module that torch returns for a device."""
    module = Module(takes_blocking=getattr(request, "param", True))
    monkeypatch.setattr(torch, "get_device_module", lambda device: module)
    return module


@pytest.mark.parametrize("module", [True, False], ids=["as cuda", "as xpu"], indirect=True)
def test_a_batch_is_copied_on_the_side_and_the_loops_stream_waits_for_it(module):
    driver = DeviceStreams(torch.device("meta"))
    stage = DeviceStage((Leaf(module.calls) for _ in range(3)), None, depth=1, pins=False, streams=driver)
    next(stage)
    stage.close()
    sent = [("enter", "the side stream"), ("copy", "meta", True), ("record", "the side stream")]
    received = [("wait_event",), ("record_stream", "the loop's stream")]
    assert module.calls[:5] == [("set_device", "meta"), *sent, ("leave", "the side stream")]
    assert [call for call in module.calls if call in received] == received
    # Closing records the fence of the batch that the loop holds.
    assert ("record", "the loop's stream") in module.calls
    assert ("synchronize",) not in module.calls[: module.calls.index(("wait_event",))]


def test_copies_in_flight_at_the_end_of_the_source_are_waited_for(module):
    module.has_passed = False
    driver, leaves = DeviceStreams(torch.device("meta")), [Leaf(module.calls) for _ in range(3)]
    assert len(list(DeviceStage(iter(leaves), None, depth=4, pins=False, streams=driver))) == 3
    wait_until(lambda: loading_threads() == [])
    assert module.calls.count(("synchronize",)) == 3


def test_the_side_stream_waits_for_a_loader_that_works_on_the_device(module):
    module.current = "the loading thread's stream"
    driver = DeviceStreams(torch.device("meta"))
    on_device, on_host = torch.zeros(1, device="meta"), torch.zeros(1)
    with driver.side([on_host, None]):
        pass
    assert ("wait_stream", "the loading thread's stream") not in module.calls
    with driver.side([on_device, on_host]):
        pass
    assert module.calls.count(("wait_stream", "the loading thread's stream")) == 1


def test_what_the_allocator_does_not_know_of_outlives_the_loops_work_on_it_though_the_stage_is_closed(module):
    stage = DeviceStage(iter([Hidden()]), None, pins=False, streams=DeviceStreams(torch.device("meta")))
    next(stage)
    stage.close()
    assert module.calls.count(("synchronize",)) == 2  # of the copy, and of the loop's work


@pytest.mark.parametrize("name", ["cuda", "xpu"])
def test_the_names_that_the_driver_uses_are_those_of_torch(name):
    module = torch.get_device_module(name)
    for used in ("Event", "Stream", "stream", "current_stream", "set_device", "current_device"):
        assert callable(getattr(module, used))
    assert "device" in inspect.signature(module.Stream.__new__).parameters
    for used in ("wait_event", "wait_stream"):
        assert callable(getattr(module.Stream, used))
    for used in ("record", "query", "synchronize"):
        assert callable(getattr(module.Event, used))


@pytest.mark.parametrize("name", ["cpu", "cuda", "mps"])
def test_a_torch_without_torch_accelerator_finds_the_same_device(monkeypatch, name):
    device = current_device()
    assert torch.device(torch._C._get_accelerator()) == device
    monkeypatch.delattr(torch, "accelerator", raising=False)
    assert current_device() == device
    monkeypatch.setattr(torch._C, "_get_accelerator", lambda: torch.device(name))
    assert current_device() == torch.device(name)


def test_the_cpu_moves_within_the_thread():
    assert type(streams_for(torch.device("cpu"))) is Streams


SCHEDULES = 300  # each known bad design shows within 150
DEPTHS = (1, 2, 4)

KNOWN_BAD = {
    "no wait, as in the published design": {"waits": False, "records": False, "fences": False},
    "no wait, but all else": {"waits": False},
    "wait only": {"records": False, "fences": False},
    "wait and a window, but no record_stream": {"records": False},
    "keep the last four": {"records": False, "fences": False, "keeps_last": 4},
    "sources that are forgotten at once": {"forgets_sources": True},
}
"""Ways in which others go wrong, or we would."""


def outcomes(count, **options):
    return [
        (depth, Schedule(seed, depth, **options).run())
        for seed, depth in ((seed, DEPTHS[seed % len(DEPTHS)]) for seed in range(count))
    ]


def test_no_schedule_reads_invalid_memory_and_memory_is_bounded_by_the_window():
    runs = outcomes(SCHEDULES)
    assert {outcome.taken for _, outcome in runs} == {12}
    assert sum(outcome.device.wrong for _, outcome in runs) == 0
    assert sum(outcome.device.reads for _, outcome in runs) > 12_000
    for depth, outcome in runs:
        assert outcome.device.reserved <= (depth + 2) * Schedule.TENSORS
    # The bound is met: the test would see one batch more.
    for depth in DEPTHS:
        assert max(run.device.reserved for d, run in runs if d == depth) > (depth + 1) * Schedule.TENSORS


@pytest.mark.parametrize("loop_streams", [(1, 2), (1, 1, 1, 2)])
def test_a_loop_may_keep_batches_for_longer_and_change_its_stream(loop_streams):
    runs = outcomes(150, holds=True, loop_streams=loop_streams)
    assert sum(outcome.device.wrong for _, outcome in runs) == 0


def test_memory_does_not_grow_with_the_length_of_the_run():
    assert (
        max(Schedule(seed, 2, batches=100).run().device.reserved for seed in range(40))
        <= 4 * Schedule.TENSORS
    )


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_stage_that_continues_into_the_next_epoch_reads_no_invalid_memory(epoch):
    assert sum(outcome.device.wrong for _, outcome in outcomes(100, epoch=epoch)) == 0


@pytest.mark.parametrize("options", KNOWN_BAD.values(), ids=KNOWN_BAD.keys())
def test_a_known_bad_design_reads_invalid_memory(options):
    wrong = [outcome.device.wrong for _, outcome in outcomes(150, **options)]
    print(f"wrong in {sum(map(bool, wrong))} of {len(wrong)} schedules")
    assert sum(wrong) > 0
