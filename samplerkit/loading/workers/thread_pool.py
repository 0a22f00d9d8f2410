"""Workers that are threads of this process: they take requests in turn, and answer each at its place."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple, final

from samplerkit.errors import StateError
from samplerkit.loading.background import (
    end_at_exit,
    loaders_read_for,
    not_an_end,
    read_for,
    require_process,
    start_thread,
)
from samplerkit.loading.workers.batch_maker import BatchMaker
from samplerkit.loading.workers.protocol import MakeRequests, Request, Workers, timed_out
from samplerkit.loading.workers.reader import SampleReader
from samplerkit.loading.workers.thread_scheduling import PATIENCE, ThreadSchedule

BATCHES_AHEAD: Final = 2
"""Batches that each thread has ahead of the loop, as torch's processes have."""

_WHERE: Final = "a dataset or its collate function"  # who raised a StopIteration, in errors
_numbers = count(-1, -1)


class _Raised(NamedTuple):
    """What was raised in place of a batch."""

    error: BaseException


@final
class Task:
    """One batch that threads make.

    A finalizer or a signal handler may use such a queue in the middle of another call of its; a lock would
    wait for itself there.

    Args:
        request: of the batch.

    Attributes:
        is_cancelled: whether nobody waits for it any more.
        result: where the batch is put, or what was raised.
    """

    __slots__ = ("is_cancelled", "request", "result")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.is_cancelled = False
        self.result: SimpleQueue[Any] = SimpleQueue()


@final
class ThreadPool(Workers):
    """The threads of a loader. Only they take its lock: a signal handler may raise anywhere in the loop.

    Args:
        maker: makes batches; all threads share its dataset, unless that is copied for each.
        number: of threads.
        options: of the DataLoader.
        schedule: how many make batches at once.
        owner: ends the threads when it is garbage; nothing here refers to it.
        loader: an object in place of the loader that they read for.
    """

    def __init__(
        self,
        maker: BatchMaker,
        number: int,
        options: Mapping[str, Any],
        schedule: ThreadSchedule,
        owner: object,
        loader: object,
    ) -> None:
        self.schedule: Final = schedule
        self.ahead: Final = (options.get("prefetch_factor") or BATCHES_AHEAD) * number
        self.timeout: Final = options.get("timeout") or None
        self.process: Final = os.getpid()
        self._maker: Final = maker
        self._loaders: Final = loaders_read_for() | {loader}
        self._start: Final = options.get("worker_init_fn")
        self._numbers: Final = [next(_numbers) for _ in range(number)]
        self._iteration: ThreadBatches | None = None
        self._is_stopped = self._has_copies = False
        self._tasks: Final[SimpleQueue[Task | None]] = SimpleQueue()
        self._taken: Task | None = None  # waits until no thread reads for the epoch before
        self._at_work = 0
        self._begun = 0.0  # when the latest batch was
        self._turn: Final = threading.Condition()
        self._threads: Final = [
            threading.Thread(target=self._run, args=(place,), name=f"samplerkit-worker-{place}", daemon=True)
            for place in range(number)
        ]
        self._end_with_owner: Final = weakref.finalize(owner, self.stop)
        self._end_with_owner.atexit = False
        del owner  # what a signal handler raises below holds this frame, for as long as somebody holds that
        end_at_exit(self)
        for thread in self._threads:
            start_thread(thread)

    @property
    def can_be_reused(self) -> bool:  # type: ignore[override]
        """Whether they read for this process, and were not ended: an error of the dataset ends none."""
        return self.process == os.getpid() and not self._is_stopped

    @property
    def readers(self) -> list[int]:
        """Under which numbers the figures of copies are reported; no process has such an id."""
        return self._numbers

    def open(self, requests: MakeRequests, *, in_the_loop: bool) -> ThreadBatches:
        """Begins an iteration."""
        # What several threads share, the loop may read as well.
        loop_helps = in_the_loop and len(self._threads) > 1 and not (self._start or self.timeout)
        self._iteration = ThreadBatches(self, requests(), loop_helps=loop_helps)
        if self._is_stopped:  # meanwhile, by another thread that iterates over the same loader
            self.cancel()
        return self._iteration

    @property
    def loop_makes(self) -> bool:
        """Whether the loop makes batches, where it may."""
        return self.schedule.loop_makes and not self._has_copies

    def submit(self, task: Task) -> None:
        """Has a thread make a batch."""
        self._tasks.put(task)

    def made_here(self, request: Request) -> Any:
        """Makes a batch in the thread that calls this, while no other one makes any."""
        trial, begun = self.schedule.trial, time.perf_counter()
        try:
            batch = self._maker[request]
        except StopIteration as error:
            return _Raised(not_an_end(error, _WHERE))
        self.schedule.made(trial, time.perf_counter() - begun)
        return batch

    def cancel(self) -> None:
        """Ends the iteration, and the wait for a batch; what waits is not read any more."""
        if self._iteration is not None:
            self._iteration.cancel()

    def stop(self) -> None:
        """Ends the wait for a batch, and the threads when they are done with the batch that they are at."""
        self._is_stopped = True
        self.cancel()
        self._tasks.put(None)
        self._end_with_owner.detach()  # it would keep this alive

    def join(self, deadline: float) -> None:
        """Waits for the threads until a time of the monotonic clock; what reads on is left to itself."""
        if self.process != os.getpid() or sys.is_finalizing():
            return
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, place: int) -> None:
        """Runs in each thread."""
        shared, reader = self._maker.reader, None
        batch: Any = None
        read_for(self._loaders)
        with ExitStack() as copies:
            task = self._take()
            while task is not None:
                trial, begun = self.schedule.trial, time.perf_counter()
                try:
                    if reader is None:
                        reader = self._reader(place, copies)
                    if reader is not shared:
                        reader.begin(task.request)
                    batch = self._maker.batch(task.request, reader)
                except BaseException as error:  # whatever it is, it belongs into the loop
                    batch = _Raised(not_an_end(error, _WHERE))
                seconds = time.perf_counter() - begun
                task.result.put(batch)
                # A thread that waits for the next request holds nothing of this one.
                del task
                batch = None
                task = self._take(trial, seconds)

    def _reader(self, place: int, copies: ExitStack) -> SampleReader:
        if self._start is not None:
            self._start(place)
        reader = self._maker.reader.for_thread(self._numbers[place], copies)
        self._has_copies |= reader is not self._maker.reader
        return reader

    def _take(self, trial: int = 0, seconds: float | None = None) -> Task | None:
        """Counts the batch that this thread has made, and takes the next task when one more may be made.

        Where one thread at a time makes a batch, it makes the next one too, while the others wait here: to
        pass it on to another, on another processor, takes as long as some of its samples.

        Returns:
            The task; None at the end.
        """
        schedule = self.schedule
        with self._turn:
            if seconds is not None:
                self._at_work -= 1
                schedule.made(trial, seconds)
            while not self._is_stopped:
                if self._at_work < schedule.at_once and (task := self._next()) is not None:
                    self._at_work += 1
                    self._begun = time.perf_counter()
                    if self._at_work < schedule.at_once:
                        self._turn.notify()
                    return task
                if not self._is_stopped:
                    self._turn.wait(PATIENCE)
                is_long = time.perf_counter() - self._begun > schedule.patience
                if is_long and self._at_work == schedule.at_once < len(self._threads):
                    schedule.give_up()
            self._turn.notify_all()
        return None

    def _next(self) -> Task | None:
        """Takes the next task; what it begins, such as an epoch, begins in the order of the requests.

        Returns:
            None where it has to wait, since no thread may read for an epoch while another one is set in a
            dataset that all share; or when the threads are ended.
        """
        reader = self._maker.reader
        while (task := self._taken or self._tasks.get()) is not None and not self._is_stopped:
            self._taken = task
            if not task.is_cancelled:
                if self._at_work and reader.sets_epoch(task.request):
                    return None
                try:
                    reader.begin(task.request)
                except BaseException as error:  # as above
                    task.result.put(_Raised(not_an_end(error, _WHERE)))
                    task.is_cancelled = True
            self._taken = None
            if not task.is_cancelled:
                return task
        return None


@final
class ThreadBatches(Iterator[Any]):
    """One iteration over the batches of a thread pool, in order, a bounded number of them under way.

    Args:
        pool: the threads.
        requests: of the batches, in order; iterated over in the thread that asks for batches.
        loop_helps: whether the loop makes batches itself where that is quicker.
    """

    def __init__(self, pool: ThreadPool, requests: Iterator[Request], *, loop_helps: bool = False) -> None:
        self._pool: Final = pool
        self._requests: Iterator[Request] | None = requests
        self._loop_helps: Final = loop_helps
        self._received: float | None = None  # when the batch before was
        # Few, and no deque: without the GIL another thread's `cancel` could not go through one that grows.
        self._tasks: Final[list[Task]] = []
        self._failure: Exception | None = None
        self._is_over = False

    def __next__(self) -> Any:
        """Returns the next batch.

        Raises:
            StateError: it was ended, or another process began it.
            WorkerError: the batch did not come in time.
        """
        pool = self._pool
        require_process(pool.process)
        if self._received is not None and self._loop_helps:
            pool.schedule.stepped(time.perf_counter() - self._received)
        self._submit()
        # Behind what was submitted: `cancel` answers only what it finds there.
        self._require_open()
        if self._tasks:
            try:
                result = self._tasks[0].result.get(timeout=pool.timeout)
            except Empty:
                raise timed_out("a thread", pool.timeout) from None
        elif self._requests is not None:
            # All tasks of threads came before this one, and were received: no thread reads.
            result = pool.made_here(next(self._requests))
        else:
            raise self._failure or StopIteration
        self._require_open()
        del self._tasks[:1]
        if isinstance(result, _Raised):
            try:
                raise result.error
            finally:
                # The error's traceback refers to this frame.
                del result
        self._submit()
        self._received = time.perf_counter()
        return result

    def _require_open(self) -> None:
        if self._is_over:
            raise StateError("iteration", "was ended by a newer one or by close()")

    def _submit(self) -> None:
        """Keeps as many batches under way as may be, unless the loop makes them."""
        # A thread makes the first batch. When it is there, none reads for an iteration before this one.
        if self._received is not None and self._loop_helps and self._pool.loop_makes:
            return
        while self._requests is not None and len(self._tasks) < self._pool.ahead and not self._is_over:
            try:
                task = Task(next(self._requests))
            except StopIteration:
                self._requests = None
            except Exception as error:  # raised behind the batches before it
                self._requests, self._failure = None, error
            else:
                self._tasks.append(task)
                self._pool.submit(task)

    def cancel(self) -> None:
        """Ends the iteration, and the wait for a batch."""
        self._is_over = True
        for task in self._tasks.copy():
            task.is_cancelled = True
            task.result.put(None)  # who waits for it looks whether this is over
