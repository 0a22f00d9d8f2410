"""Batches that cannot be sent from a worker process, and workers that die: errors that name samples."""

import contextlib
import gc
import os
import resource
import signal
import socket
import sys
import threading
import time
from functools import partial
from multiprocessing import Pipe
from pathlib import Path

import pytest
import torch

import samplerkit as sk
from samplerkit.loading.workers.worker_side import _END, _ITEM, SMALL, receive, socket_of
from tests.loading.worker_kinds import with_workers
from tests.numbers import Damaged, Made, Numbers
from tests.waiting import LoadFreeTimer

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


class Some(Numbers):
    """Sample i is i; bad ones are of another kind."""

    def __init__(self, *bad, kind=Unpicklable):
        super().__init__(sk.Layout([6, 6, 6, 6]))
        self.bad, self.kind = bad, kind

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
    r"cannot be sent from a worker .*\[9, 10, 11\]",
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


SECONDS = 30
"""What an error may take; torch notices within 5 seconds, on a machine that does nothing else."""

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
    ("workers", "end", "code"),
    [
        (3, partial(signal.raise_signal, signal.SIGKILL), -9),
        (1, partial(signal.raise_signal, signal.SIGSEGV), -11),
        (1, partial(os._exit, 3), 3),
        (3, partial(sys.exit, 4), 4),
        (3, interrupt, 0),
    ],
)
def test_only_the_worker_that_died_first_is_named_with_its_own_reason(workers, end, code):
    loader = sk.Loader(deadly(end), sk.SequentialSampler(), batch_size=4, num_workers=workers)
    with loader, pytest.raises(sk.WorkerError, match="out of memory") as caught:
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


def test_a_descriptor_that_the_kernel_did_not_deliver_is_an_error_that_says_why():
    """As where the loop can open no more files."""
    loop_end, worker_end = Pipe()
    worker_end.send_bytes(_END.pack(1, 0))
    with loop_end, worker_end, socket_of(worker_end) as peer:
        peer.send(_ITEM.pack(True, SMALL))
        with pytest.raises(OSError, match="too many files are open"):
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
