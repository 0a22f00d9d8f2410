"""The states of the drop-in for torch's sampler: on any ranks, in torchdata's loader, and of other runs."""

from __future__ import annotations

import itertools
import json

import pytest

import samplerkit as sk
from samplerkit.compat.torch import DistributedSampler

ALGORITHMS = ["torch", "samplerkit-1"]


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
