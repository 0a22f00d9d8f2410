"""A dataset that wants passes gets them with its ids, through workers, batches and resumes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import samplerkit as sk
from tests.loading.worker_kinds import THREADS

MIXTURE = {"weights": [3, 1], "num_samples": 90, "seed": 1}
LAYOUT = sk.Layout([10, 20])


class Passes:
    """Sample i is (i, its pass, a number of its draw)."""

    layout = LAYOUT
    wants_passes = True

    def __len__(self):
        return len(LAYOUT)

    def __getitem__(self, index):
        raise AssertionError("a pass cannot be told here")

    def __getitems__(self, ids, passes):
        assert ids.dtype == passes.dtype == np.int64
        return [
            (int(id), int(number), int(sk.draw_rng(place).integers(2**62)))
            for place, (id, number) in enumerate(zip(ids, passes, strict=True))
        ]


class PassesOfFew(Passes):
    """Fails in batches, and for one sample alone too."""

    def __getitems__(self, ids, passes):
        if 7 in ids:
            raise OSError("damaged")
        return super().__getitems__(ids, passes)


class Present(Passes):
    """Leaves out sample 7 by itself."""

    class There(list):
        stand_in = None
        missing = ()

    def read_present(self, ids, passes):
        there = [place for place in range(len(ids)) if ids[place] != 7]
        found = self.There(self.__getitems__(ids[there], passes[there]))
        found.missing = [(place, "", "left out") for place in range(len(ids)) if ids[place] == 7]
        return found


def loader(dataset, *, ranks=1, rank=0, sampler=None, **options):
    sampler = sk.MixtureSampler(**MIXTURE) if sampler is None else sampler
    options = {"batch_size": 12 // ranks, "collate_fn": list, **options}
    return sk.Loader(dataset, sampler, world=sk.World(ranks, rank), **options)


def read(dataset, **options):
    with loader(dataset, **options) as batches:
        return [sample for batch in batches for sample in batch]


def expected():
    order = sk.MixtureSampler(**MIXTURE).order(LAYOUT)
    return [*zip(order, order.passes_at(np.arange(90)).tolist(), strict=True)]


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, THREADS, {"seed_draws": True}, {"bad_samples": "skip"}]
)
def test_passes_come_with_the_ids(options):
    samples = read(Passes(), **options)
    assert [sample[:2] for sample in samples] == expected()
    assert len({number for _, number, _ in samples}) == 7


@pytest.mark.parametrize("dataset", [PassesOfFew(), Present()])
def test_samples_that_are_left_out_take_no_pass_from_others(dataset):
    samples = read(dataset, bad_samples="skip")
    assert [sample[:2] for sample in samples] == [pair for pair in expected() if pair[0] != 7]


@pytest.mark.parametrize("num_class", [2, 3])
def test_batches_of_classes_count_passes_over_each_class(num_class):
    recipe = sk.ClassBatches(num_class, 2, labels=np.arange(30) % 3, num_batches=60)
    with sk.Loader(Passes(), sk.RandomSampler(seed=1), batches=recipe, collate_fn=list) as batches:
        samples = [sample for batch in batches for sample in batch]
    assert len({(id, number) for id, number, _ in samples}) == len(samples) == 120 * num_class
    if num_class == 3:
        # Else a class that a round leaves out misses its turn, and some samples their pass.
        seen = Counter()
        for id, number, _ in samples:
            assert number == seen[id]
            seen[id] += 1
        assert {*seen.values()} == {12}


def test_a_dataset_that_wants_passes_and_reads_no_batches_is_refused():
    class Alone:
        wants_passes = True

        def __len__(self):
            return 3

        def __getitem__(self, index):
            return index

    with pytest.raises(sk.DatasetError, match=r"write __getitems__\(self, ids, passes\)"):
        read(Alone(), sampler=sk.SequentialSampler())


# Repeats are augmented anew each time.
