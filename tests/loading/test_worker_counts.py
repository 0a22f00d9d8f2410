"""The number and the kind of workers are in nothing that the loop receives, slow or resumed as they are."""

from __future__ import annotations

import inspect
import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import samplerkit as sk
from tests.loading.worker_kinds import beside
from tests.waiting import wait_until

SIZE, BATCH_SIZE, CUT = 60, 3, 7


class Uneven:
    """Every twelfth sample takes long, so that workers finish out of turn."""

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        if index % 12 == 0:
            time.sleep(0.05)
        return index


class Late:
    """One sample waits until another batch has come."""

    def __init__(self, sample, another_came):
        self.sample, self.another_came = sample, another_came

    def __getitem__(self, index):
        if index == self.sample:
            wait_until(self.another_came.exists)
        return index


def loader(workers):
    return sk.Loader(Uneven(), sk.RandomSampler(seed=3), batch_size=BATCH_SIZE, **beside(workers))


@pytest.mark.parametrize(
    ("workers", "new_workers"),
    [(0, 3), (1, 2), (2, 0), (3, 1), (2, "2 threads"), ("3 threads", 2), ("2 threads", 0)],
)
def test_a_resume_with_other_workers_goes_on_in_the_same_order(workers, new_workers):
    received = []
    with loader(workers) as first:
        for batch in first:
            received.append(batch.tolist())
            assert received[-1] == first.ids(first.step - 1).tolist()
            assert first.state_dict()["position"] == BATCH_SIZE * len(received)
            if len(received) == CUT:
                break
        state = first.state_dict()
    with loader(new_workers) as second:
        second.load_state_dict(state)
        epochs = [[batch.tolist() for batch in second] for _ in range(3)]
    epochs[0] = received + epochs[0]
    # Of the later epochs nothing is left out.
    for epoch, batches in enumerate(epochs):
        assert sum(batches, []) == np.asarray(sk.RandomSampler(seed=3).order(SIZE, epoch)).tolist()


@pytest.mark.skipif(
    "in_order" not in inspect.signature(DataLoader.__init__).parameters,
    reason=f"torch {torch.__version__} always hands out batches in order",
)
def test_workers_that_hand_out_batches_as_they_come_would_give_another_order(tmp_path):
    """The control: torch has such an option, and slow samples do make it show."""
    order = np.asarray(sk.RandomSampler(seed=3).order(SIZE)).tolist()
    batches = [order[first : first + BATCH_SIZE] for first in range(0, SIZE, BATCH_SIZE)]
    another_came = tmp_path / "another came"
    late = Late(order[0], another_came)
    received = []
    for batch in DataLoader(late, batch_sampler=batches, num_workers=3, in_order=False):
        received.append(batch.tolist())
        another_came.touch()
    assert sorted(received) == sorted(batches)
    assert received != batches
