"""The draw is the unit of randomness: pixels repeat bit for bit after a resume; and ids that are given."""

import itertools
import json
import os
import random

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.compat import mindspore
from samplerkit.order.draws import Draw
from tests.chains import under
from tests.numbers import Made, Numbers

SIZE, BATCH, DRAWS = 40, 4, 46
SAMPLER = sk.WeightedRandomSampler(1.0 / (1.0 + np.arange(SIZE)), num_samples=DRAWS, seed=11)
"""Rare and frequent samples; 46 draws leave a rest with any number of ranks."""


def transformed(picture):
    """What people's transforms do: noise by torch, a crop by numpy, a flip by Python's generator."""
    top, left = np.random.randint(0, 4, 2)  # noqa: NPY002
    picture = picture[top : top + 4, left : left + 4] + torch.randn(4, 4)
    return picture.flip(1) if random.random() < 0.5 else picture


def jittered(picture, rng):
    """The same with a generator that is handed over."""
    top, left = rng.integers(0, 4, 2)
    return picture[top : top + 4, left : left + 4] + torch.from_numpy(rng.standard_normal((4, 4)))


class Pictures:
    """Sample i is a picture of i, taken through both."""

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        picture = picture_of(index)
        return index, as_text(transformed(picture)), as_text(jittered(picture, sk.draw_rng()))


def picture_of(index):
    return torch.full((8, 8), float(index), dtype=torch.float64)


def as_text(picture):
    return picture.numpy().astype("<f8").tobytes().hex()


def loader(ranks=1, rank=0, workers=0, **options):
    """A loader of rank `rank` of `ranks` that seeds draws and hands out lists."""
    dataset = options.pop("dataset", Pictures())
    sampler = options.pop("sampler", SAMPLER)
    return sk.Loader(
        dataset,
        sampler,
        world=sk.World(ranks, rank),
        num_workers=workers,
        **{"batch_size": BATCH, "collate_fn": list, "seed_draws": True, **options},
    )


def position(reader, place, start=0):
    """The position of a sample of the batch handed out last, by arithmetic of our own; pads follow 46."""
    ranks, rank = reader.world.num_shards, reader.world.shard_id
    return start + ((reader.step - 1) * reader.batch_size + place) * ranks + rank


def by_position(reader, start=0, steps=None):
    """Reads the rest of an epoch, or some steps of it; gives what was read by its position."""
    with reader:
        return {
            position(reader, place, start): sample
            for batch in itertools.islice(reader, steps)
            for place, sample in enumerate(batch)
        }


PINNED_DRAW = [3887409898, 1368617591, 1152608695]
PINNED_SAMPLE = [1658334441, 2321792438, 2303750459]
PINNED_SEEDS = [(110, 630, 108), (389, 579, 142)]


@pytest.fixture(scope="module")
def uninterrupted():
    """Each sample of epoch 0 by its position, read by one rank in one go."""
    read = by_position(loader())
    assert sorted(read) == list(range(DRAWS))
    return read


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1, 2), (2, 1)),
        pytest.param((1, 0), (4, 1), marks=pytest.mark.campaign),
        pytest.param((3, 2), (2, 0), marks=pytest.mark.campaign),
    ],
)
def test_a_run_left_in_mid_epoch_and_resumed_on_other_ranks_and_workers_has_the_same_pixels(
    uninterrupted, before, after
):
    """By ordinary transforms and by draw_rng: each sample is taken through both."""
    state, read = json.loads(json.dumps(loader(before[0]).state_dict(step=2))), set()
    # The third step comes after the state, and is read again.
    for (ranks, workers), start, steps in ((before, 0, 3), (after, state["position"], None)):
        for rank in range(ranks):
            reader = loader(ranks, rank, workers)
            if start:
                reader.load_state_dict(state)
            samples = by_position(reader, start, steps)
            assert {where: samples[where] for where in samples if where < DRAWS} == {
                where: uninterrupted[where] for where in samples if where < DRAWS
            }
            read.update(samples)
    assert read >= set(range(DRAWS))


@pytest.mark.parametrize("ranks", [3, 4])
def test_the_draws_of_one_sample_all_differ_and_pads_have_their_own(uninterrupted, ranks):
    read = {}
    for rank in range(ranks):
        read |= by_position(loader(ranks, rank))
    assert len(read) > DRAWS  # there are pads
    for field in (1, 2):
        assert len({sample[field] for sample in read.values()}) == len(read)
    assert max(np.bincount([sample[0] for sample in read.values()])) > 5
    for where in range(DRAWS, len(read)):
        assert read[where][0] == read[where - DRAWS][0]
    assert {where: read[where] for where in range(DRAWS)} == uninterrupted


def test_each_epoch_has_its_own_draws_also_when_it_is_read_ahead():
    plain, early = loader(), loader(workers=1, run_ahead=True)
    with early:
        epochs = [by_position(plain), by_position(plain)]
        assert [by_position(early), by_position(early)] == epochs
    assert not {sample[2] for sample in epochs[0].values()} & {sample[2] for sample in epochs[1].values()}


def test_draws_are_pinned():
    """A change of these is a change of everybody's pixels."""
    assert Draw(7, 3, 2**40).rng().integers(2**32, size=3).tolist() == PINNED_DRAW
    assert sk.sample_rng(7, 3, 2**40).integers(2**32, size=3).tolist() == PINNED_SAMPLE
    reader = loader(dataset=Made(9, thrice), batch_size=1, sampler=sk.SubsetSampler([5, 5]))
    assert [sample for batch in reader for sample in batch] == PINNED_SEEDS


def thrice(_):
    """A random number of each generator."""
    return int(torch.randint(1000, ())), int(np.random.randint(1000)), random.randrange(1000)  # noqa: NPY002


def test_without_workers_reading_does_not_change_the_generators_of_the_training_loop():
    def loop(batches):
        torch.manual_seed(1)
        np.random.seed(1)  # noqa: NPY002
        random.seed(1)
        return [(torch.rand(()).item(), np.random.rand(), random.random()) for _ in batches]  # noqa: NPY002

    reader = loader()
    assert loop(reader) == loop(range(len(reader)))
    broken = loader(dataset=Failing())
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with pytest.raises(OSError, match="sample"):
        list(broken)
    assert torch.equal(torch.get_rng_state(), before)


class Failing(Pictures):
    """Some samples cannot be read, and fail after they have drawn."""

    bad = frozenset({0, 3})

    def __getitem__(self, index):
        if index in self.bad:
            torch.rand(3)
            sk.draw_rng().random(3)
            raise OSError(f"sample {index} is damaged")
        return super().__getitem__(index)


def test_samples_that_are_skipped_change_no_draw_of_the_others(uninterrupted):
    reader = loader(dataset=Failing(), bad_samples="skip")
    read = [sample for batch in reader for sample in batch]
    assert len(reader.skipped) > 5
    assert read == [sample for sample in uninterrupted.values() if sample[0] not in Failing.bad]


@pytest.mark.parametrize("workers", [0, 1])
def test_random_numbers_of_a_collate_function_repeat_for_the_same_batch(workers):
    def mixed(samples):
        assert samples
        return float(torch.rand(())), np.random.rand(), random.random()  # noqa: NPY002

    plain = loader(collate_fn=mixed)
    expected = list(plain)
    assert len(set(expected)) == len(expected) == 12
    again = loader(collate_fn=mixed, workers=workers)
    again.load_state_dict(loader().state_dict(step=5))
    with again:
        assert list(again) == expected[5:]


def test_a_device_loader_gives_the_same_pixels_and_never_seeds_in_its_thread(uninterrupted):
    with sk.DeviceLoader(loader(workers=1), "cpu") as batches:
        assert [sample for batch in batches for sample in batch] == list(uninterrupted.values())
    for refused in (sk.DeviceLoader(loader(), "cpu"), loader(device="cpu")):
        with pytest.raises(sk.ArgumentValueError, match="num_workers=1"):
            next(iter(refused))
    # Nothing is seeded for draw_rng, so it may.
    jittering = Made(SIZE, lambda index: (index, as_text(jittered(picture_of(index), sk.draw_rng()))))
    with sk.DeviceLoader(loader(seed_draws=False, dataset=jittering), "cpu") as batches:
        drawn = [sample for batch in batches for sample in batch]
    assert drawn == [(index, jitter) for index, _, jitter in uninterrupted.values()]


GIVEN = 24


class Shuffled:
    """An iterable that shuffles by a generator of the process, or one of its own."""

    def __init__(self, shuffle):
        self.shuffle = shuffle

    def __iter__(self):
        ids = [*range(GIVEN)]
        self.shuffle(ids)
        return iter(ids)


class WithGenerator(Shuffled):
    """One with a generator of its own, which nobody has seeded."""

    def __init__(self):
        self.generator = np.random.default_rng()
        super().__init__(self.generator.shuffle)


def unseeded():
    """A generator that each process has seeded in its own way: those of torch start with the same seed."""
    generator = torch.Generator()
    generator.seed()
    return generator


class Wrapping(torch.utils.data.Sampler):
    """torch's sampler, wrapped in another one."""

    def __init__(self):
        self.inner = torch.utils.data.RandomSampler(range(GIVEN), generator=unseeded())

    def __iter__(self):
        return iter(self.inner)


class OwnSampler(sk.Sampler):
    """MindSpore's way: ids from `__iter__`, at random."""

    def __iter__(self):
        return iter(np.random.permutation(self.dataset_size).tolist())  # noqa: NPY002  # what people write


class SystemRandom(sk.Sampler):
    """Random numbers of the system, which nothing can seed."""

    def __iter__(self):
        return iter(sorted(range(self.dataset_size), key=lambda _: os.urandom(8)))


SAMPLERS = {
    "torch's RandomSampler": lambda: sk.IterSampler(torch.utils.data.RandomSampler(range(GIVEN))),
    "torch's, with a generator": lambda: sk.IterSampler(
        torch.utils.data.RandomSampler(range(GIVEN), generator=unseeded())
    ),
    "torch's, in another one": lambda: sk.IterSampler(Wrapping()),
    "torch's WeightedRandomSampler": lambda: sk.IterSampler(
        torch.utils.data.WeightedRandomSampler([1.0] * GIVEN, GIVEN)
    ),
    "numpy's generator": lambda: sk.IterSampler(Shuffled(np.random.shuffle)),
    "Python's generator": lambda: sk.IterSampler(Shuffled(random.shuffle)),
    "a generator of its own": lambda: sk.IterSampler(WithGenerator()),
    "MindSpore's IterSampler": lambda: mindspore.IterSampler(Shuffled(random.shuffle)),
    "a sampler of one's own": OwnSampler,
    "below another one": lambda: under(sk.DistributedSampler(shuffle=True, seed=5), OwnSampler()),
    "a source of a mixture": lambda: sk.MixtureSampler(
        {"a": sk.IterSampler(Shuffled(random.shuffle)), "b": None}, seed=1, num_samples=GIVEN
    ),
}
TREE = sk.Layout.tree({"a": sk.Layout(GIVEN), "b": sk.Layout(GIVEN)})


def given_loader(name, rank, ranks=2):
    """One rank of a job, in a process that was seeded in its own way."""
    torch.manual_seed(rank + 100)
    random.seed(rank + 200)
    np.random.seed(rank + 300)  # noqa: NPY002  # likewise
    dataset = Numbers(TREE) if "mixture" in name else range(GIVEN)
    return sk.Loader(dataset, SAMPLERS[name](), batch_size=2, world=sk.World(ranks, rank))


def ids_of(given_loader, steps=None):
    ids = []
    for batch in given_loader:
        ids += batch.tolist()
        if given_loader.step == steps:
            break
    return ids


@pytest.mark.parametrize("name", SAMPLERS)
def test_ranks_with_different_seeds_share_the_ids_and_a_resume_reads_the_rest(name):
    order = [*given_loader(name, 0).order]
    assert order != sorted(order)
    ranks = [given_loader(name, rank) for rank in range(2)]
    shares = [ids_of(rank, steps=3) for rank in ranks]
    states = [rank.state_dict() for rank in ranks]
    assert states[0] == states[1]
    resumed = given_loader(name, 0, ranks=1)
    resumed.load_state_dict(states[0])
    assert sorted(shares[0] + shares[1] + ids_of(resumed)) == sorted(order)


def test_epochs_differ_and_the_generators_of_the_process_are_unchanged():
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    sampler = torch.utils.data.RandomSampler(range(GIVEN))
    orders = [[*sk.IterSampler(sampler).order(GIVEN, epoch=epoch)] for epoch in (0, 1, 0)]
    orders.append([*sk.IterSampler(sampler, seed=1).order(GIVEN)])
    assert torch.rand(2).equal(expected)
    assert orders[0] == orders[2]
    assert len({tuple(order) for order in orders}) == 3


READERS = {
    "Loader": lambda sampler, world: sk.Loader(range(GIVEN), sampler, batch_size=2, world=world),
    "TorchSampler": lambda sampler, world: sk.TorchSampler(sampler, range(GIVEN), world),
    "TensorLoader": lambda sampler, world: sk.TensorLoader(
        torch.arange(GIVEN), sampler, batch_size=2, world=world
    ),
    "batches": lambda sampler, world: sk.Loader(
        range(GIVEN), sampler, batches=sk.TokenBatches(4, lengths=[1] * GIVEN, window=8), world=world
    ),
    "a deal above": lambda sampler, world: sk.Loader(
        range(GIVEN), under(sk.RandomSampler(), under(sk.DistributedSampler(2, 0), sampler)), batch_size=2
    ),
    "a mixture": lambda sampler, world: sk.Loader(
        Numbers(TREE),
        sk.MixtureSampler({"a": sampler, "b": None}, seed=1, num_samples=GIVEN),
        batch_size=2,
        world=world,
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_a_state_after_ids_that_nothing_can_repeat_is_refused(name):
    first = READERS[name](SystemRandom(), sk.World(1, 0))
    iterator = iter(first)
    next(iterator)
    state = first.state_dict()
    other = READERS[name](SystemRandom(), sk.World(1, 0))
    with pytest.raises(sk.StateError, match="differ from those that the sampler yielded") as caught:
        other.load_state_dict(state)
    assert caught.value.field == "ids"
    # At the beginning of an epoch nothing of it was read.
    other.load_state_dict(READERS[name](SystemRandom(), sk.World(1, 0)).state_dict())
    iterator.close()
