"""Batches of tensors on a device are those of a `Loader`; orders as torch operations equal those of numpy."""

import numpy as np
import pytest
import torch
from hypothesis import event, given, settings
from hypothesis import strategies as st

import samplerkit as sk
from samplerkit.loading.device import order as device_order
from samplerkit.order.keys import Key
from samplerkit.order.permutation import NARROW_LIMIT, TABLE_LIMIT
from samplerkit.order.sequences import Permuted, Range
from tests.numbers import Made
from tests.testing.strategies import chains

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
    shapes = sk.TensorLoader(torch.zeros(25, 3, device="meta"), batch_size=10)
    assert ([len(batch) for batch in shapes], shapes.evaluates_on) == ([10, 10, 5], "host")
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


BORDERS = [TABLE_LIMIT, 2**16, 2**29, 2**30, NARROW_LIMIT, 2**32, 2**40]
SIZES = st.one_of(
    st.integers(1, 2**40),
    st.integers(1, 40).map(lambda bits: 2**bits),
    st.sampled_from(
        [border + around for border in BORDERS for around in (-1, 0, 1) if border + around <= 2**62]
    ),
)


@settings(deadline=None, max_examples=150)
@given(SIZES, st.integers(0, 2**64 - 1), st.integers(0, 1000), st.randoms(use_true_random=False))
def test_a_permutation_is_bit_for_bit_that_of_numpy(size, seed, epoch, random):
    order = Permuted(size, Key(seed, epoch, 0, "global"))
    positions = np.array([random.randrange(size) for _ in range(100)] + [0, size - 1])
    assert sk.order_on(order, "cpu")[torch.from_numpy(positions)].tolist() == order[positions].tolist()


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 2**40), st.slices(1000), st.integers(1, 9), st.data())
def test_each_slice_is_that_of_numpy(size, part, shards, data):
    shard = data.draw(st.integers(0, shards - 1))
    order = sk.DistributedSampler(shards, shard, seed=7).order(size)
    on_device = sk.order_on(order, "cpu")
    low = data.draw(st.integers(0, max(0, len(order) - 1000)))
    positions = range(low, min(len(order), low + 1000))[part]
    if positions and positions.step > 0:
        cut = slice(positions.start, positions.stop, positions.step)
        assert np.array_equal(on_device[cut].numpy(), order[cut])
    at = np.array(positions, dtype=np.int64)
    assert np.array_equal(on_device[torch.from_numpy(at)].numpy(), order[at])


@settings(deadline=None, max_examples=60)
@given(chains())
def test_an_order_of_any_chain_is_that_of_numpy_or_is_refused(case):
    order = case.order(0)
    try:
        on_device = sk.order_on(order, "cpu")
    except sk.NotSupportedError as refused:
        assert "which is not evaluated on a device" in str(refused)  # noqa: PT017  # it may also be given
        return
    event("on the device")
    assert np.array_equal(on_device[:].numpy(), order[:])


def test_rows_that_follow_one_another_begin_where_they_do():
    assert sk.order_on(Range(3, 4), "cpu")[:].tolist() == [3, 4, 5, 6]


def test_a_device_whose_integers_behave_otherwise_is_an_error(monkeypatch):
    """As one without words of 64 bits would be, or one whose shifts keep the sign."""
    monkeypatch.setattr(
        device_order, "shifted_", lambda values, bits, width: values.bitwise_right_shift_(bits)
    )
    for size in (10**6, 2**40):
        with pytest.raises(sk.NotSupportedError, match=r"^device: gives other ids than the host"):
            sk.order_on(sk.RandomSampler().order(size), "cpu")
