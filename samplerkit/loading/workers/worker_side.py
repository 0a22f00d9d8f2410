"""The code of a worker process: its start, its messages, and its end with its parent.

A batch is pickled where it is made, and unpickled when its turn comes. Small tensors are in the message,
large ones in shared memory, whose descriptors follow it.
"""

from __future__ import annotations

import errno
import gc
import io
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import struct
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch._utils import ExceptionWrapper
from torch.multiprocessing import reductions  # its own reducers are registered first
from torch.utils.data._utils import signal_handling
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from samplerkit.errors import DatasetError
from samplerkit.loading.generators import seed_worker
from samplerkit.loading.workers.protocol import Request

_END: Final = struct.Struct("<QQ")
"""The end of each message: how many items of shared memory follow it, and the number of its task."""

_CHECK_SECONDS: Final = 0.5
"""The interval at which a worker checks that its parent is there."""


def end_with_parent() -> None:
    """Ends this worker process as soon as the process that started it is gone, however that ended.

    torch's own check takes up to five seconds. A SIGTERM does not end it: where a queue sends one to all
    processes of a job, as Slurm does, the workers continue, so that the loop can finish its step and save.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    parent_pid = os.getppid()

    def wait() -> None:
        # Another process that the parent has forked keeps the sentinel open.
        while not multiprocessing.connection.wait([parent.sentinel], _CHECK_SECONDS):
            if os.getppid() != parent_pid:
                break
        os._exit(1)

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(target=wait, name="samplerkit-parent", daemon=True).start()


def run_worker(
    maker: Any,
    info: torch_worker.WorkerInfo,
    init: Callable[[int], None] | None,
    pipe: Connection,
    is_over: Any,
) -> None:
    """Runs a worker process: it answers requests until it should end, or its parent is gone.

    The environment is that of a worker of torch's DataLoader: seeds, `get_worker_info`, one thread for
    torch's operations, and errors that say where they were raised.

    Args:
        maker: makes batches of requests.
        info: what `get_worker_info` returns; its seed holds until the worker begins an epoch.
        init: the `worker_init_fn` of the DataLoader.
        pipe: brings requests, and takes answers.
        is_over: a number that processes share: not 0 if the workers should end.
    """
    # A forked process must not collect garbage of its parent: the end of a process group of torch waits for
    # threads that a fork does not have. And pages that are not collected stay shared.
    gc.freeze()
    signal_handling._set_worker_signal_handlers()  # type: ignore[attr-defined]  # they say what a SIGBUS means: a full /dev/shm
    end_with_parent()
    # Small batches are made in this process's own memory, not in shared memory as torch does.
    if default_collate_fn_map.get(torch.Tensor) is collate_tensor_fn:
        default_collate_fn_map[torch.Tensor] = _stacked
    messages: SimpleQueue[Message] = SimpleQueue()
    threading.Thread(target=_send, args=(pipe, messages), name="samplerkit-answers", daemon=True).start()
    maker.pins = False  # the loop's process does it
    with suppress(KeyboardInterrupt):  # the loop gets one too
        torch.set_num_threads(1)
        seed_worker(info.seed, 0, 0, info.id)
        torch_worker._worker_info = info
        for number, request in _requests(pipe, is_over):
            try:
                if init is not None:
                    init(info.id)
                    init = None
                message = _made(maker, request)
            except Exception as error:
                message = pickled(_sendable(error, f"in worker process {info.id}"))
            message.content.write(_END.pack(len(message.shared), number))
            messages.put(message)
            del request, message  # nothing is held while it waits for the next one


def _made(maker: Any, request: Request) -> Message:
    """Makes the batch of a request, or a part of it, and pickles it."""
    answer = maker[request]
    try:
        return pickled(answer)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        problem = f"gives a value that cannot be sent from a worker process ({cause}); sample ids"
        hint = "return picklable values, or use workers='threads'"
        failure = DatasetError("dataset", problem, request.ids.tolist(), hint=hint)
        request.note(failure, f"sending {request.some_ids}")
        raise failure from error


def _requests(pipe: Connection, is_over: Any) -> Iterator[tuple[int, Request]]:
    """Waits for the requests and their numbers."""
    with suppress(EOFError, OSError):  # the loop is gone, perhaps in the middle of a request
        while True:
            message = pipe.recv_bytes()
            if is_over.value:
                return
            yield ForkingPickler.loads(message)


def _sendable(error: Exception, where: str) -> Any:
    """Returns what an exception is sent as: a `DatasetError` where its class cannot be pickled."""
    try:
        pickled(type(error))
    except Exception:
        problem = f"raised {type(error).__qualname__}: {error}"
        hint = "define the exception class at the top level of a module, so that workers can send it"
        replaced, error = error, DatasetError("dataset", problem, hint=hint)
        error.__cause__ = replaced
    return ExceptionWrapper((type(error), error, error.__traceback__), where)  # type: ignore[no-untyped-call]


def _send(pipe: Connection, messages: SimpleQueue[Message]) -> None:
    """Runs in a thread, so that a worker makes the next batch while the loop has not taken this one."""
    try:
        # One socket, made now: a dataset may leave no descriptor for another one.
        with suppress(OSError), socket_of(pipe) as peer:  # or else the loop has closed its end
            while True:
                send(pipe, peer, messages.get())
    except Exception:
        traceback.print_exc()
        os._exit(1)  # the loop would wait for ever for what does not come


# Messages between two processes.


SMALL: Final = 256 << 10
"""Bytes up to which copying through the pipe costs less than shared memory, whose file must be made, handed
over through a socket, and mapped: half as much at this size, the same at about 1 MiB."""

_ITEM: Final = struct.Struct("<?Q")
"""An item of shared memory: whether its descriptor comes with this, else its content after it; its bytes."""


class Message(NamedTuple):
    """A pickled value for another process.

    Args:
        content: it, pickled, with the small storages of its tensors.
        shared: the storages that are in shared memory, which is there until it is sent.
    """

    content: io.BytesIO
    shared: list[torch.UntypedStorage]


def _bytes_of(storage: torch.UntypedStorage) -> np.ndarray[Any, Any]:
    data: np.ndarray[Any, Any] = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    return data


def pickled(value: Any) -> Message:
    """Pickles a value without the large storages of its tensors, which are sent after it.

    Views of one storage stay views of one. Nothing is shared if a later part cannot be pickled: this raises
    what pickling raises. Storages that are in shared memory already stay there, as the user may want.
    """
    message = Message(io.BytesIO(), [])

    def reduced(storage: torch.UntypedStorage) -> Any:
        if storage.device.type == "cpu" and storage.nbytes() <= SMALL and not storage.is_shared():
            return _storage_of, (_bytes_of(storage).tobytes(),)
        strategy: str = torch.multiprocessing.get_sharing_strategy()  # type: ignore[no-untyped-call]
        if strategy == "file_system" or storage.device.type != "cpu":
            return reductions.reduce_storage(storage)  # type: ignore[no-untyped-call]
        message.shared.append(storage)
        return _shared_at, (len(message.shared) - 1,)

    pickler = ForkingPickler(message.content)
    reducers: Any = pickler.dispatch_table
    reducers[torch.UntypedStorage] = reduced
    pickler.dump(value)
    for storage in message.shared:
        storage.share_memory_()
    return message


_received = threading.local()


def _shared_at(number: int) -> torch.UntypedStorage:
    storage: torch.UntypedStorage = _received.storages[number]
    return storage


def send(pipe: Connection, peer: socket.socket, message: Message) -> None:
    """Sends a message, and then its shared memory, by the socket that the pipe is."""
    pipe.send_bytes(message.content.getbuffer())
    for storage in message.shared:
        try:
            socket.send_fds(peer, [_ITEM.pack(True, storage.nbytes())], [storage._share_fd_cpu_()[0]])
        except OSError:  # more descriptors of this user are under way than the system takes
            peer.sendall(_ITEM.pack(False, storage.nbytes()))
            pipe.send_bytes(_bytes_of(storage).data)


def socket_of(pipe: Connection) -> socket.socket:
    """Returns the socket that a pipe of two directions is, for what a pipe cannot do."""
    peer = socket.socket(fileno=os.dup(pipe.fileno()))
    peer.settimeout(None)  # whatever the default is
    return peer


def receive(pipe: Connection) -> tuple[int, memoryview, list[torch.UntypedStorage]]:
    """Receives the number of a task, and its answer: what `unpickled` takes.

    Raises:
        EOFError, OSError: the worker has ended; or this process may open no more files.
    """
    message = memoryview(pipe.recv_bytes())
    shared, number = _END.unpack(message[-_END.size :])
    return number, message[: -_END.size], [_shared(pipe) for _ in range(shared)]


def _shared(pipe: Connection) -> torch.UntypedStorage:
    with socket_of(pipe) as peer:
        item, descriptors, *_ = socket.recv_fds(peer, _ITEM.size, 1)
    if not item:
        raise EOFError
    has_descriptor, size = _ITEM.unpack(item)
    if not has_descriptor:
        return _storage_of(pipe.recv_bytes())
    if not descriptors:
        raise OSError(errno.EMFILE, "the descriptor of a tensor did not come: too many files are open")
    descriptor = SimpleNamespace(detach=descriptors.pop)
    storage: torch.UntypedStorage = reductions.rebuild_storage_fd(torch.UntypedStorage, descriptor, size)  # type: ignore[no-untyped-call]
    return storage


def _storage_of(data: bytes) -> torch.UntypedStorage:
    return torch.UntypedStorage.from_buffer(data, dtype=torch.uint8)


def unpickled(message: memoryview, storages: list[torch.UntypedStorage]) -> Any:
    """Returns what was pickled."""
    _received.storages = storages
    try:
        return ForkingPickler.loads(message)
    finally:
        _received.storages = []


def _stacked(batch: Sequence[torch.Tensor], **options: Any) -> torch.Tensor:
    """Stacks small tensors as torch does without workers, and all others as it does in workers."""
    first = batch[0]
    is_plain = first.layout == torch.strided and not first.is_nested  # torch refuses others
    if is_plain and len(batch) * first.nbytes <= SMALL:
        return torch.stack([*batch])
    stacked: torch.Tensor = collate_tensor_fn(batch, **options)
    return stacked
