"""The arguments of the drop-in for PartiallyShuffle: what need not be right, and what is refused."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.compat.partially_shuffle import DistributedSamplerViaLocallyShuffle
from tests.compat.partially_shuffle_files import (
    EQUAL,
    UNEQUAL,
    VERSIONS,
    flat,
    ids_of,
    items_of,
    make_dataset,
    make_sampler,
)


@pytest.fixture(name="folder", scope="module")
def fixture_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    make_dataset(folder, UNEQUAL)
    return folder


@pytest.fixture(name="dataset")
def fixture_dataset(folder):
    return make_dataset(folder, UNEQUAL)


@pytest.mark.parametrize("total_size", [None, sum(UNEQUAL), 7, 10**10])
def test_the_total_size_need_not_be_right(dataset, caplog, total_size):
    sampler = DistributedSamplerViaLocallyShuffle(
        dataset, dataset.file_reader("npz"), 2, 1, True, 60, total_size, 8
    )
    assert items_of(sampler) == items_of(make_sampler(dataset, 2, 1))
    assert len(sampler) == -(-sum(UNEQUAL) // 2)
    is_wrong = total_size not in {None, sum(UNEQUAL)}
    assert [str(total_size) in record.getMessage() for record in caplog.records] == [True] * is_wrong


def test_lengths_that_are_told_are_not_counted_and_others_are_ignored(dataset):
    known = dict(zip(dataset.files, UNEQUAL, strict=True))
    sampler = make_sampler(dataset, files_len={**known, "another.npz": 5})
    assert len(sampler) == sum(UNEQUAL)
    assert dataset.counted == []
    some = make_sampler(dataset, files_len=dict(list(known.items())[:60]))
    assert items_of(some) == items_of(sampler)
    assert sorted(dataset.counted) == dataset.files[60:]
    assert some.stats.files_counted == 4


def test_a_wrong_length_is_an_error_that_names_the_file(dataset):
    wrong = {**dict(zip(dataset.files, UNEQUAL, strict=True)), dataset.files[5]: 99}
    with pytest.raises(sk.DatasetError, match=r"005\.npz: has 36 samples, but 99 were given"):
        items_of(make_sampler(dataset, files_len=wrong))


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


def test_a_reader_that_fails_is_an_error_that_names_the_file(dataset):
    inner = dataset.file_reader("npz")

    def reader(filename, get_data=False):
        if get_data and filename.endswith("007.npz"):
            raise OSError("the disk is gone")
        return inner(filename, get_data)

    with pytest.raises(sk.DatasetError, match=r"007\.npz: cannot be read \(OSError: the disk is gone\)"):
        items_of(make_sampler(dataset, reader=reader))


def test_an_array_of_which_rows_cannot_be_taken_is_an_error_that_names_the_file(dataset):
    class Refuses:
        shape = (36,)

        def __getitem__(self, rows):
            raise TypeError("rows must ascend")

    sampler = make_sampler(dataset, reader=lambda path: {"x": Refuses()}, files_len=None)
    with pytest.raises(sk.DatasetError, match=r"\d+\.npz: .*\(TypeError: rows must ascend\)"):
        next(iter(sampler))


def test_without_a_shuffle_buffer_it_is_as_large_as_the_files_in_memory_allow(tmp_path):
    dataset = make_dataset(tmp_path, EQUAL)
    for version in VERSIONS:
        dataset.read.clear()
        read = items_of(make_sampler(dataset, version=version, shuffle_buffer=None))
        assert len(dataset.read) == 64
        displaced = [len({id // 25 for id in flat(read[n : n + 10])}) for n in range(0, 190, 10)]
        assert min(displaced) >= 8


def test_debugging_logs_the_files_that_are_read(dataset, caplog):
    with caplog.at_level(logging.INFO, "samplerkit"):
        items_of(make_sampler(dataset, 4, 0))
        assert caplog.records == []
        items_of(make_sampler(dataset, 4, 0, debug=True))
    assert len(caplog.records) == len(dataset.read) / 2


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
    "a rank too high": (lambda: some(num_replicas=2, rank=2), RuntimeError, "shard_id"),
    "a float for a size": (lambda: some(batch_size=2.0), TypeError, "batch_size"),
    "an empty batch": (lambda: some(batch_size=0), RuntimeError, "batch_size"),
    "an empty buffer": (lambda: some(shuffle_buffer=0), RuntimeError, "shuffle_buffer"),
    "no file in memory": (lambda: some(file_buffer=0), RuntimeError, "file_buffer"),
    "three pools": (lambda: some(pools=3), RuntimeError, "pools"),
    "a negative seed": (lambda: some(seed=-1), ValueError, "seed"),
    "a list of lengths": (lambda: some(files_len=[3]), TypeError, "files_len"),
    "text as length": (lambda: some(files_len={"a": "3"}), TypeError, r"files_len\['a'\]"),
    "no reader": (lambda: some(reader=None), TypeError, "reader"),
    "a negative epoch": (lambda: some().set_epoch(-1), ValueError, "epoch"),
    "a negative step": (lambda: some().find_ckpt_position(-1), ValueError, "step"),
}


def some(**named):
    named = {"reader": "npz", "num_replicas": 1, "rank": 0, **named}
    return DistributedSamplerViaLocallyShuffle(SimpleNamespace(files=["a"]), **named)


@pytest.mark.parametrize(("call", "kind", "place"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_errors_that_name_the_place(call, kind, place):
    with pytest.raises(kind, match=place) as caught:
        call()
    assert isinstance(caught.value, sk.SamplerkitError)


def test_an_error_ends_no_sampler(dataset):
    sampler = make_sampler(dataset)
    first = next(iter(sampler))
    with pytest.raises(ValueError, match="step"):
        sampler.find_ckpt_position(-3)
    assert ids_of(next(iter(sampler))) == ids_of(first)
