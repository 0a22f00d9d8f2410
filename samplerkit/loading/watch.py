"""Watching over worker processes: one that dies is an error in the loop, at once, and never a hang."""

from __future__ import annotations

import atexit
import contextlib
import functools
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any, Final, final

from torch.utils.data._utils import signal_handling

from samplerkit.errors import WorkerError
from samplerkit.loading.beside_the_loop import start_thread

_GRACE_SECONDS = 0.5
"""How long the batches that are finished may still arrive before the other workers are ended too."""

LAST_BATCH_SECONDS = 1.5
"""How long workers may go on with the batch that they are at when they are ended."""


@final
class Watched(Iterator[Any]):
    """Iterates over the batches of a DataLoader's iterator; the death of a worker is a `WorkerError`.

    By itself, torch waits for ever when a worker dies while it writes a batch, and raises its error anywhere
    in the main thread when one dies at another time. So a thread waits for the end of the workers, and if one
    ends while batches are still wanted, it ends the others. Then the pipe that the main process reads ends.

    Args:
        batches: the iterator of a torch DataLoader.
    """

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches: Final[Any] = batches
        self._workers: Final[list[Any]] = list(getattr(batches, "_workers", ()))
        self._wake: int | None = None
        self._was_interrupted = False
        if self._workers:
            _running.add(self)
            _end_at_exit()
            self._take_over()
            woken, self._wake = os.pipe()
            sentinels = [os.dup(worker.sentinel) for worker in self._workers]
            watch = threading.Thread(
                target=_watch, args=(sentinels, self.pids, woken), name="samplerkit-watch", daemon=True
            )
            watch.start()

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [worker.pid for worker in self._workers]

    @property
    def readers(self) -> list[int]:
        """Under which numbers their figures come."""
        return self.pids

    def __iter__(self) -> Watched:
        return self

    def __next__(self) -> Any:
        """Gives the next batch.

        Raises:
            WorkerError: a worker died; the cause is what torch said.
        """
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            self._was_interrupted = True
            may_be_dying = isinstance(error, EOFError | ConnectionError)
            if isinstance(error, Exception) and (dead := self._dead_workers(may_be_dying=may_be_dying)):
                raise WorkerError(
                    "worker",
                    "a worker process died (exit codes by process id; -9 is SIGKILL)",
                    dead,
                    mend="look for a lack of memory, or a crash in the dataset",
                ) from error
            raise

    def _dead_workers(self, *, may_be_dying: bool) -> dict[int, int]:
        """The exit codes of the workers that died, by process id."""
        if not self._workers:
            return {}
        sentinels = {worker.sentinel: worker for worker in self._workers}
        # A broken pipe can be seen a moment before its worker has ended, and so can its sentinel.
        for ended in multiprocessing.connection.wait(sentinels, _GRACE_SECONDS if may_be_dying else 0):
            sentinels[ended].join(_GRACE_SECONDS)
        return {worker.pid: worker.exitcode for worker in self._workers if worker.exitcode}

    @property
    def can_go_on(self) -> bool:
        """Whether the workers may read another iteration: not after an error while a batch was received."""
        return not self._was_interrupted

    def give_up(self) -> None:
        """Nothing: who waits for a batch goes on waiting until the workers are ended."""

    def end(self) -> None:
        """Stops watching; the workers may end from now on."""
        if self._wake is not None:
            with contextlib.suppress(BrokenPipeError):  # the thread has ended already
                # Closing alone is not seen while a forked process holds a copy.
                os.write(self._wake, b".")
            os.close(self._wake)
            self._wake = None

    def close(self) -> None:
        """Ends the workers: they may finish the batch that they are at, for `LAST_BATCH_SECONDS` at most."""
        self.end()
        if not self._workers:
            return
        if sys.is_finalizing():
            # The interpreter ends: a thread that is started now never begins, and is waited for for ever.
            _end_together([self])
            return
        late = threading.Timer(LAST_BATCH_SECONDS, _kill, [self.pids])
        late.daemon = True
        start_thread(late)
        try:
            if self._was_interrupted and not self._locks_are_free():
                _end_together([self])
            else:
                self._batches._shutdown_workers()
        except BaseException:  # a second signal
            _end_together([self])
            raise
        finally:
            late.cancel()

    def _locks_are_free(self) -> bool:
        """Tells whether torch could take the locks that it needs to end the workers.

        Nobody gives a lock back if a signal handler raised right after it was taken, or its owner was killed.
        """
        locks = [*self._thread_locks(), self._batches._workers_done_event._cond]
        for lock in locks:
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

    def ask_to_end(self) -> None:
        """Asks the workers to end, without a lock of torch's; `end_by_force` follows."""
        self.end()
        self._batches._shutdown = True
        if self._batches._pin_memory:
            self._batches._pin_memory_thread_done_event.set()
        for worker in self._workers:
            worker.terminate()

    def end_by_force(self, deadline: float) -> None:
        """Kills the workers that have not ended by themselves at a time of the monotonic clock."""
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))
            worker.kill()
            worker.join()
        for lock in self._thread_locks():
            lock.acquire(timeout=_GRACE_SECONDS)  # one that cannot be taken was left behind
            lock.release()
        for queue in self._batches._index_queues:
            queue.cancel_join_thread()
            queue.close()

    def forget(self) -> None:
        """Leaves the workers to the process that this one was forked from."""
        self._batches._shutdown = True  # else torch tells them to stop when this copy is garbage
        self._workers.clear()
        if self._wake is not None:
            os.close(self._wake)
            self._wake = None

    def _take_over(self) -> None:
        """Takes the workers out of torch's own watch, which would raise its error outside of the loop."""
        with contextlib.suppress(AttributeError, OSError):
            if self._batches._worker_pids_set:
                signal_handling._remove_worker_pids(id(self._batches))  # type: ignore[attr-defined]
                self._batches._worker_pids_set = False
            if not self._batches._pin_memory:
                # The main process never writes results, and while it could, it would not see the pipe's end.
                self._batches._worker_result_queue._writer.close()


_running: weakref.WeakSet[Watched] = weakref.WeakSet()


@functools.cache
def _end_at_exit() -> None:
    atexit.register(_end_all)  # later than multiprocessing did, so it comes first


def _end_all() -> None:
    """Ends the workers of all loaders that nobody closed.

    At the exit, multiprocessing asks them to end and waits for ever. A worker that is in a call to C which
    holds Python's lock does not hear it.
    """
    _end_together([watched for watched in list(_running) if watched.pids])


def _end_together(running: list[Watched]) -> None:
    deadline = time.monotonic() + LAST_BATCH_SECONDS
    for watched in running:
        watched.ask_to_end()
    for watched in running:
        watched.end_by_force(deadline)


def _forget_all() -> None:
    for watched in list(_running):
        watched.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _watch(sentinels: list[int], pids: list[int], woken: int) -> None:
    try:
        if woken in multiprocessing.connection.wait([*sentinels, woken]):
            return
        if multiprocessing.connection.wait([woken], timeout=_GRACE_SECONDS):
            return
        _kill(pids)
    finally:
        for descriptor in (*sentinels, woken):
            os.close(descriptor)
