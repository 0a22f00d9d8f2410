"""The class that people know: its interface, endless epochs, and none of its faults."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from samplerkit.compat.cuda_data_loader import CudaDataLoader
from tests.loading.device.threads import loading_threads
from tests.waiting import wait_until

SIZE = 10


class Shuffled(torch.utils.data.Sampler):
    """As torch's distributed sampler."""

    epoch = 0

    def __len__(self):
        return SIZE

    def __iter__(self):
        return iter(np.random.default_rng(self.epoch).permutation(SIZE).tolist())

    def set_epoch(self, epoch):
        self.epoch = epoch


class Labelled(torch.utils.data.Dataset):
    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return torch.full((2,), index), index


class Detections(torch.utils.data.Dataset):
    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        return torch.full((3, 4, 4), index), {"boxes": torch.ones(index % 3, 4), "image_id": index}


def labelled(**options):
    batches = DataLoader(Labelled(), 4, sampler=Shuffled(), **options)
    return CudaDataLoader(batches, torch.device("cpu"), queue_size=3)


def order(epoch):
    return np.random.default_rng(epoch).permutation(SIZE).tolist()


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"num_workers": 2, "persistent_workers": True}])
def test_each_epoch_has_each_sample_once_in_an_order_of_its_own(options):
    with labelled(**options) as loader:
        for epoch in range(4):
            read = []
            for images, labels in loader:
                assert images[:, 0].tolist() == labels.tolist()
                read += labels.tolist()
            assert read == order(epoch)
    assert loading_threads() == []


def test_next_gives_batches_over_the_end_of_epochs():
    with labelled() as loader:
        for epoch in range(3):
            read = [next(loader)[1].tolist(), loader.next()[1].tolist(), next(loader)[1].tolist()]
            assert sum(read, []) == order(epoch)
            with pytest.raises(StopIteration):
                next(loader)


def test_it_is_its_own_iterator_and_says_what_it_wraps():
    batches = DataLoader(Labelled(), 4, sampler=Shuffled())
    loader = CudaDataLoader(batches, "cpu", 5)
    assert iter(loader) is loader
    assert len(loader) == len(batches) == 3
    assert (loader.sampler, loader.dataset, loader.batch_sampler, loader.loader) == (
        batches.sampler,
        batches.dataset,
        batches.batch_sampler,
        batches,
    )
    assert (loader.device, loader.queue_size) == (torch.device("cpu"), 5)


def test_after_an_early_break_the_epoch_begins_anew():
    with labelled() as loader:
        for _ in range(2):
            for _, labels in loader:
                assert labels.tolist() == order(0)[:4]
                break
        assert sum((labels.tolist() for _, labels in loader), []) == order(0)
        next(loader)
        assert sum((labels.tolist() for _, labels in loader), []) == order(1)
        next(loader)
        loader.reset()
        assert next(loader)[1].tolist() == order(2)[:4]


def test_set_epoch_reaches_every_epoch():
    with labelled() as loader:
        for epoch in (3, 4, 9, 0):
            loader.set_epoch(epoch)
            assert sum((labels.tolist() for _, labels in loader), []) == order(epoch)


def test_a_state_goes_on_where_the_loop_was():
    with labelled() as loader:
        read = next(loader)[1].tolist()
        state = loader.state_dict()
    with labelled() as resumed:
        next(resumed)
        resumed.load_state_dict(state)
        assert read + sum((labels.tolist() for _, labels in resumed), []) == order(0)
        assert sum((labels.tolist() for _, labels in resumed), []) == order(1)


def test_detection_batches_stay_tuples_of_tensors_and_targets():
    batches = DataLoader(Detections(), 4, collate_fn=lambda samples: tuple(zip(*samples, strict=True)))
    loader = CudaDataLoader(batches, "meta")
    for _ in range(2):
        seen = 0
        for images, targets in loader:
            assert type(images) is type(targets) is tuple
            assert {image.device.type for image in images} == {"meta"}
            assert {target["boxes"].device.type for target in targets} == {"meta"}
            assert [target["image_id"] for target in targets] == list(range(seen, seen + len(images)))
            seen += len(images)
        assert seen == SIZE
    loader.close()


class Pair(NamedTuple):
    images: Any
    count: int


def test_named_tuples_numbers_and_none_are_what_they_were():
    loader = CudaDataLoader([Pair(torch.zeros(2), 3), None, 7, "text"], "meta")
    pair, *others = list(loader)
    assert type(pair) is Pair
    assert (pair.images.device.type, pair.count) == ("meta", 3)
    assert others == [None, 7, "text"]
    loader.close()


class Damaged(Labelled):
    def __getitem__(self, index):
        if index == 6:
            raise OSError("sample 6 is damaged")
        return super().__getitem__(index)


def test_an_error_is_raised_in_the_loop_and_the_next_epoch_begins_anew():
    loader = CudaDataLoader(DataLoader(Damaged(), 2), "cpu")
    for _ in range(2):
        read = []
        with pytest.raises(OSError, match="sample 6 is damaged"):
            for _, labels in loader:
                read += labels.tolist()  # what was read before the error counts
        assert read == [0, 1, 2, 3, 4, 5]
        assert loading_threads() == []


def test_a_loader_that_is_dropped_leaves_no_thread():
    loader = labelled()
    next(loader)
    assert len(loading_threads()) == 1
    del loader
    wait_until(lambda: loading_threads() == [])


@pytest.mark.parametrize(("size", "error"), [(0, sk.ArgumentRangeError), (True, sk.ArgumentTypeError)])
def test_a_bad_queue_size_is_refused(size, error):
    with pytest.raises(error):
        CudaDataLoader([], "cpu", size)


class Doubling(CudaDataLoader):
    """Moves by itself, and lets its parent do a part of it."""

    seen = ()

    def load_instance(self, sample):
        images, numbers = sample
        self.seen = (*self.seen, threading.current_thread().name)
        return {"images": super().load_instance(images) * 2, "numbers": numbers.tolist()}


@pytest.mark.parametrize(
    "wrap", [DataLoader, StatefulDataLoader, lambda *a: sk.Loader(*a[:1], None, batch_size=4)]
)
def test_what_a_subclass_makes_of_a_batch_is_what_the_loop_gets(wrap):
    batches = wrap(Labelled(), 4)
    with Doubling(batches, "cpu") as loader:
        assert loader.loader is batches
        assert len(loader) == 3
        for epoch in range(2):
            got = list(loader)
            assert sorted(n for batch in got for n in batch["numbers"]) == list(range(SIZE)), epoch
            assert all(
                batch["images"][:, 0].tolist() == [2 * number for number in batch["numbers"]] for batch in got
            )
        assert threading.current_thread().name not in loader.seen
        assert len(loader.seen) >= 6


def test_a_subclass_resumes_where_the_loop_was():
    first = Doubling(DataLoader(Labelled(), 4), "cpu")
    next(first)
    state = first.state_dict()
    first.close()
    second = Doubling(DataLoader(Labelled(), 4), "cpu")
    second.load_state_dict(state)
    assert [batch["numbers"] for batch in second] == [[4, 5, 6, 7], [8, 9]]
    second.close()


def test_a_subclass_that_is_dropped_leaves_no_thread():
    loader = Doubling(DataLoader(Labelled(), 4), "cpu")
    next(loader)
    assert loading_threads()
    del loader
    wait_until(lambda: not loading_threads())


def test_load_instance_can_be_called_and_gives_the_batch_on_the_device():
    loader = CudaDataLoader(DataLoader(Labelled(), 4), "meta")
    assert loader.load_instance([torch.ones(2), None, "cat"])[0].device.type == "meta"
