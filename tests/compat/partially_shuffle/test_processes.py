"""The drop-in for PartiallyShuffle in other processes and in workers, and the end of its threads."""

from __future__ import annotations

import copy
import gc
import os
import pickle

import pytest
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.compat.partially_shuffle import DistributedSamplerViaLocallyShuffle
from tests.compat.partially_shuffle.folders import (
    all_ranks,
    flat,
    items_of,
    make_dataset,
    make_sampler,
)
from tests.storage.files.folders import reading_threads

SIZES = [20, 31, 7, 16] * 4


@pytest.fixture(name="dataset")
def fixture_dataset(tmp_path):
    return make_dataset(tmp_path, SIZES)


def test_workers_get_what_was_read_in_the_main_process(dataset):
    sampler = make_sampler(dataset, 2, 0)
    loader = DataLoader(
        dataset,
        batch_size=1,
        sampler=sampler,
        num_workers=2,
        collate_fn=dataset.collate,
        persistent_workers=True,
    )
    for epoch in range(2):
        read = [batch["id"].tolist() for batch in loader]
        sampler.set_epoch(epoch)
        assert read == items_of(sampler)
    assert dataset.processes == {os.getpid()}
    assert reading_threads() == []


def fail(sampler):
    with pytest.raises(KeyError):
        for item in sampler:
            item[0][0]["no such array"]


def close(sampler):
    iterator = iter(sampler)
    next(iterator)
    sampler.close()
    with pytest.raises(sk.DatasetError, match="closed"):
        next(iterator)


def drop(sampler):
    iterator = iter(sampler)
    next(iterator)
    del iterator


@pytest.mark.parametrize("leave", [fail, close, drop])
def test_no_thread_is_left(dataset, leave):
    sampler = make_sampler(dataset, batch_size=4)
    iterator = iter(sampler)
    next(iterator)
    assert len(reading_threads()) == 1
    del iterator
    leave(sampler)
    gc.collect()
    assert reading_threads() == []
    sampler.set_epoch(0)
    assert sorted(flat(items_of(sampler))) == list(range(sum(SIZES)))


def test_nothing_runs_and_nothing_is_opened_at_construction(tmp_path):
    dataset = make_dataset(tmp_path, [3])
    dataset.files = [str(tmp_path / "no such file.npz")]
    sampler = DistributedSamplerViaLocallyShuffle(dataset, dataset.file_reader("npz"), 1, 0)
    iterator = iter(sampler)
    assert reading_threads() == []
    assert dataset.counted == []
    with pytest.raises(sk.DatasetError, match="no such file"):
        next(iterator)


def pickled(sampler):
    return pickle.loads(pickle.dumps(sampler))  # noqa: S301  # our own


@pytest.mark.parametrize("duplicate", [copy.deepcopy, pickled])
def test_a_copy_is_independent(dataset, duplicate):
    sampler = make_sampler(dataset, reader="npz")
    iterator = iter(sampler)
    next(iterator)
    other = duplicate(sampler)
    assert items_of(other) == all_ranks(dataset, 1)[0]
    assert len(list(iterator)) == len(items_of(other)) - 1
