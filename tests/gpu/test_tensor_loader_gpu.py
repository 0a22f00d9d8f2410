"""Orders as torch operations on a cuda device: numpy's ids, bit for bit, and batches that never leave it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import samplerkit as sk

if not torch.cuda.is_available():
    pytest.skip("no cuda device here: its ids are not compared with numpy's", allow_module_level=True)

DEVICE = torch.device("cuda", torch.cuda.current_device())


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
