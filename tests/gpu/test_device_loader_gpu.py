"""The loaders on a cuda device: what is read is right, memory is bounded, copies run under kernels."""

import gc
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

import samplerkit as sk
from samplerkit.loading.device.loader import DeviceLoader
from samplerkit.loading.device.stage import DeviceStage
from samplerkit.loading.device.streams import DeviceStreams, streams_for

if not torch.cuda.is_available():
    pytest.skip(
        "no cuda device here: races, memory and overlap of the device loader are not tested",
        allow_module_level=True,
    )

DEVICE = torch.device("cuda", torch.cuda.current_device())
MIB = 1 << 20
BATCH = 64 * MIB
CYCLES = 20_000_000
"""Of a kernel that sleeps: some ten milliseconds, many times a copy."""


def filled(count, size=BATCH):
    """Batches of one number each."""
    return (torch.full((size // 4,), number, dtype=torch.int32) for number in range(count))


class Wrong:
    """The driver of the device, but for what a test takes from it: storages are not recorded."""

    def __init__(self, *, waits: bool) -> None:
        self._streams: Any = DeviceStreams(DEVICE)
        self._waits = waits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._streams, name)

    def copy(self, leaf: Any) -> Any:
        # As slow as a copy over a busy bus.
        torch.cuda._sleep(CYCLES // 10)
        return self._streams.copy(leaf)

    def receive(self, ready: Any, storages: Any) -> Any:
        stream = torch.cuda.current_stream(DEVICE)
        if self._waits:
            stream.wait_event(ready)
        return stream

    def record_event(self, stream: Any = None) -> Any:
        # Of the copies as it is, of the loop's work one that has passed.
        return self._streams.record_event() if stream is None else torch.cuda.Event()


def wrong_reads(batches, *, sleeps):
    """Reads each batch late, and drops its handle as soon as that is enqueued."""
    read = []
    for batch in batches:
        if sleeps:
            torch.cuda._sleep(CYCLES)
        read.append((batch.min(), batch.max()))
        del batch
    torch.cuda.synchronize()
    return sum((least.item(), most.item()) != (number, number) for number, (least, most) in enumerate(read))


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("sleeps", [False, True])
@pytest.mark.parametrize("own_stream", [False, True])
def test_every_value_is_right_however_late_it_is_read(depth, sleeps, own_stream):
    stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        assert wrong_reads(DeviceStage(filled(40), DEVICE, depth=depth), sleeps=sleeps) == 0


@pytest.mark.parametrize("waits", [False, True])
def test_without_the_wait_or_with_only_the_wait_values_are_wrong(waits):
    streams = Wrong(waits=waits)
    assert wrong_reads(DeviceStage(filled(40), DEVICE, streams=streams), sleeps=waits) > 0


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_memory_is_bounded_and_does_not_grow_over_epochs(depth):
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    host = [torch.full((BATCH // 4,), number, dtype=torch.int32).pin_memory() for number in range(3)]
    loader = DeviceLoader(list(itertools.chain.from_iterable(host for _ in range(4))), DEVICE, depth=depth)
    before = torch.cuda.memory_stats()["active_bytes.all.current"]
    torch.cuda.reset_peak_memory_stats()
    reserved = []
    for _ in range(20):
        for batch in loader:
            torch.cuda._sleep(CYCLES // 4)
            batch.sum()
        del batch
        reserved.append(torch.cuda.memory_reserved())
    peak = torch.cuda.memory_stats()["active_bytes.all.peak"] - before
    print(f"depth {depth}: {peak / BATCH:.2f} batches at the peak, {reserved[-1] / MIB:.0f} MiB reserved")
    assert peak <= (depth + 2.1) * BATCH
    assert len(set(reserved[2:])) == 1


def covered(copies, kernels):
    """Gives the share of the copies' time in which a kernel runs."""
    under = sum(
        max(0, min(end, kernel_end) - max(start, kernel_start))
        for start, end in copies
        for kernel_start, kernel_end in kernels
    )
    return under / sum(end - start for start, end in copies)


def test_copies_run_under_kernels():
    host = torch.zeros(BATCH // 4, dtype=torch.int32).pin_memory()
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        for batch in DeviceStage(iter([host] * 40), DEVICE):
            torch.cuda._sleep(CYCLES)
            batch.view(-1)[0].add_(1)
        torch.cuda.synchronize()
    events = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    times = {
        is_copy: [
            (event.time_range.start, event.time_range.end)
            for event in events
            if event.name.startswith("Memcpy HtoD") == is_copy
        ]
        for is_copy in (True, False)
    }
    first = min(start for start, _ in times[False])
    copies = [copy for copy in times[True] if copy[0] >= first]
    share = covered(copies, times[False])
    print(f"{share:.1%} of the time of {len(copies)} copies is under kernels")
    assert len(copies) >= 30
    assert share >= 0.95


def test_all_loaders_of_a_device_share_one_side_stream():
    assert streams_for(torch.device("cuda")) is streams_for(DEVICE)


def test_without_a_device_batches_go_to_this_processs_accelerator():
    (batch,) = DeviceLoader([{"x": torch.arange(3), "name": "cat"}])
    assert (batch["x"].device, batch["x"].tolist(), batch["name"]) == (DEVICE, [0, 1, 2], "cat")


def test_packed_sequences_and_tensors_already_on_the_device_arrive():
    packed = pack_sequence([torch.arange(3.0), torch.arange(2.0)])
    on_device = torch.arange(4, device=DEVICE)
    moved, same = next(DeviceStage(iter([(packed, on_device)]), DEVICE))
    assert moved.data.device == DEVICE
    assert moved.data.tolist() == packed.data.tolist()
    assert same is on_device


@pytest.mark.parametrize("pin_memory", ["auto", True, False])
def test_pinning_changes_no_value(pin_memory):
    loader = DeviceLoader(list(filled(6, MIB)), DEVICE, pin_memory=pin_memory)
    assert [batch.unique().tolist() for batch in loader] == [[number] for number in range(6)]


@pytest.mark.parametrize("size", [1, 4096, 4097, 10**6, 2**29 + 1, 2**31 - 1, 2**31, 2**40, 2**62])
def test_ids_are_bit_for_bit_those_of_numpy(size):
    order = sk.DistributedSampler(3, 1, seed=7).order(size)
    on_device = sk.order_on(order, DEVICE)
    for begin in {0, len(order) // 2, max(0, len(order) - 100_000)}:
        part = slice(begin, begin + 100_000)
        assert np.array_equal(on_device[part].cpu().numpy(), order[part])
    positions = np.random.default_rng(0).integers(0, len(order), 10_000)
    assert np.array_equal(on_device[torch.from_numpy(positions).to(DEVICE)].cpu().numpy(), order[positions])


@pytest.mark.parametrize("mode", ["global", "files", "false"])
def test_modes_lanes_and_shards_are_those_of_numpy(mode):
    order = sk.DistributedSampler(3, 2, shuffle=mode, lanes=6, seed=5).order(sk.Layout([3000, 1, 0, 4500]))
    assert np.array_equal(sk.order_on(order, DEVICE)[:].cpu().numpy(), order[:])


def test_batches_are_the_rows_of_the_order_and_are_on_the_device():
    data = {"x": torch.arange(100_003, device=DEVICE), "y": torch.rand(100_003, 4, device=DEVICE)}
    loader = sk.TensorLoader(data, sk.RandomSampler(seed=1), batch_size=1000)
    assert loader.evaluates_on == "device"
    order = sk.RandomSampler(seed=1).order(100_003)
    read = []
    for batch in loader:
        assert batch["x"].device == batch["y"].device == DEVICE
        assert torch.equal(batch["y"], data["y"][batch["x"]])
        read.append(batch["x"])
    assert torch.cat(read).tolist() == list(order)


def test_an_epoch_waits_for_the_device_a_few_times_and_not_once_a_batch():
    data = torch.arange(1 << 20, device=DEVICE)
    loader = sk.TensorLoader(data, sk.RandomSampler(seed=1), batch_size=256)
    assert loader.evaluates_on == "device"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        steps = sum(1 for _ in loader)
    waits = sum(event.count for event in profile.key_averages() if event.key == "aten::_local_scalar_dense")
    assert steps == 4096
    assert waits < steps / 16
