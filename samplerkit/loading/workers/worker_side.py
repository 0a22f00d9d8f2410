"""A worker process, seen from within: how it begins, what it takes and gives, and its end with its parent.

A batch is pickled where it is made, so that what cannot be pickled is an error at its place, or skipped, and
unpickled when its turn comes. Small tensors are in the message, large ones in shared memory.
"""

from __future__ import annotations

import gc
import io
import multiprocessing
import multiprocessing.connection
import multiprocessing.util
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch._utils import ExceptionWrapper
from torch.multiprocessing import reductions  # its own reducers are registered first
from torch.utils.data._utils import signal_handling
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from samplerkit.errors import DatasetError, WorkerError
from samplerkit.loading.generators import seed_worker
from samplerkit.loading.workers.protocol import Request

_FOLDER_OF = "samplerkit_tempdir_of"

_LONGEST_BASE = 107 - len("/pymp-01234567/listener-01234567")
"""Bytes of a folder below which `multiprocessing` can have sockets: the path of one has 107 at most."""

_SHORT_FOLDER = "/tmp"  # noqa: S108  # each process makes a folder of its own there
"""Where they are when the folder for temporary files has too long a name."""

NUMBER_BYTES: Final = 8
"""Of the number of a task, behind each answer."""


def prepare_for_workers() -> None:
    """Makes the folder for the sockets of this process and its workers, which share one that serves.

    A worker's own would stay behind when the worker is killed. A folder that is inherited from the parent
    process is not deleted here: other processes still use it.

    Raises:
        WorkerError: the temporary folder has too long a name for sockets, and there is no other one.
    """
    config = _process_config()
    present = config.get("tempdir")
    if present is not None and len(os.fsencode(Path(present).parent)) <= _LONGEST_BASE:
        return
    # Workers that meet a longer name end in the middle of a batch, and the loop waits for them.
    wanted = tempfile.gettempdir()
    base = wanted if len(os.fsencode(wanted)) <= _LONGEST_BASE else _SHORT_FOLDER
    try:
        folder = config["tempdir"] = tempfile.mkdtemp(prefix="pymp-", dir=base)
    except OSError as error:
        problem = (
            f"is no folder for the sockets of workers, whose path may have {_LONGEST_BASE} bytes ({error})"
        )
        hint = "set TMPDIR to a shorter one that can be written to"
        raise WorkerError("TMPDIR", problem, wanted, hint=hint) from error
    config[_FOLDER_OF] = os.getpid()
    multiprocessing.util.Finalize(None, _remove_folder, (folder,), exitpriority=-100)


def _remove_folder(folder: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _process_config()["tempdir"] = None


def _process_config() -> dict[str, Any]:
    """The configuration that processes inherit which this one starts by `multiprocessing`."""
    config: dict[str, Any] = multiprocessing.current_process()._config  # type: ignore[attr-defined]
    return config


def end_with_parent() -> None:
    """Ends this worker process as soon as the process that started it is gone, however that ended.

    torch's own check takes up to five seconds. And nothing else ends it: where a queue sends SIGTERM to all
    processes of a job, as Slurm does, the workers continue, so that the loop can finish its step and save.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def leave_no_folder() -> None:
        config = _process_config()
        is_gone = bool(multiprocessing.connection.wait([parent.sentinel], 0))
        if is_gone and config.get(_FOLDER_OF) == parent.pid:
            shutil.rmtree(config["tempdir"], ignore_errors=True)

    def wait() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        leave_no_folder()
        os._exit(1)

    # The loop of the worker may end the process while the thread is in the middle of it.
    multiprocessing.util.Finalize(None, leave_no_folder, exitpriority=-100)

    def end_if_parent_asks() -> None:
        while signal.sigwaitinfo({signal.SIGTERM}).si_pid != parent.pid:
            pass
        os._exit(128 + signal.SIGTERM)

    if hasattr(signal, "sigwaitinfo"):
        # First of all: a thread that is there before would still be ended by the signal.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        threading.Thread(target=end_if_parent_asks, name="samplerkit-sigterm", daemon=True).start()
    threading.Thread(target=wait, name="samplerkit-parent", daemon=True).start()


class WorkerStart(NamedTuple):
    """What a worker process begins with.

    Args:
        maker: makes batches of requests, and pickles them.
        init: the `worker_init_fn` of the DataLoader.
        seed: of all workers, from which each has seeds of its own until it begins an epoch.
        number: of this one.
        num_workers: how many there are.
        requests: the pipe that brings requests.
        answers: the pipe that takes answers.
        is_over: a number that processes share: not 0 where the workers are asked to end.
    """

    maker: Any
    init: Callable[[int], None] | None
    seed: int
    number: int
    num_workers: int
    requests: Connection
    answers: Connection
    is_over: Any


def run_worker(start: WorkerStart) -> None:
    """Is what a worker process does: it answers requests until it is asked to end, or has no parent any more.

    A dataset finds here what it finds in a worker of torch's DataLoader: seeds, `get_worker_info`, one thread
    for torch's operations, and errors that say where they were raised.
    """
    # What its parent has left to the collector is not for a forked process to end: the end of a process group
    # of torch waits for threads that no fork takes along. And pages that are not collected stay shared.
    gc.freeze()
    signal_handling._set_worker_signal_handlers()  # type: ignore[attr-defined]  # they say what a SIGBUS means: a full /dev/shm
    end_with_parent()
    send_small_tensors()
    messages: SimpleQueue[io.BytesIO] = SimpleQueue()
    threading.Thread(
        target=_send, args=(start.answers, messages), name="samplerkit-answers", daemon=True
    ).start()
    where, failure = f"in worker process {start.number}", None
    with suppress(KeyboardInterrupt):  # the loop gets one too
        try:
            _begin(start)
        except Exception:
            failure = ExceptionWrapper(where=where)  # type: ignore[no-untyped-call]
        for number, request in iter(partial(_next_request, start), None):
            try:
                answer = failure or start.maker[request]
            except Exception:
                answer = ExceptionWrapper(where=where)  # type: ignore[no-untyped-call]
            message = answer if isinstance(answer, io.BytesIO) else pickled(answer)
            message.write(number.to_bytes(NUMBER_BYTES, "little"))
            messages.put(message)
            del request, answer, message  # nothing is held while it waits for the next one


def _begin(start: WorkerStart) -> None:
    torch.set_num_threads(1)
    seed_worker(start.seed, 0, 0, start.number)
    torch_worker._worker_info = torch_worker.WorkerInfo(
        id=start.number,
        num_workers=start.num_workers,
        seed=torch.initial_seed(),
        dataset=start.maker.reader.dataset,
    )
    if start.init is not None:
        with sendable_errors():
            start.init(start.number)


def _next_request(start: WorkerStart) -> tuple[int, Request] | None:
    """Waits for the next request and its number; None at the end."""
    try:
        numbered: tuple[int, Request] = ForkingPickler.loads(start.requests.recv_bytes())
    except (EOFError, OSError):  # the loop is gone, perhaps in the middle of a request
        return None
    return None if start.is_over.value else numbered


def _send(pipe: Connection, messages: SimpleQueue[io.BytesIO]) -> None:
    """Runs in a thread, so that a worker makes the next batch while the loop has not taken this one."""
    with suppress(OSError):  # the loop has closed its end
        while True:
            pipe.send_bytes(messages.get().getbuffer())


# What crosses between two processes.


SMALL: Final = 256 << 10
"""Bytes up to which copying through the pipe costs less than shared memory, whose file must be made, handed
over through a socket, and mapped: half as much at this size, the same at about 1 MiB."""


def pickled(value: Any) -> io.BytesIO:
    """Pickles a value for another process; raises what its pickling raises."""
    file, storages = _without_storages(value)
    end = file.tell()
    if storages:
        ForkingPickler(file).dump(storages)
    file.write(end.to_bytes(_END_BYTES, "little"))
    return file


def _without_storages(value: Any) -> tuple[io.BytesIO, list[torch.UntypedStorage]]:
    """Pickles a value without the storages of its tensors: they are sent behind all else.

    A large one opens a descriptor for the process that receives it, which would stay open if what comes
    behind it could not be pickled.
    """
    file, storages = io.BytesIO(), list[torch.UntypedStorage]()

    def left_out(storage: torch.UntypedStorage) -> Any:
        storages.append(storage)
        return _storage_at, (len(storages) - 1,)

    pickler = ForkingPickler(file)
    reducers: Any = pickler.dispatch_table
    reducers[torch.UntypedStorage] = left_out
    pickler.dump(value)
    return file, storages


_END_BYTES: Final = 8
_received = threading.local()


def _storage_at(number: int) -> torch.UntypedStorage:
    found: torch.UntypedStorage = _received.storages[number]
    return found


def unpickled(message: memoryview) -> Any:
    """Returns what was pickled; once only, since it may hold handles of shared memory."""
    storages = message[int.from_bytes(message[-_END_BYTES:], "little") : -_END_BYTES]
    try:
        if storages:
            _received.storages = ForkingPickler.loads(storages)
        return ForkingPickler.loads(message)
    finally:
        _received.storages = []


@contextmanager
def sendable_errors() -> Iterator[None]:
    """Replaces an exception whose class cannot be pickled, such as one that is defined in a function.

    Raises:
        DatasetError: in place of it.
    """
    try:
        yield
    except Exception as error:
        if not sending_error(type(error)):
            raise
        problem = f"raised {type(error).__qualname__}: {error}"
        hint = "define the exception class at the top level of a module, so that workers can send it"
        raise DatasetError("dataset", problem, hint=hint) from error


def sending_error(value: Any) -> str:
    """Returns the error where a value is pickled for another process; an empty string for nothing."""
    try:
        _without_storages(value)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def send_small_tensors() -> None:
    """Lets this worker process send small tensors within its messages.

    Tensors in shared memory stay there: somebody may want to share them. All else of a tensor is sent
    as torch does it, so that views of one storage stay views of one.
    """
    ForkingPickler.register(torch.UntypedStorage, _reduced)
    # torch's own makes a batch in shared memory at once.
    if default_collate_fn_map.get(torch.Tensor) is collate_tensor_fn:
        default_collate_fn_map[torch.Tensor] = _stacked


def _reduced(storage: torch.UntypedStorage) -> tuple[Any, ...]:
    if storage.device.type != "cpu" or storage.nbytes() > SMALL or storage.is_shared():
        as_before: tuple[Any, ...] = reductions.reduce_storage(storage)  # type: ignore[no-untyped-call]
        return as_before
    return _storage_of, (torch.empty(0, dtype=torch.uint8).set_(storage).numpy().tobytes(),)


def _storage_of(data: bytes) -> torch.UntypedStorage:
    found = torch.empty(len(data), dtype=torch.uint8)
    found.numpy()[:] = np.frombuffer(data, dtype=np.uint8)
    return found.untyped_storage()


def _stacked(
    batch: Sequence[torch.Tensor], *, collate_fn_map: dict[Any, Callable[..., Any]] | None = None
) -> torch.Tensor:
    """Stacks small tensors as torch does without workers, and all others as it does in workers."""
    first = batch[0]
    is_small = len(batch) * first.numel() * first.element_size() <= SMALL
    if is_small and type(first) is torch.Tensor and first.layout == torch.strided and not first.is_nested:
        found = torch.stack(tuple(batch))
        if found.dtype == first.dtype and not found.requires_grad:
            return found
    in_shared_memory: torch.Tensor = collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    return in_shared_memory
