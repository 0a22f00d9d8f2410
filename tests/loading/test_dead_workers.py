"""A worker that is killed while it writes a batch is an error too, and not a loop that waits for ever."""

from __future__ import annotations

import os
import signal
import time

import pytest

import samplerkit as sk
from tests.own_seconds import OwnSeconds

SECONDS, AT_MOST = 5, 60
"""What an error may take, as torch does by itself at least, and a limit for a loop that hangs."""

LARGE = 8 << 20
"""Bytes of a sample: far more than a pipe takes at once, so that a worker waits in the middle of a batch."""


class Large:
    """Each sample is a long string of bytes, which travels through the pipe of the workers as it is."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index.to_bytes(2, "little") * (LARGE // 2)


def as_lists(batch):
    return batch


@pytest.fixture
def no_longer_than():
    """Raises in the test after some seconds, so that a loop that hangs is a failure."""

    def ring(*_):
        raise TimeoutError("the loop hangs")

    before = signal.signal(signal.SIGALRM, ring)
    yield signal.alarm
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("options", [{}, {"persistent_workers": True}, {"run_ahead": True}])
@pytest.mark.parametrize(("workers", "victim"), [(1, 0), (2, 0), (2, 1)])
def test_a_worker_that_is_killed_while_it_writes_a_batch_is_a_typed_error(
    no_longer_than, workers, victim, options
):
    """Of two workers one writes and the other one waits for it; which of them does which is not known."""
    loader = sk.Loader(
        Large(), sk.SequentialSampler(), batch_size=1, num_workers=workers, collate_fn=as_lists, **options
    )
    received = []
    no_longer_than(AT_MOST)
    with OwnSeconds() as own, loader, pytest.raises(sk.WorkerError, match="-9"):
        for (sample,) in loader:
            received.append(int.from_bytes(sample[:2], "little"))
            if len(received) == 1:
                time.sleep(0.3)
                os.kill(loader.worker_pids[victim], signal.SIGKILL)
                own.begin()
    assert own.seconds < SECONDS
    assert received == list(range(len(received)))
    assert loader.state_dict()["position"] == len(received) < len(loader)


def test_a_worker_that_its_own_process_ended_says_so_by_its_exit_code(no_longer_than):
    no_longer_than(AT_MOST)
    with sk.Loader(range(1000), sk.SequentialSampler(), batch_size=1, num_workers=1) as loader:
        batches = iter(loader)
        next(batches)
        os.kill(loader.worker_pids[0], signal.SIGTERM)
        with pytest.raises(sk.WorkerError, match=str(128 + signal.SIGTERM)):
            list(batches)
