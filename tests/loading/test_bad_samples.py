"""Samples that cannot be read: an error that names them, or a counted skip that keeps the steps."""

import logging

import numpy as np
import pytest
import torch

import samplerkit as sk
from samplerkit.loading.workers.protocol import Answer
from tests.loading.worker_kinds import with_workers
from tests.numbers import Damaged, Made

BAD = {4, 7, 8}


DAMAGED = Damaged(sk.Layout(20), BAD)


class DamagedInBatches(Damaged):
    """Reads whole batches, and fails as a whole."""

    def __getitems__(self, ids):
        return [self[index] for index in ids.tolist()]


class BatchesOnly(torch.utils.data.Dataset):
    """Has no `__getitem__` of its own."""

    def __len__(self):
        return 20

    def __getitems__(self, ids):
        return [DAMAGED[index] for index in ids.tolist()]


@pytest.mark.parametrize("workers", [0, "2 threads"])
@pytest.mark.parametrize(
    "wrapped", [lambda dataset: dataset, lambda dataset: sk.TreeDataset({"all": dataset})]
)
def test_an_error_that_a_dataset_keeps_and_raises_again_has_each_note_once(workers, wrapped):
    error = OSError("the disk is gone")

    def fails(_):
        raise error

    loader = sk.Loader(wrapped(Made(1, fails)), sk.SequentialSampler(), batch_size=1, **with_workers(workers))
    for _ in range(3):
        with loader, pytest.raises(OSError, match="the disk is gone"):
            list(loader)
    assert sorted(set(error.__notes__)) == sorted(error.__notes__)


def require_skips(loader, size, bad, reason, caplog):
    """Of batches of three in storage order, what is bad is left out, counted and logged; the steps stay."""
    with loader, caplog.at_level(logging.WARNING, "samplerkit"):
        batches = []
        for batch in loader:
            batches.append([int(index) for index in batch])
            assert batches[-1] == loader.ids(loader.step - 1).tolist()
            assert loader.pads(loader.step - 1).size == len(batches[-1])
    assert len(batches) == len(loader) == -(-size // 3)
    assert sum(batches, []) == [index for index in range(size) if index not in bad]
    assert [(skip.id, skip.epoch, skip.place) for skip in loader.skipped] == [
        (i, 0, i % 3) for i in sorted(bad)
    ]
    assert f"sample 7 of epoch 0 was skipped: {reason}" in caplog.text


@pytest.mark.parametrize(
    "dataset",
    [
        DAMAGED,
        DamagedInBatches(sk.Layout(20), BAD),
        BatchesOnly(),
        sk.TreeDataset({"all": BatchesOnly()}),
    ],
)
@pytest.mark.parametrize("workers", [0, 2, "2 threads"])
@pytest.mark.parametrize("options", [{}, {"collate_fn": torch.tensor}])
def test_skipped_samples_are_counted_and_the_steps_stay(dataset, workers, options, caplog):
    loader = sk.Loader(
        dataset, sk.SequentialSampler(), batch_size=3, **with_workers(workers), bad_samples="skip", **options
    )
    require_skips(loader, 20, BAD, "OSError: sample 7 is damaged", caplog)


def test_the_latest_ten_thousand_skipped_samples_are_kept_and_all_are_counted(caplog):
    loader = sk.Loader(
        Damaged(sk.Layout(5_100), range(5_099)), sk.SequentialSampler(), batch_size=5_100, bad_samples="skip"
    )
    with caplog.at_level(logging.ERROR, "samplerkit"):
        assert [batch.tolist() for _ in range(2) for batch in loader] == [[5_099]] * 2
    assert loader.stats.skipped == 10_198
    assert [(skip.epoch, skip.id) for skip in (loader.skipped[0], loader.skipped[-1])] == [
        (0, 198),
        (1, 5_098),
    ]
    assert len(loader.skipped) == 10_000


def test_only_skips_of_batches_that_were_handed_out_are_counted():
    loader = sk.Loader(DAMAGED, sk.SequentialSampler(), batch_size=3, num_workers=1, bad_samples="skip")
    with loader:
        next(iter(loader))
        assert loader.skipped == ()


def test_a_batch_without_a_good_sample_is_an_error():
    loader = sk.Loader(DAMAGED, sk.SubsetSampler([4, 7, 8]), batch_size=3, bad_samples="skip")
    with pytest.raises(sk.DatasetError, match="none of the samples of the batch in step"):
        list(loader)


def test_the_batch_of_an_answer_is_pinned_by_torchs_rules():
    pinned = Answer([np.arange(2), "text"]).pin_memory()
    assert pinned.batch[1] == "text"


class OtherNumber(list):
    """Gives what a function makes of the samples of a batch."""

    def __init__(self, given):
        super().__init__(range(12))
        self.given = given

    def __getitems__(self, ids):
        return self.given(ids)


@pytest.mark.parametrize("workers", [0, 1, "2 threads"])
@pytest.mark.parametrize(
    "given",
    [
        lambda ids: ids[1:].tolist(),
        lambda ids: (*ids, 7),
        lambda ids: [],
        lambda ids: ids[1:],
        lambda ids: torch.zeros(3, 2),
        lambda ids: [torch.tensor(1)] * 3,
    ],
)
def test_a_dataset_that_gives_more_or_fewer_samples_of_a_batch_is_an_error_or_read_one_by_one(given, workers):
    loader = sk.Loader(OtherNumber(given), batch_size=4, **with_workers(workers))
    with pytest.raises(sk.DatasetError, match="__getitems__: must give one sample for each of 4 ids"):
        next(iter(loader))
    loader = sk.Loader(OtherNumber(given), batch_size=4, bad_samples="skip", **with_workers(workers))
    assert [id for batch in loader for id in batch.tolist()] == [*range(12)]


def test_a_batch_may_be_columns_or_have_samples_along_another_axis():
    for given in (lambda ids: (ids, ids + 1), lambda ids: torch.zeros(7, len(ids)), lambda ids: {"n": 3}):
        loader = sk.Loader(OtherNumber(given), batch_size=4, collate_fn=lambda batch: batch)
        assert len(list(loader)) == 3
