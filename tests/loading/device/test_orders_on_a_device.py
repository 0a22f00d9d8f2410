"""Orders as torch operations give the ids that numpy gives, and nothing else."""

from contextlib import suppress

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
from tests.testing.strategies import chains

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
    key = Key(seed, epoch, 0, "global")
    positions = np.array([random.randrange(size) for _ in range(100)] + [0, size - 1])
    permutation = device_order.permutation_on(torch.device("cpu"), size, key)
    assert permutation(torch.from_numpy(positions)).tolist() == Permuted(size, key).ids_at(positions).tolist()


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
    with suppress(sk.NotSupportedError):
        on_device = sk.order_on(order, "cpu")
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


def test_a_device_without_numbers_is_named_and_holds_rows_all_the_same():
    with pytest.raises(sk.NotSupportedError, match="device: holds no numbers"):
        sk.order_on(sk.RandomSampler().order(10), "meta")
    rows = sk.TensorLoader(torch.empty(10, 3, device="meta"), sk.RandomSampler(), batch_size=5)
    assert [batch.shape for batch in rows] == [(5, 3), (5, 3)]
