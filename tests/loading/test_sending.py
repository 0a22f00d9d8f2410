"""Batches that cannot be sent from a worker process: an error at its place that names samples, or a skip."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

import samplerkit as sk
from tests.loading.test_bad_samples import require_skips
from tests.loading.worker_kinds import with_workers
from tests.numbers import Damaged, Made

pytestmark = pytest.mark.usefixtures("no_hang")


class Unpicklable:
    def __init__(self, index):
        self.index = index

    def __reduce__(self):
        raise OSError(f"image file {self.index} is truncated")


def refuse(index):
    raise ValueError(f"value {index} cannot be made again")


class Unloadable:
    """Can be pickled, and not be unpickled."""

    def __init__(self, index):
        self.index = index

    def __reduce__(self):
        return refuse, (self.index,)


class Some:
    """Sample i is i; bad ones are of another kind."""

    layout = sk.Layout([6, 6, 6, 6])

    def __init__(self, *bad, kind=Unpicklable):
        self.bad, self.kind = bad, kind

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return self.kind(index) if index in self.bad else index


WORKERS = [{"num_workers": 1}, {"num_workers": 2, "device": "cpu"}]
AFFINE = {"num_workers": 2, "file_affinity": True}


def loader_of(dataset, **options):
    options = {"collate_fn": list, "batch_size": 3} | options
    return sk.Loader(dataset, sk.SequentialSampler(), **options)


def with_lock_at_seven(batch):
    return [*batch, threading.Lock()] if 7 in batch else batch


def fails_at_seven(batch):
    if 7 in batch:
        raise ZeroDivisionError("in a collate function")
    return batch


class LocalErrors(Some):
    def __getitem__(self, index):
        class LocalError(Exception):
            """Cannot be pickled: a local class has no name to import."""

        if index == 7:
            raise LocalError("no sample 7")
        return index


def fails_to_start(_):
    class LocalError(Exception):
        """Cannot be pickled either."""

    raise LocalError("no start")


class InBatches(Some):
    def __getitems__(self, ids):
        raise OSError("the file is damaged")


NAMED = (
    r"cannot be sent from a worker .*\[10, 11\]",
    "the samples [9, 10, 11] of the batch in step 3 of epoch 0",
)
BATCH = (r"cannot be sent from a worker .*\[6, 7, 8\]", "")
UNLOADED = ("value 17 cannot be made again", "the samples [15, 16, 17] of the batch in step 5 of epoch 0")
COLLATED = ("in a collate function", "collating the samples [6, 7, 8] of the batch in step 2 of epoch 0")
READ = ("the file is damaged", "reading one of the samples [0, 1, 2] of the batch in step 0 of epoch 0")
UNREAD = ("sample 7 is damaged", "sample 7, at place 1 of the batch in step 2 of epoch 0")
TWO, LASTING = {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}
PLAIN = [*map(with_workers, (0, 1, "2 threads"))]
ANYWHERE = [*PLAIN, AFFINE, {"device": "cpu"}]
CASES = [
    *((Some(10, 11), kind, sk.DatasetError, NAMED, 9) for kind in WORKERS),
    (Some(10, 11, kind=lambda _: {"lock": threading.Lock()}), LASTING, sk.DatasetError, NAMED, 9),
    (Some(10, 11, kind=lambda index: (i for i in range(index))), TWO, sk.DatasetError, NAMED, 9),
    (Some(), {**TWO, "collate_fn": with_lock_at_seven}, sk.DatasetError, BATCH, 6),
    (Some(), {**TWO, "collate_fn": with_lock_at_seven, "bad_samples": "skip"}, sk.DatasetError, BATCH, 6),
    *((Some(17, kind=Unloadable), kind, ValueError, UNLOADED, 15) for kind in WORKERS),
    (Some(17, kind=Unloadable), {"num_workers": 3, "prefetch_factor": 4}, ValueError, UNLOADED, 15),
    (LocalErrors(), TWO, sk.DatasetError, ("LocalError: no sample 7", ""), 6),
    (
        LocalErrors(),
        {**TWO, "worker_init_fn": fails_to_start},
        sk.DatasetError,
        ("LocalError: no start", ""),
        0,
    ),
    *((Some(), {**kind, "collate_fn": fails_at_seven}, ZeroDivisionError, COLLATED, 6) for kind in ANYWHERE),
    *((InBatches(), kind, OSError, READ, 0) for kind in PLAIN),
    *((Damaged(sk.Layout(24), {7}), kind, OSError, UNREAD, 6) for kind in PLAIN),
]
"""A dataset, options, the error, its message and the note that names samples, how many samples precede."""


@pytest.mark.parametrize(("dataset", "options", "error", "texts", "before"), CASES)
def test_a_batch_that_cannot_be_made_or_sent_is_an_error_at_its_place_with_its_samples(
    dataset, options, error, texts, before
):
    received = []
    with loader_of(dataset, **options) as loader:
        with pytest.raises(error, match=texts[0]) as caught:
            for batch in loader:
                received += batch
        assert received == [*range(before)]
        assert loader.state_dict()["position"] == before
    assert texts[1] in "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


class Torn(Some):
    """Sample 3 cannot be read, and some cannot be sent."""

    def __getitem__(self, index):
        if index == 3:
            raise OSError("damaged")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [*WORKERS, AFFINE])
def test_samples_that_cannot_be_read_or_sent_are_skipped_and_the_steps_stay(workers, caplog):
    loader = loader_of(Torn(4, 7, 9), bad_samples="skip", **workers)
    reason = "TypeError: cannot be sent from a worker: OSError: image file 7 is truncated"
    require_skips(loader, 24, {3, 4, 7, 9}, reason, caplog)


def counts_descriptors(index):
    """A sample is the number of descriptors that its worker has open; each fourth cannot be pickled."""
    other = threading.Lock() if index % 4 == 3 else None
    return len([*Path("/proc/self/fd").iterdir()]), torch.zeros(100_000), other


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors are counted in /proc")
def test_shared_memory_of_a_batch_that_cannot_be_sent_is_closed():
    loader = sk.Loader(
        Made(800, counts_descriptors),
        sk.SequentialSampler(),
        batch_size=4,
        num_workers=1,
        bad_samples="skip",
        collate_fn=list,
    )
    with loader:
        descriptors = [sample[0] for batch in loader for sample in batch]
        assert len(loader.skipped) == 200
    assert len(descriptors) == 600
    assert max(descriptors) < 200  # it was eight more with each batch


def test_shared_memory_is_freed_with_its_batch():
    large = Made(24, lambda index: torch.full((200_000,), float(index)))
    with loader_of(large, collate_fn=None, num_workers=1) as loader:
        for batch in loader:
            assert batch.is_shared()
            assert shared_memory()
        del batch
        assert shared_memory() == []


def shared_memory():
    """What torch maps of it in this process."""
    return [line for line in Path("/proc/self/maps").read_text().splitlines() if "/shm/torch_" in line]
