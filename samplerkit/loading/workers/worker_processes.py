"""Worker processes: how they begin and end, and their batches; one that dies is an error, never a hang."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import multiprocessing.util
import os
import shutil
import signal
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, final

import torch.utils.data
from torch.utils.data._utils import signal_handling
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from samplerkit.errors import WorkerError
from samplerkit.loading.background import end_at_exit, require_process, start_thread
from samplerkit.loading.workers.batch_maker import SendingMaker, received, send_small_tensors, sendable_errors
from samplerkit.loading.workers.protocol import Answer, MakeRequests, Request, Workers, timed_out

_FOLDER_OF = "samplerkit_tempdir_of"

_LONGEST_BASE = 107 - len("/pymp-01234567/listener-01234567")
"""Bytes of a folder below which `multiprocessing` can have sockets: the path of one has 107 at most."""

_SHORT_FOLDER = "/tmp"  # noqa: S108  # each process makes a folder of its own there
"""Where they are when the folder for temporary files has too long a name."""

_GRACE_SECONDS = 0.5
"""How long the batches that are finished may still arrive before the other workers are ended too."""


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

    # torch's own loop may end the process while the thread is in the middle of it.
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


class _Requests:
    """The sampler of torch's DataLoader: an iterator over it takes the requests that `make` makes."""

    def __init__(self) -> None:
        self.make: MakeRequests = lambda: iter(())

    def __iter__(self) -> Iterator[Request]:
        return self.make()


def _start_worker(then: Callable[[int], None] | None, worker: int) -> None:
    """Is the `worker_init_fn` of torch: ours, then the user's."""
    end_with_parent()
    send_small_tensors()
    if then is not None:
        with sendable_errors():
            then(worker)


@final
class _DataLoader(torch.utils.data.DataLoader[Any]):
    """torch's DataLoader, which can end what it has begun when a signal handler raises in the middle of it.

    torch would ask the workers to end by queues whose locks a handler may have left taken, and wait for ever.
    """

    iterator_type: type[Any]
    begun: Any = None

    def _get_iterator(self) -> Any:
        self.check_worker_number_rationality()
        self.begun = object.__new__(self.iterator_type)
        self.begun.__init__(self)
        return self.begun

    def abandon(self) -> None:
        """Ends the workers that the latest iterator has begun, and keeps torch from it."""
        if self.begun is None:
            return
        self.begun._shutdown = True
        _leave_watch_of_torch(self.begun)
        for queue in getattr(self.begun, "_index_queues", ()):
            queue.cancel_join_thread()
        for worker in getattr(self.begun, "_workers", ()):
            worker.kill()
            worker.join()


@final
class WorkerProcesses(Workers):
    """The worker processes of a torch DataLoader; the death of one is a `WorkerError`.

    By itself, torch waits for ever when a worker dies while it writes a batch, and raises its error anywhere
    in the main thread when one dies at another time. So a thread waits for the end of the workers, and if one
    ends while batches are still awaited, it ends the others. Then the pipe that the main process reads ends.

    Args:
        maker: makes batches.
        number: of workers.
        options: of the DataLoader.
        iterator_type: of torch's iterator, if not that.
    """

    def __init__(
        self,
        maker: SendingMaker,
        number: int,
        options: Mapping[str, Any],
        iterator_type: type[Any] = _MultiProcessingDataLoaderIter,
    ) -> None:
        self._requests = _Requests()
        ours = {
            "batch_size": None,  # the dataset makes whole batches
            "collate_fn": _unchanged,  # else torch looks for arrays in it
            "sampler": self._requests,
            "num_workers": number,
            "worker_init_fn": partial(_start_worker, options.get("worker_init_fn")),
            # Without one, torch draws the workers' base seed from the process-wide generator.
            "generator": options.get("generator") or torch.Generator(),
        }
        self._dataloader: Final = _DataLoader(maker, **{**options, **ours})
        self._dataloader.iterator_type = iterator_type
        self._batches: Any = None  # torch's iterator
        self._process: Final = os.getpid()
        self._workers: list[Any] = []
        # Who died first, in the words of the thread that watches: it ends the others.
        self._died: Final[list[int]] = []
        self._is_over: Final[SimpleQueue[None]] = SimpleQueue()

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [worker.pid for worker in self._workers]

    def open(self, requests: MakeRequests, *, in_the_loop: bool) -> Iterator[Answer]:
        """Begins an iteration, and the first one begins the workers."""
        self._requests.make = requests
        if self._batches is None:
            prepare_for_workers()
        try:
            self._batches = iter(self._dataloader)
        except BaseException:
            self.can_be_reused = False
            self._is_over.put(None)
            self._dataloader.abandon()
            raise
        if not self._workers:
            self._workers = list(self._batches._workers)
            end_at_exit(self)
            _running.add(self)
            self._take_over()
            watched = (self._workers.copy(), self._died, self._is_over)
            start_thread(threading.Thread(target=_watch, args=watched, name="samplerkit-watch", daemon=True))
        return iter(self._next, None)

    def _next(self) -> Answer | None:
        """Returns the next batch; None at the end.

        Raises:
            WorkerError: a worker died, or the batch did not come in time; the cause is what torch said.
            StateError: another process began the iteration, and would miss the batch.
        """
        require_process(self._process)
        try:
            return received(next(self._batches))
        except StopIteration:
            return None
        except BaseException as error:
            self.can_be_reused = False  # it is not known what would come next
            # A message that breaks off is an OSError without a number.
            breaks_off = isinstance(error, OSError) and error.errno is None
            may_be_dying = breaks_off or isinstance(error, EOFError | ConnectionError)
            if isinstance(error, Exception) and (dead := self._dead_workers(may_be_dying=may_be_dying)):
                raise WorkerError(
                    "worker",
                    "a worker process died (exit codes by process id; -9 is SIGKILL)",
                    dead,
                    hint=_hint(dead.values()),
                ) from error
            if isinstance(error, RuntimeError) and str(error).startswith("DataLoader timed out"):
                raise timed_out("a worker process", self._dataloader.timeout) from error
            raise

    def _dead_workers(self, *, may_be_dying: bool) -> dict[int, int | None]:
        """The exit codes of the workers that died first, by process id."""
        sentinels = {worker.sentinel: worker for worker in self._workers}
        # A broken pipe can be seen a moment before its worker has ended, and so can its sentinel.
        for ended in multiprocessing.connection.wait(sentinels, _GRACE_SECONDS if may_be_dying else 0):
            sentinels[ended].join(_GRACE_SECONDS)
        codes = {worker.pid: worker.exitcode for worker in self._workers}
        # Looked at after the codes: whoever was killed by the watch has an entry before it there.
        if self._died:
            return {pid: codes[pid] for pid in self._died}
        return {pid: code for pid, code in codes.items() if code is not None}

    def stop(self) -> None:
        """Asks the workers to end, when they are done with the batch that they are at."""
        self.can_be_reused = False
        if not self._workers:
            return
        self._is_over.put(None)
        if self._batches._shutdown:  # by torch, behind the last batch
            return
        self._batches._shutdown = True
        if self._batches._pin_memory:
            self._batches._pin_memory_thread_done_event.set()
            with contextlib.suppress(RuntimeError):  # at the exit no thread can be started that would put it
                self._batches._worker_result_queue.put((None, None))
        if self._locks_are_free():
            self._batches._workers_done_event.set()
            for queue in self._batches._index_queues:
                queue.put(None)
        else:
            for worker in self._workers:
                worker.terminate()

    def join(self, deadline: float) -> None:
        """Waits for the workers until a time of the monotonic clock, and kills those that have not ended."""
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))
            worker.kill()
            worker.join()
        if not self._workers:
            return
        queues = [*self._batches._index_queues]
        if self._batches._pin_memory:
            self._batches._pin_memory_thread.join(max(0.0, deadline - time.monotonic()))
            queues.append(self._batches._worker_result_queue)
        for lock in self._thread_locks():
            lock.acquire(timeout=_GRACE_SECONDS)  # one that cannot be taken was left behind
            lock.release()
        for queue in queues:
            queue.cancel_join_thread()
            queue.close()
        self._workers = []

    def _locks_are_free(self) -> bool:
        """Returns whether the locks can be taken that are needed to ask workers to end.

        Nobody gives a lock back if a signal handler raised right after it was taken, or its owner was killed.
        """
        for lock in [*self._thread_locks(), self._batches._workers_done_event._cond]:
            if not lock.acquire(timeout=_GRACE_SECONDS):
                return False
            lock.release()
        return True

    def _thread_locks(self) -> list[Any]:
        """The locks of queues between the loop and torch's threads, which hold them for a moment only."""
        locks = [queue._notempty for queue in self._batches._index_queues]
        if self._batches._pin_memory:
            locks.append(self._batches._data_queue.mutex)
        return locks

    def forget(self) -> None:
        """Leaves the workers to the process that this one was forked from."""
        self._batches._shutdown = True  # else torch tells them to stop when this copy is garbage
        self._workers = []

    def _take_over(self) -> None:
        """Takes the workers out of torch's own watch, which would raise its error outside of the loop."""
        _leave_watch_of_torch(self._batches)
        with contextlib.suppress(AttributeError, OSError):
            if not self._batches._pin_memory:
                # The main process never writes results, and while it could, it would not see the pipe's end.
                self._batches._worker_result_queue._writer.close()


def _leave_watch_of_torch(iterator: Any) -> None:
    """Has torch forget the workers of an iterator: it knows them by the `id` of it, which another may get."""
    with contextlib.suppress(AttributeError, ValueError):  # it did not know them yet
        signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]
    iterator._worker_pids_set = False


def _unchanged(answer: Any) -> Any:
    return answer


_running: Final[weakref.WeakSet[WorkerProcesses]] = weakref.WeakSet()


def _forget_all() -> None:
    for workers in list(_running):
        workers.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _watch(workers: list[Any], died: list[int], is_over: SimpleQueue[None]) -> None:
    """Runs in a thread: where a worker dies before it is asked to end, the others are ended too."""
    ended = multiprocessing.connection.wait([worker.sentinel for worker in workers])
    if is_over.empty():
        died += [worker.pid for worker in workers if worker.sentinel in ended]
        with contextlib.suppress(Empty):
            is_over.get(timeout=_GRACE_SECONDS)  # the batches that are finished may still arrive
            return
        for worker in workers:
            worker.kill()


def _hint(codes: Collection[int | None]) -> str:
    """The hint, by the exit codes of those that died."""
    if -signal.SIGKILL in codes:
        return "look for a lack of memory: the system's log names what was killed"
    if any(code is not None and code < 0 for code in codes):
        return "look for a crash in the dataset, or in a library that it calls"
    return "look for what ends the process in the dataset: a KeyboardInterrupt or sys.exit (0), or os._exit"
