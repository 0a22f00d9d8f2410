"""Epochs and states of the drop-in: in a plain loop, in torchdata's loader, and on other numbers of ranks."""

from __future__ import annotations

import itertools
import json

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from samplerkit.compat.torch import DistributedSampler

ALGORITHMS = ["torch", "samplerkit-1"]


# Epochs that repeat.


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_epoch_that_repeats_is_told_once(algorithm):
    sampler = DistributedSampler(range(10), 2, 0, algorithm=algorithm)
    first = list(sampler)
    with pytest.warns(UserWarning, match="set_epoch") as told:
        assert list(sampler) == list(sampler) == first
    assert len(told) == 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nothing_is_told_where_it_is_meant_or_does_not_matter(algorithm):
    sampler = DistributedSampler(range(10), 2, 0, algorithm=algorithm)
    for epoch in (0, 1, 1, 0):
        sampler.set_epoch(epoch)
        list(sampler)
    in_order = DistributedSampler(range(10), 2, 0, shuffle=False, algorithm=algorithm)
    assert list(in_order) == list(in_order) == [0, 2, 4, 6, 8]
    peeked = DistributedSampler(range(10), 2, 0, algorithm=algorithm)
    next(iter(peeked))
    list(peeked)


def test_a_dataloader_tells_it_too():
    loader = DataLoader(range(10), batch_size=2, sampler=DistributedSampler(range(10), 2, 0))
    list(loader)
    with pytest.warns(UserWarning, match="reads epoch 0 again"):
        list(loader)


# States.


def made(algorithm="torch", ranks=2, rank=0, size=41, **chosen):
    return DistributedSampler(range(size), ranks, rank, **{"seed": 3, "algorithm": algorithm, **chosen})


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("new_ranks", [1, 2, 3, 5])
def test_a_state_goes_on_with_any_number_of_ranks(algorithm, shuffle, drop_last, new_ranks):
    chosen = {"algorithm": algorithm, "shuffle": shuffle, "drop_last": drop_last}
    for cut in range(20):
        received = []
        for rank in range(2):
            sampler = made(rank=rank, **chosen)
            sampler.set_epoch(6)
            received += itertools.islice(sampler, cut)
            state = json.loads(json.dumps(sampler.state_dict()))
        assert len(json.dumps(state)) < 1000
        rests = []
        for rank in range(new_ranks):
            sampler = made(ranks=new_ranks, rank=rank, **chosen)
            sampler.load_state_dict(state)
            rests.append(list(sampler))
        left = 41 - 2 * cut
        rows = left // new_ranks if drop_last else -(-left // new_ranks)
        assert [len(rest) for rest in rests] == [rows] * new_ranks
        received += [index for row in zip(*rests, strict=True) for index in row][:left]
        assert len(set(received)) == len(received) == (41 - left % new_ranks if drop_last else 41)


def test_our_states_are_taken_over_by_torch_sampler_and_loader():
    dataset = list(range(100, 141))
    sampler = DistributedSampler(dataset, 1, 0, seed=3, algorithm="samplerkit-1")
    whole = list(sampler)
    sampler.set_epoch(0)
    list(itertools.islice(sampler, 12))
    recipe, world = sk.DistributedSampler(seed=3), sk.World(1, 0)
    torch_sampler = sk.TorchSampler(recipe, dataset, world)
    torch_sampler.load_state_dict(sampler.state_dict())
    assert list(torch_sampler) == whole[12:]
    loader = sk.Loader(dataset, recipe, batch_size=4, world=world)
    loader.load_state_dict(sampler.state_dict())
    assert [value - 100 for batch in loader for value in batch.tolist()] == whole[12:]


def loader_of(algorithm, workers, drop_last=False):
    sampler = made(algorithm, drop_last=drop_last)
    return StatefulDataLoader(range(41), 4, sampler=sampler, num_workers=workers, collate_fn=list)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("workers", "cut"), [(0, 0), (0, 1), (0, 5), (2, 3)])
def test_torchdatas_loader_resumes_exactly(algorithm, workers, cut):
    loader = loader_of(algorithm, workers)
    loader.sampler.set_epoch(2)
    whole = list(loader)
    loader.sampler.set_epoch(2)
    batches = iter(loader)
    assert [next(batches) for _ in range(cut)] == whole[:cut]
    state = loader.state_dict()
    resumed = loader_of(algorithm, workers)
    resumed.sampler.set_epoch(2)
    resumed.load_state_dict(state)
    assert list(resumed) == whole[cut:]
    resumed.sampler.set_epoch(3)
    fresh = loader_of(algorithm, 0)
    fresh.sampler.set_epoch(3)
    assert list(resumed) == list(fresh)
    del batches


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("saved", ["in the loop", "after the loop"])
def test_a_run_that_is_saved_at_the_end_of_an_epoch_repeats_and_skips_none(algorithm, saved):
    """The usual loop over epochs around torchdata's loader, which loads a state only when it is iterated."""

    def run(first, state=None, last=4):
        loader = loader_of(algorithm, 0)
        if state is not None:
            loader.load_state_dict(state)
        for epoch in range(first, last):
            loader.sampler.set_epoch(epoch)
            for step, batch in enumerate(loader):
                received.append((epoch, batch))
                if epoch == 1 and step == 5 and state is None and saved == "in the loop":
                    return epoch, loader.state_dict()
            if epoch == 1 and state is None and saved == "after the loop":
                return epoch + 1, loader.state_dict()
        return None

    received = []
    first, state = run(0)
    run(first, state)
    expected = []
    for epoch in range(4):
        loader = loader_of(algorithm, 0)
        loader.sampler.set_epoch(epoch)
        expected += [(epoch, batch) for batch in loader]
    assert received == expected


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
        made(**changed).load_state_dict(made().state_dict())
    assert raised.value.field == field
