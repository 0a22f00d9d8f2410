"""The drop-in for torch's sampler against the installed torch: its orders, epochs and states."""

import copy
import itertools
import json
import pickle
import random
import weakref

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler as Torchs
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

import samplerkit as sk
from samplerkit.compat.torch import DistributedSampler
from samplerkit.compat.torch.epoch_sampler import part_of_array
from tests.benchmarks.peers.torch_rows import Sized

ALGORITHMS = ["torch", "samplerkit-1"]
CONFIGURATIONS = 2000


def configuration(drawn):
    """Draws sizes from none to a few hundred, often near a multiple of the number of ranks."""
    ranks = drawn.choice([1, 2, 3, 4, 5, 7, 8, 13, 64])
    size = drawn.choice([drawn.randrange(12), drawn.randrange(300), drawn.randrange(4) * ranks])
    return {
        "dataset": range(max(0, size + drawn.choice([-1, 0, 0, 1]))),
        "num_replicas": ranks,
        "rank": drawn.randrange(ranks),
        "shuffle": drawn.random() < 0.8,
        "seed": drawn.choice([0, drawn.randrange(1000), drawn.randrange(2**63), -drawn.randrange(2**62)]),
        "drop_last": drawn.random() < 0.5,
    }


def test_the_indices_are_torchs_for_random_configurations_and_epochs():
    drawn, shorter_than_ranks = random.Random(2026), 0
    for _ in range(CONFIGURATIONS):
        chosen = configuration(drawn)
        ours, torchs = DistributedSampler(**chosen), Torchs(**chosen)
        assert (len(ours), ours.total_size) == (len(torchs), torchs.total_size)
        for epoch in (0, drawn.randrange(1, 10**6)):
            ours.set_epoch(epoch)
            torchs.set_epoch(epoch)
            assert list(ours) == list(torchs), (chosen, epoch)
        shorter_than_ranks += len(chosen["dataset"]) < chosen["num_replicas"]
    assert shorter_than_ranks > 150


@pytest.mark.parametrize("size", [32_767, 32_768, 32_769, 100_003])
def test_the_indices_are_torchs_beyond_one_chunk(size):
    for chosen in ({"num_replicas": 3, "rank": 2, "seed": 5}, {"num_replicas": 1, "rank": 0}):
        assert list(DistributedSampler(range(size), **chosen)) == list(Torchs(range(size), **chosen))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_indices_are_plain_integers_and_no_global_randomness_is_touched(algorithm):
    before = torch.get_rng_state()
    assert {type(index) for index in DistributedSampler(range(50), 2, 0, algorithm=algorithm)} == {int}
    assert torch.get_rng_state().equal(before)


def test_attributes_are_torchs_and_may_be_changed_later():
    ours, torchs = DistributedSampler(range(10), 4, 1), Torchs(range(10), 4, 1)
    assert {name: getattr(ours, name) for name in vars(torchs)} == vars(torchs)
    for sampler in (ours, torchs):
        sampler.seed, sampler.epoch = 9, 3
    assert list(ours) == list(torchs)
    for sampler in (ours, torchs):
        sampler.shuffle = False
    assert list(ours) == list(torchs)


def test_an_iteration_made_for_another_epoch_is_not_counted():
    sampler = DistributedSampler(range(20), 2, 0)
    early = iter(sampler)
    sampler.set_epoch(1)
    state = sampler.state_dict()
    assert (next(early), sampler.epoch) == (next(iter(DistributedSampler(range(20), 2, 0))), 1)
    assert sampler.state_dict() == state
    loaded = DistributedSampler(range(20), 2, 0)
    early = iter(loaded)
    loaded.load_state_dict(state)
    next(early)
    assert loaded.state_dict() == state


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("size", [0, 2, 5, 7, 10, 13])
def test_a_dataset_of_another_length_is_read_as_by_torch_or_refused_with_a_reason(drop_last, size, shuffle):
    dataset = Sized(10 if not drop_last else 6)
    chosen = {"num_replicas": 3, "rank": 1, "drop_last": drop_last, "shuffle": shuffle}
    ours, torchs = DistributedSampler(dataset, **chosen), Torchs(dataset, **chosen)
    dataset.size = size
    try:
        expected = list(torchs)
    except (AssertionError, ZeroDivisionError):
        with pytest.raises(sk.DatasetError, match=f"another length.* got {size}"):
            list(ours)
    else:
        assert list(ours) == expected


RANK_1 = {"num_replicas": 2, "rank": 1}
BAD_ARGUMENTS = {
    "no process group": ({}, sk.ArgumentValueError, ValueError),
    "rank too large": ({"num_replicas": 2, "rank": 2}, sk.ArgumentValueError, ValueError),
    "no ranks": ({"num_replicas": 0, "rank": 0}, sk.ArgumentValueError, ValueError),
    "rank as text": ({"num_replicas": 2, "rank": "1"}, sk.ArgumentTypeError, TypeError),
    "ranks as float": ({"num_replicas": 2.0, "rank": 1}, sk.ArgumentTypeError, TypeError),
    "no length": ({"dataset": iter([]), **RANK_1}, sk.ArgumentTypeError, TypeError),
    "seed too large": ({**RANK_1, "seed": 2**64}, sk.ArgumentValueError, ValueError),
    # torch raises a RuntimeError, and only when it is read.
    "seed as float": ({**RANK_1, "seed": 1.5}, sk.ArgumentTypeError, None),
    "no such algorithm": ({**RANK_1, "algorithm": "pcg"}, sk.ArgumentValueError, None),
    "algorithm as number": ({**RANK_1, "algorithm": 1}, sk.ArgumentTypeError, None),
    "our seed negative": ({**RANK_1, "seed": -1, "algorithm": "samplerkit-1"}, sk.ArgumentValueError, None),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_bad_arguments_raise_torchs_class_when_the_sampler_is_made(case):
    chosen, error, torchs_error = BAD_ARGUMENTS[case]
    chosen = {"dataset": range(10), **chosen}
    with pytest.raises(error) as raised:
        DistributedSampler(**chosen)
    if torchs_error is not None:
        assert isinstance(raised.value, torchs_error)
        with pytest.raises(torchs_error):
            list(Torchs(**chosen))


def test_an_epoch_that_carries_the_seed_out_of_torchs_range_is_refused():
    for epoch, error in ((0, None), (1, ValueError)):
        ours, torchs = (kind(range(10), 2, 0, seed=2**64 - 1) for kind in (DistributedSampler, Torchs))
        ours.set_epoch(epoch)
        torchs.set_epoch(epoch)
        if error is None:
            assert list(ours) == list(torchs)
            continue
        with pytest.raises(error):
            list(torchs)
        with pytest.raises(sk.ArgumentValueError, match="seed and epoch"):
            list(ours)


def test_a_torch_built_without_distributed_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    with pytest.raises(RuntimeError):
        Torchs(range(10))
    with pytest.raises(sk.ArgumentValueError, match="num_replicas"):
        DistributedSampler(range(10))
    assert len(DistributedSampler(range(10), 2, 0)) == 5


def test_only_the_share_of_a_rank_is_kept():
    whole = np.arange(1000)
    share, is_held = part_of_array(range(3, 1000, 8), whole), weakref.ref(whole)
    del whole
    assert is_held() is None
    assert share[:].tolist() == list(range(3, 1000, 8))


# The order samplerkit-1.


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [0, 1, 5, 12, 103, 40_001])
def test_our_order_is_a_permutation_that_is_dealt_and_padded_by_torchs_rules(size, drop_last):
    undealt = list(sk.RandomSampler(seed=3).order(size, epoch=4))
    for ranks in (1, 2, 7):
        for rank in range(ranks):
            sampler = DistributedSampler(
                range(size), ranks, rank, seed=3, drop_last=drop_last, algorithm="samplerkit-1"
            )
            sampler.set_epoch(4)
            total = size // ranks * ranks if drop_last else -(-size // ranks) * ranks
            expected = [undealt[position % size] for position in range(rank, total, ranks)]
            assert list(sampler) == expected
            assert len(sampler) == len(expected) == len(sampler.order)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_order_has_random_access_and_an_inverse(algorithm, drop_last):
    sampler = DistributedSampler(range(11), 4, 3, drop_last=drop_last, algorithm=algorithm)
    whole = list(sampler)
    assert sampler.order[::-1].tolist() == whole[::-1]
    for index in range(11):
        at = [position for position, id in enumerate(whole) if id == index]
        assert sampler.order.positions_of(index).tolist() == at


# Other things that trainers do.


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_trainers_see_torchs_class_and_can_copy_it(algorithm):
    sampler = DistributedSampler(range(41), 2, 0, algorithm=algorithm)
    assert isinstance(sampler, Torchs)
    for copied in (copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):  # noqa: S301  # our own
        assert list(copied) == list(sampler.order)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_yielded_counts_the_items_of_the_epoch(algorithm):
    def make():
        return DistributedSampler(range(20), num_replicas=2, rank=1, algorithm=algorithm)

    sampler, torchs = make(), StatefulDistributedSampler(range(20), num_replicas=2, rank=1)
    for each in (sampler, torchs):
        assert (each.yielded, each.next_yielded) == (0, None)
        iterator = iter(each)
        for count in range(1, 4):
            next(iterator)
            assert (each.yielded, each.next_yielded) == (count, None)
    resumed = make()
    for each, state in ((resumed, sampler.state_dict()), (torchs, torchs.state_dict())):
        each.load_state_dict(state)
        assert each.next_yielded == 3
        rest = list(itertools.islice(each, 2))
        assert len(rest) == 2
        assert (each.yielded, each.next_yielded) == (5, None)


# Epochs that repeat.


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_repeated_epoch_warns_once(algorithm):
    sampler = DistributedSampler(range(10), 2, 0, algorithm=algorithm)
    first = list(sampler)
    with pytest.warns(UserWarning, match="set_epoch") as warnings:
        assert list(sampler) == list(sampler) == first
    assert len(warnings) == 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_warning_if_a_repeat_is_intended_or_does_not_matter(algorithm):
    sampler = DistributedSampler(range(10), 2, 0, algorithm=algorithm)
    for epoch in (0, 1, 1, 0):
        sampler.set_epoch(epoch)
        list(sampler)
    in_order = DistributedSampler(range(10), 2, 0, shuffle=False, algorithm=algorithm)
    assert list(in_order) == list(in_order) == [0, 2, 4, 6, 8]
    peeked = DistributedSampler(range(10), 2, 0, algorithm=algorithm)
    next(iter(peeked))
    list(peeked)


def make(algorithm="torch", ranks=2, rank=0, size=41, **chosen):
    return DistributedSampler(range(size), ranks, rank, **{"seed": 3, "algorithm": algorithm, **chosen})


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("new_ranks", [1, 2, 3, 5])
def test_a_state_resumes_with_any_number_of_ranks(algorithm, shuffle, drop_last, new_ranks):
    chosen = {"algorithm": algorithm, "shuffle": shuffle, "drop_last": drop_last}
    for cut in range(20):
        received = []
        for rank in range(2):
            sampler = make(rank=rank, **chosen)
            sampler.set_epoch(6)
            received += itertools.islice(sampler, cut)
            state = json.loads(json.dumps(sampler.state_dict()))
        assert len(json.dumps(state)) < 1000
        rests = []
        for rank in range(new_ranks):
            sampler = make(ranks=new_ranks, rank=rank, **chosen)
            sampler.load_state_dict(state)
            rests.append(list(sampler))
        left = 41 - 2 * cut
        rows = left // new_ranks if drop_last else -(-left // new_ranks)
        assert [len(rest) for rest in rests] == [rows] * new_ranks
        received += [index for row in zip(*rests, strict=True) for index in row][:left]
        assert len(set(received)) == len(received) == (41 - left % new_ranks if drop_last else 41)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("sizes", "ranks", "ends"),
    [((0, 0), 1, [None]), ((1, 1), 1, [None, 0]), ((10, 7), 3, [None, None, None, 0, 0])],
    ids=["of nothing", "of one sample", "of 7 samples, 10 before: repeats are no part of it"],
)
def test_a_state_has_the_ended_epoch_once_all_samples_were_read(algorithm, sizes, ranks, ends):
    for taken, ended in enumerate(ends):
        dataset = list(range(sizes[0]))
        sampler = DistributedSampler(dataset, ranks, 0, algorithm=algorithm)
        del dataset[sizes[1] :]
        items = iter(sampler)
        assert len(list(itertools.islice(items, taken))) == taken
        assert sampler.state_dict()["ended"] == ended


def test_an_empty_epoch_has_ended_once_it_was_read():
    sampler = DistributedSampler([], 1, 0)
    assert list(sampler) == []
    assert sampler.state_dict()["ended"] == 0


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"seed": 4}, "seed"),
        ({"size": 40}, "dataset"),
        ({"algorithm": "samplerkit-1"}, "algorithm"),
        ({"shuffle": False}, "sampler"),
        ({"drop_last": True}, "tail"),
    ],
)
def test_a_state_of_another_run_is_refused_by_field(changed, field):
    with pytest.raises(sk.StateError) as raised:
        make(**changed).load_state_dict(make().state_dict())
    assert raised.value.field == field
