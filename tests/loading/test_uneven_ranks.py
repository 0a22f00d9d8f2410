"""Samples that the ranks do not divide: the steps of each rank, and what metrics count."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

import samplerkit as sk
from tests.loading import numbers
from tests.loading.test_edits import ranks_of
from tests.loading.worker_kinds import with_threads_too, with_workers
from tests.numbers import Numbers

TAILS = ["pad", "drop", "ragged"]


def job(ranks, layout, tail, batch_size, **options):
    """The loaders of all ranks."""
    layout = sk.Layout(layout)
    sampler = sk.DistributedSampler(shuffle="files" if layout.has_files else "global", seed=3)
    options = {"batch_size": batch_size, "tail": tail, "collate_fn": list, **numbers.WORKERS, **options}
    return ranks_of(Numbers(layout), sampler, ranks, **options)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize(
    "as_layout", [lambda size: size, lambda size: [size // 5, 0, size - size // 5]], ids=["plain", "files"]
)
def test_ranks_have_equal_steps_or_differ_by_one_as_the_tail_says(as_layout, tail):
    uneven = 0
    for size, ranks, batch_size in product(range(1, 17, 3), range(1, 6), range(1, 4)):
        read = [list(loader) for loader in job(ranks, as_layout(size), tail, batch_size)]
        steps = [len(batches) for batches in read]
        samples = [sum(map(len, batches)) for batches in read]
        assert max(samples) - min(samples) <= (tail == "ragged")
        assert max(steps) - min(steps) <= (tail == "ragged")
        uneven += len(set(steps)) > 1
        if tail == "drop":
            assert {len(batch) for batches in read for batch in batches} <= {batch_size}
        if tail == "ragged":
            assert Counter(sum(sum(read, []), [])) == Counter(range(size))
    # The control: there are cases in which ranks would wait for one another if they had to.
    assert (uneven > 0) == (tail == "ragged")


@pytest.mark.parametrize(
    ("tail", "samples"), [("pad", [1, 1, 1, 1, 1]), ("drop", [0, 0, 0, 0, 0]), ("ragged", [1, 1, 0, 0, 0])]
)
@pytest.mark.parametrize(
    ("layout", "workers"),
    [(2, 0), ([1, 1], 0), ([0, 2, 0], "2 threads")],
    ids=str,
)
def test_fewer_samples_or_files_than_ranks_end_with_a_pad_each_or_empty(layout, tail, samples, workers):
    loaders = job(5, layout, tail, 3, **with_workers(workers))
    for _ in range(2):  # the second epoch begins where the first one ended
        assert [sum(len(batch) for batch in loader) for loader in loaders] == samples
    real = sum(int((~loader.pads(step)).sum()) for loader in loaders for step in range(loader.steps_left))
    assert real == (0 if tail == "drop" else 2)


@pytest.mark.parametrize("tail", TAILS)
def test_an_empty_dataset_is_an_empty_epoch(tail):
    for loader in job(2, 0, tail, 3):
        assert list(loader) == []
        assert loader.epoch == 1


@pytest.mark.parametrize(("ranks", "batch_size"), [(4, 2), (3, 4), (7, 3)])
@with_threads_too
def test_a_metric_without_the_pads_is_that_of_one_process_and_one_with_them_is_not(ranks, batch_size):
    size = 10
    masked, unmasked = Counter(), Counter()
    for loader in job(ranks, size, "pad", batch_size):
        for batch in loader:
            pads = loader.pads(loader.step - 1)
            masked.update(sample for sample, pad in zip(batch, pads, strict=True) if not pad)
            unmasked.update(batch)
    assert masked == Counter(range(size))
    assert unmasked != masked
    assert unmasked.total() == -(-size // ranks) * ranks
