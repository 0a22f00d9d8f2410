"""The class that people know: its interface, endless epochs, and none of its faults."""

import threading

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import samplerkit as sk
from samplerkit.compat.cuda_data_loader import CudaDataLoader
from tests.loading.device.kinds import SIZE, Shuffled, epoch_order, loading_threads
from tests.numbers import Made
from tests.waiting import wait_until

LABELLED = Made(SIZE, lambda index: (torch.full((2,), index), index))


def test_next_gives_batches_over_the_end_of_epochs():
    batches = DataLoader(LABELLED, 8, sampler=Shuffled())
    with CudaDataLoader(batches, torch.device("cpu"), queue_size=3) as loader:
        for epoch in (0, 1, 2, 9):
            loader.set_epoch(epoch)
            read = [next(loader)[1].tolist(), loader.next()[1].tolist(), next(loader)[1].tolist()]
            assert sum(read, []) == epoch_order(epoch)
            with pytest.raises(StopIteration):
                next(loader)


class Doubling(CudaDataLoader):
    """Moves by itself, and lets its parent do a part of it."""

    seen = ()

    def load_instance(self, sample):
        images, numbers = sample
        self.seen = (*self.seen, threading.current_thread().name)
        return {"images": super().load_instance(images) * 2, "numbers": numbers.tolist()}


@pytest.mark.parametrize(
    "wrap", [DataLoader, StatefulDataLoader, lambda *a: sk.Loader(*a[:1], None, batch_size=8)]
)
def test_the_loop_gets_the_batches_that_a_subclass_makes(wrap):
    batches = wrap(LABELLED, 8)
    with Doubling(batches, "cpu") as loader:
        assert loader.loader is batches
        assert len(loader) == 3
        for epoch in range(2):
            received = list(loader)
            assert sorted(n for batch in received for n in batch["numbers"]) == list(range(SIZE)), epoch
            assert all(
                batch["images"][:, 0].tolist() == [2 * number for number in batch["numbers"]]
                for batch in received
            )
        assert threading.current_thread().name not in loader.seen
        assert len(loader.seen) >= 6


@pytest.mark.parametrize("kind", [CudaDataLoader, Doubling])
def test_a_state_resumes_where_the_loop_was_and_a_loader_that_is_dropped_leaves_no_thread(kind):
    first = kind(DataLoader(LABELLED, 8, sampler=Shuffled()), "cpu")
    read = [numbers(next(first))]
    state = first.state_dict()
    second = kind(DataLoader(LABELLED, 8, sampler=Shuffled()), "cpu")
    next(second)
    second.load_state_dict(state)
    for epoch in range(2):
        read += [numbers(batch) for batch in second]
        assert sum(read, []) == epoch_order(epoch)
        read = []
    assert len(loading_threads()) == 2
    del first, second
    wait_until(lambda: loading_threads() == [])


def numbers(batch):
    return batch["numbers"] if isinstance(batch, dict) else batch[1].tolist()
