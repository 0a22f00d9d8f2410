"""The drop-in for PartiallyShuffle: its order, items, files and arguments."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils.data import Sampler

import samplerkit as sk
from samplerkit.compat.partially_shuffle import DistributedSamplerViaLocallyShuffle
from tests.compat.partially_shuffle.folders import (
    EQUAL,
    UNEQUAL,
    VERSIONS,
    all_ranks,
    flat,
    ids_of,
    items_of,
    make_dataset,
    make_sampler,
    repeats,
)

SIZES = {"equal": EQUAL, "unequal": UNEQUAL, "with empty ones": [0, 40, 0, 0, 13, 60, 0], "few": [1, 2]}


@pytest.fixture(name="datasets", scope="module")
def fixture_datasets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    return {name: make_dataset(folder / name, sizes) for name, sizes in SIZES.items()}


@pytest.fixture(name="dataset")
def fixture_dataset(datasets):
    dataset = datasets["unequal"]
    dataset.read.clear()
    dataset.counted.clear()
    return dataset


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("name", SIZES)
def test_ranks_read_each_sample_once_and_fewer_samples_than_ranks_twice(datasets, name, ranks, version):
    size = sum(SIZES[name])
    for epoch in (0, 5):
        read = all_ranks(datasets[name], ranks, epoch, version=version)
        share = -(-size // ranks)
        assert [len(flat(items)) for items in read] == [share] * ranks
        assert repeats(read, size) == share * ranks - size < ranks


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["equal", "unequal"])
def test_each_rank_reads_each_of_its_files_once(datasets, name, version):
    dataset = datasets[name]
    for epoch in range(3):
        dataset.read.clear()
        buffer = 8 * version  # see docs/files.md: two pools go back and forth between four times as many
        samplers = [make_sampler(dataset, 4, rank, version=version, file_buffer=buffer) for rank in range(4)]
        for sampler in samplers:
            sampler.set_epoch(epoch)
            assert len(items_of(sampler)) > 0
        assert len(set(dataset.read)) == 64
        assert len(dataset.read) <= 64 + 4
        assert len(dataset.read) == sum(sampler.stats.files_read for sampler in samplers)
        assert max(sampler.stats.peak_files for sampler in samplers) <= buffer + 1


def test_with_too_small_a_buffer_files_are_read_again_with_a_warning(dataset, caplog):
    sampler = make_sampler(dataset, shuffle_buffer=300, file_buffer=2)
    assert sorted(flat(items_of(sampler))) == list(range(sum(UNEQUAL)))
    assert sampler.stats.files_read > 3 * 64
    (message,) = (record.getMessage() for record in caplog.records)
    assert "files are read again and again" in message
    assert "(file_buffer + 1=3)" in message
    assert "partial_size" not in message, "an argument that this sampler does not have"


def test_an_item_is_a_list_of_arrays_by_file_none_and_the_files(dataset):
    sampler = make_sampler(dataset, batch_size=32)
    assert isinstance(sampler, Sampler)
    files_read = set()
    for item in sampler:
        arrays, labels, files = item
        assert isinstance(item, list)
        assert labels is None
        assert len(arrays) == len(files) == len(set(files)) > 0
        for part, file in zip(arrays, files, strict=True):
            with np.load(file) as loaded:
                assert set(part) == set(loaded)
                for key in part:
                    assert isinstance(part[key], np.ndarray)
                    assert np.array_equal(part[key], loaded[key][part["row"]])
            files_read.add(file)
    assert files_read == set(dataset.files)


def test_without_shuffle_each_rank_reads_its_rows_and_the_last_one_wraps_around(datasets):
    size = sum(UNEQUAL)
    for ranks in (1, 3, 5):
        share = -(-size // ranks)
        read = all_ranks(datasets["unequal"], ranks, epoch=2, shuffle=False)
        assert flat(map(flat, read)) == [row % size for row in range(ranks * share)]


@pytest.mark.parametrize("version", VERSIONS)
def test_if_ranks_divide_the_samples_the_order_is_that_of_distributed_sampler(datasets, version):
    layout = sk.Layout(EQUAL)
    for rank in range(4):
        recipe = sk.DistributedSampler(4, rank, "partial", seed=9, partial_size=60, pools=version)
        order = recipe.order(layout, epoch=3)
        sampler = make_sampler(datasets["equal"], 4, rank, version=version, seed=9)
        sampler.set_epoch(3)
        # Within a batch, the samples of a file are together.
        read = items_of(sampler)
        assert [sorted(ids) for ids in read] == [sorted(order[k : k + 8].tolist()) for k in range(0, 400, 8)]


def test_the_dataset_is_reset_before_each_epoch_and_may_list_other_files_then(tmp_path):
    dataset = make_dataset(tmp_path, [5, 6, 7])
    everything, listed = dataset.files, dataset.files[:1]

    def reset():
        dataset.resets += 1
        dataset.files = everything[: dataset.resets]

    dataset.files, dataset.reset = listed, reset
    sampler = make_sampler(dataset)
    assert [len(flat(items_of(sampler))) for _ in range(3)] == [5, 11, 18]
    assert sorted(dataset.counted) == everything


def test_a_started_iteration_keeps_its_files_if_the_dataset_lists_others(tmp_path):
    dataset = make_dataset(tmp_path, [5, 6, 7])
    everything = dataset.files
    sampler = make_sampler(dataset, batch_size=2)
    expected = items_of(sampler)
    sampler.set_epoch(0)
    items = iter(sampler)
    read = [ids_of(next(items))]
    dataset.files = everything[::-1]
    assert sampler.state_dict()["position"] == 2
    assert [*read, *map(ids_of, items)] == expected


@pytest.mark.parametrize("total_size", [sum(UNEQUAL), 7])
def test_the_total_size_need_not_be_right(dataset, total_size):
    sampler = DistributedSamplerViaLocallyShuffle(
        dataset, dataset.file_reader("npz"), 2, 1, True, 60, total_size, 8
    )
    assert items_of(sampler) == items_of(make_sampler(dataset, 2, 1))
    assert len(sampler) == -(-sum(UNEQUAL) // 2)


def test_files_with_given_lengths_are_not_counted_and_unlisted_files_are_ignored(dataset):
    lengths = dict(zip(dataset.files, UNEQUAL, strict=True))
    sampler = make_sampler(dataset, files_len={**lengths, "another.npz": 5})
    assert len(sampler) == sum(UNEQUAL)
    assert dataset.counted == []
    partly = make_sampler(dataset, files_len=dict(list(lengths.items())[:60]))
    assert items_of(partly) == items_of(sampler)
    assert sorted(dataset.counted) == dataset.files[60:]
    assert partly.stats.files_counted == 4


def with_kwargs(inner):
    def wrapper(*positional, **named):
        return inner(*positional, **named)

    return wrapper


def tensors(path):
    with np.load(path) as arrays:
        return {key: torch.from_numpy(arrays[key]) for key in arrays}


def test_readers_may_be_wrapped_named_or_give_tensors(dataset):
    expected = items_of(make_sampler(dataset))
    for reader in (with_kwargs(dataset.file_reader("npz")), "npz", tensors):
        assert items_of(make_sampler(dataset, reader=reader)) == expected
    arrays = next(iter(make_sampler(dataset, reader=tensors)))[0][0]
    assert {type(array) for array in arrays.values()} == {torch.Tensor}


def test_the_default_shuffle_buffer_is_as_large_as_the_files_in_memory_allow(tmp_path):
    dataset = make_dataset(tmp_path, EQUAL)
    for version in VERSIONS:
        dataset.read.clear()
        read = items_of(make_sampler(dataset, version=version, shuffle_buffer=None))
        assert len(dataset.read) == 64
        displaced = [len({id // 25 for id in flat(read[n : n + 10])}) for n in range(0, 190, 10)]
        assert min(displaced) >= 8


WRONG = {
    "no files": (lambda: make_sampler(object(), reader="npz"), TypeError, "dataset"),
    "no paths": (
        lambda: len(make_sampler(SimpleNamespace(files=[1]), reader="npz")),
        TypeError,
        r"files\[0\]",
    ),
    "an empty list": (
        lambda: len(make_sampler(SimpleNamespace(files=[]), reader="npz")),
        RuntimeError,
        "files",
    ),
    "a rank too high": (lambda: make(num_replicas=2, rank=2), RuntimeError, "shard_id"),
    "a float for a size": (lambda: make(batch_size=2.0), TypeError, "batch_size"),
    "no file in memory": (lambda: make(file_buffer=0), RuntimeError, "file_buffer"),
    "a list of lengths": (lambda: make(files_len=[3]), TypeError, "files_len"),
    "no reader": (lambda: make(reader=None), TypeError, "reader"),
}


def make(**named):
    named = {"reader": "npz", "num_replicas": 1, "rank": 0, **named}
    return DistributedSamplerViaLocallyShuffle(SimpleNamespace(files=["a"]), **named)


@pytest.mark.parametrize(("call", "kind", "place"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_errors_that_name_the_place(call, kind, place):
    with pytest.raises(kind, match=place) as caught:
        call()
    assert isinstance(caught.value, sk.SamplerkitError)
