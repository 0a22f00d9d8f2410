"""A worker that is killed while it writes a batch is an error too, and not a loop that waits for ever."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import socket
import sys
import time
from functools import partial
from multiprocessing import Pipe

import pytest
import torch

import samplerkit as sk
from samplerkit.loading.workers.worker_side import _END, SMALL, receive
from tests.load_free_timer import LoadFreeTimer
from tests.numbers import Made

pytestmark = pytest.mark.usefixtures("no_hang")

SECONDS = 5
"""What an error may take, as torch does by itself at least."""

LARGE = 8 << 20
"""Bytes of a sample: far more than a pipe takes at once, so that a worker waits in the middle of a batch."""


def large(index):
    """A long string of bytes, which travels through the pipe of the workers as it is."""
    return index.to_bytes(2, "little") * (LARGE // 2)


@pytest.mark.parametrize(
    ("workers", "victim", "options"),
    [
        (1, 0, {}),
        (1, 0, {"multiprocessing_context": "spawn"}),
        (2, 0, {"persistent_workers": True}),
        (2, 1, {"run_ahead": True}),
    ],
)
def test_a_worker_that_is_killed_while_it_writes_a_batch_is_a_typed_error(workers, victim, options):
    """Of two workers one writes and the other one waits for it; which of them does which is not known."""
    loader = sk.Loader(
        Made(40, large), sk.SequentialSampler(), batch_size=1, num_workers=workers, collate_fn=list, **options
    )
    received = []
    with LoadFreeTimer() as timer, loader, pytest.raises(sk.WorkerError, match="-9"):
        for (sample,) in loader:
            received.append(int.from_bytes(sample[:2], "little"))
            if len(received) == 1:
                time.sleep(0.3)
                os.kill(loader.worker_pids[victim], signal.SIGKILL)
                timer.restart()
    assert timer.seconds < SECONDS
    assert received == list(range(len(received)))
    assert loader.state_dict()["position"] == len(received) < len(loader)


def deadly(end):
    """A dataset of which one sample ends its process."""

    def read(index):
        if index == 40:
            end()
        return index

    return Made(400, read)


def interrupt():
    raise KeyboardInterrupt


# Where a worker died, torch 2.4 opens ten files as a test, and leaves them to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize(
    ("workers", "end", "code", "hint"),
    [
        (3, partial(signal.raise_signal, signal.SIGKILL), -9, "lack of memory"),
        (1, partial(signal.raise_signal, signal.SIGSEGV), -11, "crash"),
        (1, partial(os._exit, 3), 3, "os._exit"),
        (3, partial(sys.exit, 4), 4, "sys.exit"),
        (3, interrupt, 0, "KeyboardInterrupt"),
    ],
)
def test_only_the_worker_that_died_first_is_named_with_its_own_reason(workers, end, code, hint):
    loader = sk.Loader(deadly(end), sk.SequentialSampler(), batch_size=4, num_workers=workers)
    with loader, pytest.raises(sk.WorkerError, match=hint) as caught:
        batches = iter(loader)
        received = next(batches).tolist()
        pids = loader.worker_pids
        for batch in batches:
            received += batch.tolist()
    assert received == list(range(len(received)))
    # Batches are dealt to the workers in turn.
    assert caught.value.value == {pids[10 % workers]: code}
    del caught
    gc.collect()


def dies_meanwhile(index):
    """The first batch never comes, as if its worker waited for the other one, which has died."""
    if index < 4:
        time.sleep(1000)
    signal.raise_signal(signal.SIGKILL)


def test_a_worker_that_dies_out_of_turn_is_an_error_though_the_others_never_end():
    loader = sk.Loader(Made(8, dies_meanwhile), sk.SequentialSampler(), batch_size=4, num_workers=2)
    with LoadFreeTimer() as timer, loader, pytest.raises(sk.WorkerError, match="-9"):
        next(iter(loader))
    assert timer.seconds < SECONDS


def test_a_worker_that_dies_before_it_sends_a_descriptor_has_ended():
    loop_end, worker_end = Pipe()
    worker_end.send_bytes(_END.pack(1, 0))
    worker_end.close()
    with loop_end, pytest.raises(EOFError):
        receive(loop_end)


def without_descriptors(index):
    """A tensor in shared memory; after the last one its process can open no more files."""
    tensor = torch.full((SMALL,), index).share_memory_()
    with contextlib.suppress(OSError):
        while index == 7:
            os.dup(0)
    return tensor


def few_descriptors(_):
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))


def test_a_worker_that_can_open_no_more_files_still_sends_what_it_has_made():
    options = {"worker_init_fn": few_descriptors, "collate_fn": list, "num_workers": 1}
    with sk.Loader(Made(8, without_descriptors), batch_size=1, **options) as loader:
        assert [int(tensor[0]) for (tensor,) in loader] == [*range(8)]


def test_a_worker_that_cannot_send_is_an_error_and_not_a_loop_that_waits():
    def break_sending(_):
        socket.send_fds = None

    dataset = Made(8, partial(torch.full, (SMALL,)))
    with (
        sk.Loader(dataset, batch_size=4, num_workers=1, worker_init_fn=break_sending) as loader,
        pytest.raises(sk.WorkerError, match=": 1}"),
    ):
        next(iter(loader))
