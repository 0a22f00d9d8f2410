"""What users of other loaders have reported, tried on this one: docs/reliability.md has the list.

Each test is written from the description of a report; none of its code is taken.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.compat import megatron
from tests.loading.numbers import epoch_ids, ids_of, numbers_loader
from tests.loading.worker_kinds import with_workers
from tests.numbers import Made


def read(loader):
    """The ids of an epoch, one after another."""
    return sum(ids_of(loader), [])


def random_states():
    """The states of the generators of this process."""
    numpy_state = np.random.get_state()[1].tolist()  # noqa: NPY002  # what other people's code draws from
    return torch.get_rng_state().tolist(), random.getstate(), numpy_state


@pytest.mark.parametrize("workers", [0, 2, "2 threads"])
def test_reading_another_loader_changes_neither_the_order_nor_the_random_states(workers):
    """torch: a validation epoch changed in which order the training set was read next."""
    train, validation = (
        numbers_loader(20),
        numbers_loader(9, sampler=sk.SequentialSampler(), **with_workers(workers)),
    )
    before = random_states()
    with validation:
        for epoch in range(2):
            assert read(train) == epoch_ids(20, epoch)
            assert read(validation) == list(range(9))
    assert random_states() == before


@pytest.mark.parametrize("persistent", [False, True])
def test_epochs_with_more_workers_than_batches_end(persistent):
    """MosaicML Streaming: the second epoch hung, while some workers were done with the first."""
    with numbers_loader(7, num_workers=5, persistent_workers=persistent, timeout=60) as loader:
        assert [read(loader)[:7] for _ in range(4)] == [epoch_ids(7, epoch) for epoch in range(4)]


@pytest.mark.parametrize(
    "kind", [megatron.MegatronPretrainingSampler, megatron.MegatronPretrainingRandomSampler]
)
def test_consumed_samples_of_megatron_shorten_the_first_epoch_only(kind):
    """Megatron-Bridge, by the replays of Megatron's own samplers."""
    loader = numbers_loader(16, sampler=kind(2, 1, consumed_samples=6), batch_size=2)
    first, *later = (read(loader) for _ in range(3))
    assert len(set(first)) == len(first) == 10
    assert [sorted(epoch) for epoch in later] == [list(range(16))] * 2


def test_each_epoch_has_an_iterator_of_its_own():
    """TorchRec: a pipeline knows a new epoch by a new iterator, and persistent workers kept the old one."""
    with numbers_loader(12, num_workers=2, persistent_workers=True) as loader:
        epochs = [iter(loader)]
        for epoch in range(3):
            assert sum(epochs[-1], []) == [(index, epoch) for index in epoch_ids(12, epoch)]
            assert next(epochs[-1], None) is None
            epochs.append(iter(loader))
        assert len({id(iterator) for iterator in epochs}) == 4


def test_a_resume_reads_nothing_that_was_read_before():
    """transformers: a resume read through all batches that it skipped, for hours."""
    read_ids = []
    dataset = Made(3000, lambda index: read_ids.append(index) or index)
    first, resumed = (sk.Loader(dataset, sk.RandomSampler(seed=3), batch_size=3) for _ in range(2))
    resumed.load_state_dict(first.state_dict(step=990))
    assert sum((batch.tolist() for batch in resumed), []) == epoch_ids(3000, 0)[2970:]
    assert read_ids == epoch_ids(3000, 0)[2970:]


@pytest.mark.parametrize("workers", [2, "2 threads"])
def test_workers_that_live_already_follow_a_state_that_is_loaded(workers):
    """TorchEasyRec: workers that were started before a state was loaded read from the beginning."""
    first = numbers_loader(30)
    batches = iter(first)
    for _ in range(7):
        next(batches)
    with numbers_loader(30, **with_workers(workers), persistent_workers=True) as resumed:
        assert read(resumed) == epoch_ids(30, 0)
        resumed.load_state_dict(first.state_dict())
        assert read(resumed) == epoch_ids(30, 0)[21:]
        assert read(resumed) == epoch_ids(30, 1)
