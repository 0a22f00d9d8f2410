"""Batches of tensors that are on a device: the rows, the steps and the states are those of a `Loader`."""

import pytest
import torch

import samplerkit as sk
from tests.numbers import Made

ROWS = 1009
DATA = {"x": torch.arange(ROWS * 3).reshape(ROWS, 3), "id": torch.arange(ROWS)}


LISTED = Made(ROWS, lambda index: {name: rows[index] for name, rows in DATA.items()})
"""The same rows for a `Loader`."""


SAMPLERS = {
    "global": lambda: sk.RandomSampler(seed=3),
    "in storage order": lambda: None,
    "lanes": lambda: sk.RandomSampler(seed=3, lanes=4),
    "partial, from the host": lambda: sk.RandomSampler(seed=3, shuffle="partial", partial_size=50),
    "with replacement, from the host": lambda: sk.RandomSampler(replacement=True, seed=3),
    "some": lambda: sk.SubsetRandomSampler(list(range(0, ROWS, 2)), seed=1),
}


def loaders(kind, data, sampler, tail, ranks, batch_size):
    # On the cpu, numpy would be used: this is what an accelerator does.
    place = {"evaluate_on": "host" if "host" in sampler else "device"} if kind is sk.TensorLoader else {}
    options = {"batch_size": batch_size, "tail": tail, **place}
    return [kind(data, SAMPLERS[sampler](), world=sk.World(ranks, rank), **options) for rank in range(ranks)]


@pytest.mark.parametrize("tail", ["pad", "drop", "ragged"])
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("sampler", list(SAMPLERS))
def test_each_batch_and_state_is_that_of_a_loader(sampler, ranks, tail):
    pairs = zip(
        loaders(sk.TensorLoader, DATA, sampler, tail, ranks, 64),
        loaders(sk.Loader, LISTED, sampler, tail, ranks, 64),
        strict=True,
    )
    for on_device, reference in pairs:
        assert on_device.evaluates_on == ("host" if "host" in sampler else "device")
        for _ in range(2):
            for batch, expected in zip(on_device, reference, strict=True):
                assert torch.equal(batch["x"], expected["x"])
                assert batch["id"].tolist() == on_device.ids(on_device.step - 1).tolist()
                assert on_device.state_dict() == reference.state_dict()
                assert (len(on_device), on_device.remaining) == (len(reference), reference.remaining)
                on_device.set_epoch(on_device.epoch + 1)  # it waits for the end of the iteration
        assert on_device.epoch == 2


def test_the_place_where_ids_are_computed_is_given_or_chosen():
    order = {"batch_size": 10, "evaluate_on": "device"}
    partial = SAMPLERS["partial, from the host"]()
    with pytest.raises(sk.NotSupportedError, match=r"^order: holds BlockShuffle"):
        next(iter(sk.TensorLoader(DATA, partial, **order)))
    assert sk.TensorLoader(DATA, **order).evaluates_on == "device"
    assert sk.TensorLoader(DATA, batch_size=10).evaluates_on == "host"
    with pytest.raises(sk.ArgumentValueError, match=r"^evaluate_on: "):
        sk.TensorLoader(DATA, batch_size=10, evaluate_on="cuda")


def test_an_epoch_reads_few_numbers_from_the_device_and_not_one_per_batch():
    loader = sk.TensorLoader(
        torch.arange(1 << 16), sk.RandomSampler(seed=1), batch_size=64, evaluate_on="device"
    )
    assert loader.evaluates_on == "device"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        steps = sum(1 for _ in loader)
    reads = sum(event.count for event in profile.key_averages() if event.key == "aten::_local_scalar_dense")
    assert steps == 1024
    assert 0 < reads < steps / 16
