"""Samplers with odd arguments: huge numbers, many sources, no integers; and what was given stays as it is."""

import itertools
import pickle
import time
import tracemalloc
from collections.abc import Iterable

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.order.arguments import MAX_LANES
from samplerkit.samplers import iteration


class Yielding(sk.Sampler):
    """Yields one id, in MindSpore's way."""

    def __init__(self, id):
        super().__init__()
        self.id, self.cannot_be_pickled = id, lambda: id

    def __iter__(self):
        yield self.id


def test_weights_without_an_entry_are_called_empty():
    with pytest.raises(sk.ArgumentRangeError, match="weights: must not be empty"):
        sk.WeightedRandomSampler([])


@pytest.mark.parametrize("id", [2**63, 2**70, -(2**63) - 1, -(2**70)])
def test_an_id_beyond_all_integers_is_refused_and_named(id):
    assert sk.SubsetSampler([2**63 - 1]).indices.tolist() == [2**63 - 1]
    for sampler in (sk.IterSampler([0, id]), Yielding(id)):
        with pytest.raises(sk.OutOfDatasetError, match=str(id)) as caught:
            sampler.order(5)
        assert caught.value.value == id
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)  # noqa: S301  # our own bytes


class Endless:
    """Yields ids without an end."""

    def __iter__(self):
        return itertools.repeat(0)


def test_an_iterable_without_an_end_is_refused_with_its_limit(monkeypatch):
    assert iteration.LONGEST_UNSIZED == 1 << 24  # which takes seconds; 2^28 ids took more than a minute
    monkeypatch.setattr(iteration, "LONGEST_UNSIZED", 1 << 18)
    with pytest.raises(sk.DatasetError, match="more than 262,144 ids, and has no length; use num_samples"):
        sk.IterSampler(Endless()).order(5)
    assert list(sk.IterSampler(Endless(), num_samples=3).order(5)) == [0, 0, 0]
    monkeypatch.setattr(Endless, "__iter__", lambda _: itertools.repeat(0, 1 << 18))
    assert len(sk.IterSampler(Endless()).order(5)) == 1 << 18


@pytest.mark.parametrize(
    "make",
    [
        lambda: sk.WeightedRandomSampler([1.0, 2.0], 2**62),
        lambda: sk.MixtureSampler([1, 2], 2**62, lanes=1),
        lambda: sk.RandomSampler(True, 2**62),
    ],
    ids=["weighted", "mixture", "replacement"],
)
def test_the_longest_order_is_dealt_to_its_last_position(make):
    layout = sk.Layout([5, 6])
    whole = make().order(layout)
    shard = make().order(layout, world=sk.World(3, 2))
    assert (len(whole), len(shard)) == (2**62, -(-(2**62) // 3))
    # 2^62 is one more than a multiple of three: the last row holds one position, and wraps around.
    assert shard[-1] == whole[1]
    assert shard[-2] == whole[2**62 - 2]
    with pytest.raises(sk.ArgumentRangeError, match=r"at most 2\^62"):
        sk.RandomSampler(True, 2**62 + 1).order(layout)


def test_a_plain_dataloader_over_a_recipe_is_an_error_with_a_hint():
    loader = torch.utils.data.DataLoader([0, 1], sampler=sk.RandomSampler())
    with pytest.raises(TypeError, match=r"RandomSampler: is a recipe.* give a plain DataLoader TorchSampler"):
        next(iter(loader))
    assert not isinstance(sk.RandomSampler(), Iterable)


@pytest.mark.parametrize("algorithm", ["samplerkit-1", "mindspore-2.10"])
@pytest.mark.parametrize(("shuffle", "num_samples"), [(False, 1), (True, 5), (True, 100)])
def test_a_cut_pk_sampler_takes_no_more_than_it_reads(algorithm, shuffle, num_samples):
    labels = [0, 1, 1, 2, 2, 2]

    def ids(num_val, num_samples):
        sampler = sk.PKSampler(
            num_val, shuffle=shuffle, num_samples=num_samples, labels=labels, algorithm=algorithm
        )
        return list(sampler.order(6))

    assert ids(2**61, num_samples) == ids(1000, None)[:num_samples]


def test_a_pk_sampler_of_as_many_samples_as_it_may_have_is_no_error(monkeypatch):
    monkeypatch.setattr("samplerkit.samplers.groups._MAX_SAMPLES", 6)
    assert len(sk.PKSampler(2, labels=[0, 1, 2]).order(3)) == 6
    with pytest.raises(sk.ArgumentRangeError, match="num_val: times 3 classes is more than 6 samples"):
        sk.PKSampler(3, labels=[0, 1, 2]).order(3)


def test_the_length_of_a_mixture_of_ten_thousand_sources_takes_seconds():
    sizes = list(range(10, 30)) * 500
    begin = time.process_time()
    order = sk.MixtureSampler(seed=2).order(sk.Layout(sizes))
    assert 0 < len(order) < sum(sizes)
    assert np.unique(order[-1000:]).size == min(1000, len(order))
    # One source after another took a minute for four times as many.
    assert time.process_time() - begin < 10


def test_a_nested_mixture_longer_than_any_order_is_read_up_to_the_longest_order():
    layout = sk.Layout.tree({"both": sk.Layout.tree({"many": 2**60, "few": 5})})
    inner = sk.MixtureSampler({"many": None, "few": None}, weights={"many": 1e-6, "few": 1}, stop="all")
    assert len(sk.MixtureSampler({"both": inner}, weights={"both": 1}).order(layout)) == 2**62


def test_the_inverse_of_a_source_that_is_read_too_often_is_refused():
    order = sk.MixtureSampler([1, 1], 10**12).order(sk.Layout([5, 5]))
    begin = time.process_time()
    with pytest.raises(sk.InverseTooLargeError, match="positions_of"):
        order.positions_of(3)
    assert time.process_time() - begin < 5


@pytest.mark.parametrize("mode", ["files", "infile", "partial"])
def test_more_lanes_than_samples_are_as_many_as_samples(mode):
    size, layout = 17, sk.Layout([17])
    few = sk.RandomSampler(shuffle=mode, partial_size=3, seed=1, lanes=size).order(layout)
    for lanes in (size + 1, MAX_LANES):
        peaks = []
        for _ in range(2):  # tables of the process, which double at some moment, do so in one of them
            tracemalloc.start()
            many = sk.RandomSampler(shuffle=mode, partial_size=3, seed=1, lanes=lanes).order(layout)
            assert many[:].tolist() == few[:].tolist()
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert min(peaks) < 1 << 20


GIVEN = {
    "indices of a list": lambda: sk.SubsetSampler([3, 1, 2]).indices,
    "weights of a list": lambda: sk.WeightedRandomSampler([0.5, 1, 2]).weights,
    "weights of a mixture": lambda: sk.MixtureSampler([1.0, 2.0, 3.0]).weights,
    "labels": lambda: sk.PKSampler(1, labels=np.array([0, 1, 1])).labels,
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_arrays_of_arguments_are_read_only(given):
    with pytest.raises(ValueError, match="read-only"):
        given()[0] = 5


def test_weights_may_be_arrays_and_tensors_of_one_number_each():
    assert sk.WeightedRandomSampler([np.array(0.5), torch.tensor(1.0), 2]).weights.tolist() == [0.5, 1, 2]


def test_tensors_of_numbers_are_copied_without_a_warning_and_a_limit_may_be_numpys():
    given = torch.tensor([1, 0, 1])
    samplers = sk.WeightedRandomSampler(given), sk.PKSampler(1, labels=given), sk.RepeatFactorSampler(given)
    given[:] = 7
    held = samplers[0].weights, samplers[1].labels, samplers[2].factors
    assert [one.tolist() for one in held] == [[1, 0, 1]] * 3
    assert sk.BlockSampler(windows_per_block=np.int64(4)).windows_per_block == 4
