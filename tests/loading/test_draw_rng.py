"""Where draw_rng can be called, and its errors elsewhere."""

import random

import pytest
from torch.utils.data import Subset

import samplerkit as sk
from samplerkit.order.draws import Draws
from tests.loading.worker_kinds import THREADS
from tests.numbers import Damaged


class Noise:
    """Sample i is (i, two numbers of its draw)."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return index, number(sk.draw_rng()), number(sk.draw_rng())


class NoiseInBatches(Noise):
    """Gives the place of each id; backwards, since draws must not depend on the order of calls."""

    def __getitems__(self, ids):
        places = range(len(ids))[::-1]
        return [(int(ids[i]), number(sk.draw_rng(i)), number(sk.draw_rng(i))) for i in places][::-1]


class NoiseWithoutPlace(Noise):
    """Reads batches by the method for one sample, and so gives no place."""

    def __getitems__(self, ids):
        return [self[index] for index in ids.tolist()]


def number(rng):
    return int(rng.integers(2**62))


def read(dataset, sampler=None, **options):
    sampler = sk.RandomSampler(seed=2) if sampler is None else sampler
    options = {"batch_size": 5, "collate_fn": list, **options}
    with sk.Loader(dataset, sampler, world=sk.World(1, 0), **options) as loader:
        return [sample for batch in loader for sample in batch]


@pytest.fixture(scope="module")
def expected():
    samples = read(Noise())
    assert len({drawn for _, *both in samples for drawn in both}) == 2 * len(samples)
    return samples


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 1}, THREADS, {"batch_size": 3}, {"seed_draws": True}]
)
@pytest.mark.parametrize("dataset", [Noise(), NoiseInBatches(), Subset(Noise(), range(12))])
def test_the_generator_is_that_of_the_position_however_the_dataset_is_read(dataset, options, expected):
    assert read(dataset, **options) == expected


@pytest.mark.parametrize(
    ("place", "error", "message"),
    [
        (None, sk.ArgumentValueError, r"draw_rng\(i\) is for the i-th id"),
        (5, sk.OutOfDatasetError, r"place: must be in \[0, 5\)"),
        (-1, sk.OutOfDatasetError, r"place: must be in \[0, 5\)"),
        (True, sk.ArgumentTypeError, "place: must be an integer"),
        (1.0, sk.ArgumentTypeError, "place: must be an integer"),
    ],
)
def test_in_a_batch_the_place_is_required_and_must_exist(place, error, message):
    class WithPlace(NoiseWithoutPlace):
        def __getitem__(self, index):
            return sk.draw_rng(place)

    with pytest.raises(error, match=message):
        read(WithPlace())


def test_seeding_draws_reads_a_dataset_of_batches_one_by_one(expected):
    """Else nobody could seed between two samples; so the place of the sample is known."""
    assert read(NoiseWithoutPlace(), seed_draws=True) == expected


def test_a_batch_that_fails_is_read_again_one_by_one_with_the_same_draws(expected):
    class Failing(NoiseInBatches):
        def __getitem__(self, index):
            if index == 4:
                raise OSError("damaged")
            return super().__getitem__(index)

        def __getitems__(self, ids):
            [sk.draw_rng(i).random() for i in range(len(ids))]
            return [self[index] for index in ids.tolist()]

    samples = read(Failing(), bad_samples="skip")
    assert samples == [sample for sample in expected if sample[0] != 4]


@pytest.mark.parametrize("seed", [None, -1, "seven", 2**64])
def test_a_sampler_of_ones_own_may_have_any_seed(seed):
    """Draws and workers then go by seed 0."""

    class Backwards(sk.Sampler):
        def draw(self, layout, context):
            return range(len(layout))[::-1]

    odd, plain = Backwards(), Backwards()
    odd.seed = seed
    for workers in (0, 1):
        assert read(Noise(), odd, num_workers=workers) == read(Noise(), plain)


OUTSIDE = "draw_rng: no sample is being read here; call it in a dataset that samplerkit.Loader reads"


def read_and_fail():
    with pytest.raises(OSError, match="damaged"):
        read(Damaged(sk.Layout(12), range(12)))


BEFORE = {
    "nothing": lambda: None,
    "an epoch": lambda: read(Noise()),
    "an error": read_and_fail,
    "draws whose end a signal handler has cut off": lambda: Draws(7, 0, range(3)).__enter__(),
}


@pytest.mark.parametrize("before", BEFORE)
def test_draw_rng_outside_of_reading_is_an_error_with_the_hint_whatever_came_before(before):
    BEFORE[before]()
    for place in ((), (0,)):
        with pytest.raises(sk.DatasetError, match=OUTSIDE):
            sk.draw_rng(*place)


def test_a_loader_inside_of_a_dataset_has_draws_of_its_own(expected):
    class Nested(Noise):
        def __getitem__(self, index):
            before = number(sk.draw_rng())
            assert read(Noise()) == expected
            return index, before, number(sk.draw_rng())

    assert read(Nested()) == expected


class Items:
    """What a reader returns: a sequence whose items run user code."""

    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 6

    def __getitem__(self, row):
        return row, number(sk.draw_rng()), random.random()


def items_of(path):
    return Items(path)


def of_files(folder):
    return sk.FileDataset([folder / "a", folder / "b"], items_of, progress=False)


def of_shards(folder):
    with sk.TarWriter(str(folder / "%d.tar"), samples_per_shard=6) as writer:
        for n in range(12):
            writer.write({"__key__": f"{n}", "cls": n})
    shards = sk.TarDataset(str(folder / "*.tar"), cache=folder, progress=False)
    return shards.decode().map(lambda sample: (sample["cls"] % 6, number(sk.draw_rng()), random.random()))


@pytest.fixture(params=[of_files, of_shards])
def dataset(request, tmp_path):
    for name in "ab":
        (tmp_path / name).touch()
    with request.param(tmp_path) as ours:
        yield ours


def test_our_datasets_enter_the_draw_of_each_sample_of_a_batch(dataset):

    class OneByOne(Noise):
        def __getitem__(self, index):
            return dataset[index]

    for seed_draws in (False, True):
        options = {"seed_draws": seed_draws, "sampler": sk.WeightedRandomSampler([1.0] * 12, 24)}
        together, alone = read(dataset, **options), read(OneByOne(), **options)
        part = read(Subset(dataset, range(12)), **options)
        assert [sample[:2] for sample in together] == [sample[:2] for sample in alone]
        assert (together == alone == part) is seed_draws
        assert len({drawn for _, drawn, _ in together}) == 24


def test_inside_of_another_dataset_our_datasets_enter_no_draws(dataset):

    class Backwards(Noise):
        def __getitems__(self, ids):
            return dataset.__getitems__(ids[::-1])[::-1]

    class Within(Noise):
        def __getitem__(self, index):
            before = number(sk.draw_rng())
            return before, dataset.__getitems__([index])[0][:2], number(sk.draw_rng())

    with pytest.raises(sk.SamplerkitError, match="must be given where a batch is read as a whole"):
        read(Backwards())
    samples = read(Within(), batch_size=1)
    assert samples == read(Within())
    assert len({drawn for before, (_, inner), after in samples for drawn in (before, inner, after)}) == 36
