"""`samplerkit.compat.torch.distributed`: any torch sampler, the same draws on every rank."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data import DistributedSampler as Torchs
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import RandomSampler as TorchdataRandomSampler

import samplerkit as sk
from samplerkit.compat.torch import DistributedSampler, distributed

WEIGHTS = [1.0 + index for index in range(40)]


def generator():
    # A seed of its own on each call, as ranks may have.
    return torch.Generator().manual_seed(random.randrange(2**32))


class OwnGenerators(torch.utils.data.Sampler):
    """A user's sampler that draws from three libraries, by generators of its own."""

    def __init__(self):
        self.torch, self.numpy, self.python = generator(), np.random.default_rng(), random.Random()
        self.legacy = np.random.RandomState()

    def __iter__(self):
        yield from torch.randint(40, (5,), generator=self.torch).tolist()
        yield from self.numpy.integers(40, size=5)
        yield from self.legacy.randint(0, 40, size=5)
        yield from (self.python.randrange(40) for _ in range(5))

    def __len__(self):
        return 20


class ProcessWide(torch.utils.data.Sampler):
    """A user's sampler that draws from what the whole process draws from, lazily."""

    def __iter__(self):
        for _ in range(5):
            yield torch.randint(40, ())
            yield np.random.randint(40)  # noqa: NPY002  # users do
            yield random.randrange(40)

    def __len__(self):
        return 15


class ByItsEpoch(torch.utils.data.Sampler):
    """A user's sampler that knows epochs."""

    epoch = None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        yield from range(self.epoch, self.epoch + 10)

    def __len__(self):
        return 10


class OfParts(torch.utils.data.Sampler):
    """A user's sampler made of others."""

    def __init__(self):
        self.parts = [RandomSampler(range(20), generator=generator()), SubsetRandomSampler(range(20, 40))]

    def __iter__(self):
        return itertools.chain(*self.parts)

    def __len__(self):
        return 40


MAKE = {
    "random": lambda: RandomSampler(range(40)),
    "random with a generator": lambda: RandomSampler(range(40), generator=generator()),
    "replacement": lambda: RandomSampler(range(40), replacement=True, num_samples=100),
    "replacement with a generator": lambda: RandomSampler(
        range(40), replacement=True, num_samples=100, generator=generator()
    ),
    "subset": lambda: SubsetRandomSampler(range(5, 30)),
    "subset with a generator": lambda: SubsetRandomSampler(range(5, 30), generator=generator()),
    "weighted": lambda: WeightedRandomSampler(WEIGHTS, 101),
    "weighted with a generator": lambda: WeightedRandomSampler(WEIGHTS, 101, generator=generator()),
    "weighted without replacement": lambda: WeightedRandomSampler(WEIGHTS, 20, replacement=False),
    "torchdata's random": lambda: TorchdataRandomSampler(range(40)),
    "own generators": OwnGenerators,
    "process-wide": ProcessWide,
    "of parts": OfParts,
    "batches": lambda: BatchSampler(RandomSampler(range(40)), 6, drop_last=False),
    "batches of weighted draws": lambda: BatchSampler(
        WeightedRandomSampler(WEIGHTS, 101, generator=generator()), 6, drop_last=True
    ),
}
IN_ORDER = {
    "sequential": lambda: SequentialSampler(range(41)),
    "batches in order": lambda: BatchSampler(SequentialSampler(range(41)), 6, drop_last=False),
    "a list": lambda: [5, 3, 9, 1],
}
ANY = {**MAKE, **IN_ORDER, "by its epoch": ByItsEpoch}


def scramble():
    """Leaves the process-wide generators wherever, as the ranks of a job do."""
    number = random.SystemRandom().randrange(2**32)
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002  # the generator that users draw from
    torch.manual_seed(number)


def shares(name, ranks, epoch=0, **chosen):
    """Gives what each rank reads, each with a sampler and process-wide generators of its own."""
    read = []
    for rank in range(ranks):
        scramble()
        sampler = distributed(ANY[name](), num_replicas=ranks, rank=rank, **chosen)
        sampler.set_epoch(epoch)
        read.append(list(sampler))
        assert len(sampler) == sampler.num_samples == len(read[-1])
    return read


def dealt_back(read):
    return [item for row in itertools.zip_longest(*read) for item in row]


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_all_ranks_deal_the_same_draws(name, ranks):
    whole = shares(name, 1)[0]
    padded, dropped = shares(name, ranks), shares(name, ranks, drop_last=True)
    assert dealt_back(padded) == [*whole, *whole][: -(-len(whole) // ranks) * ranks]
    assert dealt_back(dropped) == whole[: len(whole) // ranks * ranks]


@pytest.mark.parametrize("name", MAKE)
def test_epochs_and_seeds_differ_and_repeat(name):
    first = shares(name, 2)
    assert shares(name, 2) == first
    assert shares(name, 2, epoch=1) != first
    assert shares(name, 2, seed=1) != first
    assert shares(name, 2, seed=1) != shares(name, 2, epoch=1)


def test_a_plain_sampler_does_differ_between_ranks():
    """The negative control of the tests above."""
    read = []
    for rank in range(2):
        scramble()
        read.append(list(RandomSampler(range(40)))[rank::2])
    assert sorted(sum(read, [])) != list(range(40))


def test_a_sampler_without_repeats_is_dealt_without_repeats():
    assert sorted(sum(shares("random", 4), [])) == list(range(40))
    assert sorted(sum(shares("subset", 5), [])) == list(range(5, 30))
    batches = sum(shares("batches", 7), [])
    assert sorted(index for batch in batches for index in batch) == list(range(40))


def test_weighted_draws_keep_their_weights():
    drawn = Counter()
    for epoch in range(40):
        for rank in range(2):
            sampler = distributed(WeightedRandomSampler([1.0, 3.0], 1000), 2, rank)
            sampler.set_epoch(epoch)
            drawn.update(sampler)
    assert drawn.total() == 40_000
    assert abs(drawn[0] / 40_000 - 0.25) < 0.01  # 4.6 standard deviations


def states(sampler):
    held = vars(sampler)
    yield torch.get_rng_state().tolist()
    yield repr(np.random.get_state())  # noqa: NPY002  # the generator that users draw from
    yield random.getstate()
    if isinstance(sampler, OwnGenerators):
        yield held["torch"].get_state().tolist()
        yield held["numpy"].bit_generator.state
        yield repr(held["legacy"].get_state())
        yield held["python"].getstate()
    elif isinstance(held.get("generator"), torch.Generator):
        yield held["generator"].get_state().tolist()


@pytest.mark.parametrize("name", ANY)
def test_no_generator_is_left_in_another_state(name):
    inner = ANY[name]()
    before = list(states(inner)) if not isinstance(inner, list) else []
    dealt = distributed(inner, 2, 0)
    reading = iter(dealt)
    next(reading)
    assert before == (list(states(inner)) if before else [])
    list(reading)
    assert before == (list(states(inner)) if before else [])


def test_generators_are_given_back_after_an_error_too():
    class Failing(torch.utils.data.Sampler):
        def __iter__(self):
            yield int(torch.randint(5, ()))
            raise KeyError("lost")

    before = torch.get_rng_state()
    with pytest.raises(KeyError, match="lost"):
        list(distributed(Failing(), 2, 0))
    assert torch.get_rng_state().equal(before)


def test_batches_go_to_a_dataloader_whole():
    whole = shares("batches", 1)[0]
    batches = [distributed(MAKE["batches"](), 2, rank) for rank in range(2)]
    read = [[batch.tolist() for batch in DataLoader(range(40), batch_sampler=sampler)] for sampler in batches]
    assert dealt_back(read) == [*whole, whole[0]]
    assert batches[0].batch_size == 6


@pytest.mark.parametrize("workers", [0, 2])
def test_a_dataloader_reads_the_share(workers):
    share = shares("weighted", 2)[1]
    sampler = distributed(MAKE["weighted"](), 2, 1)
    loader = DataLoader(range(40), batch_size=8, sampler=sampler, num_workers=workers)
    assert [index for batch in loader for index in batch.tolist()] == share
    assert len(loader) == 7


def test_trainers_see_a_distributed_sampler():
    sampler = distributed(MAKE["weighted"](), 3, 1, drop_last=True)
    assert isinstance(sampler, Torchs)
    assert (sampler.num_replicas, sampler.rank, sampler.total_size, sampler.shuffle) == (3, 1, 99, True)
    assert not distributed(IN_ORDER["batches in order"](), 3, 1).shuffle


def test_without_a_job_one_process_reads_everything(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    assert list(distributed(range(5))) == [0, 1, 2, 3, 4]
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert list(distributed(range(5))) == [1, 3, 0]


def test_an_epoch_that_repeats_is_told_once():
    sampler = distributed(MAKE["weighted"](), 2, 0)
    first = list(sampler)
    with pytest.warns(UserWarning, match="set_epoch") as told:
        assert list(sampler) == list(sampler) == first
    assert len(told) == 1
    in_order = distributed(IN_ORDER["sequential"](), 2, 0)
    assert list(in_order) == list(in_order)


@pytest.mark.parametrize("name", ANY)
@pytest.mark.parametrize("new_ranks", [1, 2, 3])
def test_a_state_goes_on_with_any_number_of_ranks(name, new_ranks):
    whole = shares(name, 1, epoch=4)[0]
    for cut in {0, 1, len(whole) // 4, (len(whole) - 1) // 2}:
        for rank in range(2):
            sampler = distributed(ANY[name](), 2, rank)
            sampler.set_epoch(4)
            list(itertools.islice(sampler, cut))
            state = json.loads(json.dumps(sampler.state_dict()))
        rests = []
        for rank in range(new_ranks):
            scramble()
            sampler = distributed(ANY[name](), new_ranks, rank)
            sampler.load_state_dict(state)
            rests.append(list(sampler))
        assert dealt_back(rests)[: len(whole) - 2 * cut] == whole[2 * cut :]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["weighted", "batches"])
def test_torchdatas_loader_resumes_exactly(name, workers):
    def loader():
        how = "batch_sampler" if name == "batches" else "sampler"
        sampler = distributed(MAKE[name](), 2, 1, seed=3)
        return StatefulDataLoader(range(40), num_workers=workers, collate_fn=list, **{how: sampler})

    whole = list(loader())
    running = loader()
    batches = iter(running)
    assert [next(batches) for _ in range(2)] == whole[:2]
    resumed = loader()
    resumed.load_state_dict(running.state_dict())
    assert list(resumed) == whole[2:]
    del batches


def test_a_state_of_other_draws_is_refused():
    state = distributed(WeightedRandomSampler(WEIGHTS, 50), 2, 0).state_dict()
    others = {
        "sampler": distributed(WeightedRandomSampler(WEIGHTS[::-1], 50), 2, 0),
        "dataset": distributed(WeightedRandomSampler(WEIGHTS, 51), 2, 0),
        "seed": distributed(WeightedRandomSampler(WEIGHTS, 50), 2, 0, seed=1),
        "tail": distributed(WeightedRandomSampler(WEIGHTS, 50), 2, 0, drop_last=True),
    }
    for field, sampler in others.items():
        with pytest.raises(sk.StateError) as raised:
            sampler.load_state_dict(state)
        assert raised.value.field == field


class Endless(torch.utils.data.Sampler):
    def __iter__(self):
        return itertools.count()


@pytest.mark.parametrize(
    ("sampler", "error"),
    [
        (Torchs(range(10), 2, 0), sk.CompositionError),
        (DistributedSampler(range(10), 2, 0), sk.CompositionError),
        (BatchSampler(Torchs(range(10), 2, 0), 2, False), sk.CompositionError),
        (sk.RandomSampler(), sk.ArgumentTypeError),
        (DataLoader(range(10)), sk.ArgumentTypeError),
        (iter([1, 2]), sk.ArgumentTypeError),
        ((index for index in range(3)), sk.ArgumentTypeError),
        (5, sk.ArgumentTypeError),
        ("abc", sk.ArgumentTypeError),
        (None, sk.ArgumentTypeError),
    ],
)
def test_what_cannot_be_dealt_is_refused_at_once(sampler, error):
    with pytest.raises(error, match="sampler"):
        distributed(sampler, 2, 0)


def test_a_sampler_of_one_rank_is_no_dealing_one():
    assert list(distributed(Torchs(range(6), 1, 0, shuffle=False), 2, 1)) == [1, 3, 5]


@pytest.mark.parametrize(
    ("draws", "error"),
    [([1.5], None), ([True], sk.ArgumentTypeError), ([3, -1], sk.ArgumentRangeError), ([1, [2]], TypeError)],
)
def test_draws_are_checked(draws, error):
    sampler = distributed(draws, 1, 0)
    if error is None:
        assert list(sampler) == draws  # anything but ids is handed on as it is
        return
    with pytest.raises(error):
        list(sampler)


def test_a_sampler_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr("samplerkit.compat.torch.draws.LONGEST_ITERATION", 100_000)
    with pytest.raises(sk.DatasetError, match="yields more than"):
        list(distributed(Endless(), 2, 0))


@pytest.mark.parametrize(
    ("chosen", "error"),
    [
        ({"seed": -1}, sk.ArgumentValueError),
        ({"seed": "1"}, sk.ArgumentTypeError),
        ({"drop_last": 1}, sk.ArgumentTypeError),
        ({"num_replicas": "2"}, sk.ArgumentTypeError),
    ],
)
def test_bad_arguments_are_refused_at_once(chosen, error):
    with pytest.raises(error):
        distributed([1, 2, 3], **chosen)
    with pytest.raises(sk.ArgumentRangeError):
        list(distributed([1, 2, 3], 2, 2))
