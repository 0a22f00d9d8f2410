"""Workers that are threads of this process: they take requests in turn, and answer each at its place."""

from __future__ import annotations

import os
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, Final, final

from samplerkit.loading.background import end_at_exit, loaders_read_for, read_for, start_thread
from samplerkit.loading.workers.protocol import Answer, WorkerPool, timed_out
from samplerkit.loading.workers.thread_schedule import PATIENCE, ThreadSchedule

_numbers = count(-1, -1)


@final
@dataclass(eq=False)
class Task:
    """One batch that threads make.

    A finalizer or a signal handler may use such a queue in the middle of another call of its; a lock would
    wait for itself there.

    Args:
        request: of the batch.

    Attributes:
        is_cancelled: whether its batch is no longer needed.
        result: where the batch is put, or what was raised.
    """

    request: Any
    is_cancelled: bool = False
    result: SimpleQueue[Any] = field(default_factory=SimpleQueue)


class WorkerThreads(WorkerPool):
    """Workers that are threads: they take tasks from one queue, and put into each what became of it.

    They start at the first request. They end when they are stopped, with their owner, and at the exit of
    Python, which they do not delay. Only they take a lock: a signal handler may raise anywhere in the loop.

    Args:
        maker: makes batches.
        number: of threads.
        options: of the DataLoader.
        name: of the threads.
        owner: ends the threads when it is garbage; nothing here refers to it.

    Attributes:
        is_stopped: whether the threads end.
        is_started: whether they were started.
    """

    def __init__(
        self, maker: Any, number: int, options: Mapping[str, Any], *, name: str, owner: object
    ) -> None:
        super().__init__(maker, number, options)
        self.is_stopped = False
        self.is_started = False
        self._tasks: Final[SimpleQueue[Task | None]] = SimpleQueue()
        self._name: Final = name
        self._threads: Final[list[threading.Thread]] = []
        self._end_with_owner: Final = weakref.finalize(owner, self.stop)
        self._end_with_owner.atexit = False

    @abstractmethod
    def _run(self, place: int) -> None:
        """The main function of each thread."""

    @property
    def can_be_reused(self) -> bool:  # type: ignore[override]
        """Whether they read for this process, and were not ended: an error of the dataset ends none."""
        return self.process == os.getpid() and not self.is_stopped

    @property
    def is_alive(self) -> bool:
        """Whether one of the threads still runs."""
        return any(thread.is_alive() for thread in self._threads)

    def open(self, requests: Iterator[Any]) -> Iterator[Any]:
        """Begins an iteration."""
        batches = super().open(requests)
        if self.is_stopped:  # meanwhile, by another thread that iterates over the same loader
            self.cancel()
        return batches

    def submit(self, request: Any) -> Task:
        """Has a thread make a batch."""
        if not self.is_started:
            self._start()
        task = Task(request)
        self._tasks.put(task)
        return task

    def _start(self) -> None:
        self.is_started = True
        try:
            end_at_exit(self)
            for place in range(self._number):
                name = f"{self._name}-{place}"
                thread = threading.Thread(target=self._run, args=(place,), name=name, daemon=True)
                # Kept before the start, which a signal handler may cut off: `join` waits for what has begun.
                self._threads.append(thread)
                start_thread(thread)
        except BaseException:
            self.stop()  # with fewer threads, or none, they must not be used for another iteration
            raise

    def receive(self, task: Task) -> Answer:
        """Waits for the batch of a task."""
        try:
            result: Answer | BaseException = task.result.get(timeout=self.timeout)
        except Empty:
            raise timed_out("a thread", self.timeout) from None
        if not isinstance(result, BaseException):
            return result
        try:
            raise result
        finally:
            # The error's traceback refers to this frame.
            del result

    def withdraw(self, task: Task) -> None:
        """Ends the wait for the batch of a task, which is not made if it was not begun."""
        task.is_cancelled = True
        task.result.put(None)  # who waits for it looks whether the iteration is over

    def stop(self) -> None:
        """Ends the wait for a batch, and the threads after their current batch."""
        self.is_stopped = True
        self._tasks.put(None)  # first: an exception of a signal handler may skip the rest
        self.cancel()
        self._end_with_owner.detach()  # it would keep this alive

    def join(self, deadline: float) -> None:
        """Waits for the threads until a time of the monotonic clock; those that still read are left."""
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))


@final
class ThreadPool(WorkerThreads):
    """The threads of a loader.

    Args:
        maker: makes batches; all threads share its dataset, unless that is copied for each.
        number: of threads.
        options: of the DataLoader.
        schedule: how many make batches at once.
        owner: ends the threads when it is garbage.
        loader: an object in place of the loader that they read for.
    """

    def __init__(
        self,
        maker: Any,
        number: int,
        options: Mapping[str, Any],
        schedule: ThreadSchedule,
        owner: object,
        loader: object,
    ) -> None:
        super().__init__(maker, number, options, name="samplerkit-worker", owner=owner)
        self.schedule: Final = schedule
        self._loaders: Final = loaders_read_for() | {loader}
        self._numbers: Final = [next(_numbers) for _ in range(number)]
        self._waiting_task: Task | None = None  # waits until no thread reads for the epoch before
        self._busy = 0
        self._started = 0.0  # when the latest batch was
        self._turn: Final = threading.Condition()

    @property
    def readers(self) -> list[int]:
        """Under which numbers the figures of copies are reported; no process has such an id."""
        return self._numbers

    def _run(self, place: int) -> None:
        maker: Any = None
        batch: Any = None
        read_for(self._loaders)
        with ExitStack() as copies:
            task = self._take()
            while task is not None:
                trial, started = self.schedule.trial, time.perf_counter()
                try:
                    if maker is None:
                        maker = self._maker_of(place, copies)
                    if maker is not self._maker:
                        maker.begin(task.request)
                    batch = maker.batch(task.request)
                except BaseException as error:  # whatever it is, it belongs into the loop
                    batch = error
                seconds = time.perf_counter() - started
                task.result.put(batch)
                # A thread that waits for the next request holds nothing of this one.
                del task
                batch = None
                task = self._take(trial, seconds)

    def _maker_of(self, place: int, copies: ExitStack) -> Any:
        if (init := self._options.get("worker_init_fn")) is not None:
            init(place)
        return self._maker.for_thread(self._numbers[place], copies)

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
                self._busy -= 1
                schedule.count_batch(trial, seconds)
            while not self.is_stopped:
                if self._busy < schedule.at_once and (task := self._next_task()) is not None:
                    self._busy += 1
                    self._started = time.perf_counter()
                    if self._busy < schedule.at_once:
                        self._turn.notify()
                    return task
                if not self.is_stopped:
                    self._turn.wait(PATIENCE)
                is_long = time.perf_counter() - self._started > schedule.patience
                if is_long and self._busy == schedule.at_once < self._number:
                    schedule.give_up()
            self._turn.notify_all()
        return None

    def _next_task(self) -> Task | None:
        """Takes the next task; what it begins, such as an epoch, begins in the order of the requests.

        Returns:
            None where it has to wait, since no thread may read for an epoch while another one is set in a
            dataset that all share; or when the threads are ended.
        """
        maker = self._maker
        while (task := self._waiting_task or self._tasks.get()) is not None and not self.is_stopped:
            self._waiting_task = task
            if not task.is_cancelled:
                if self._busy and maker.sets_epoch(task.request):
                    return None
                try:
                    maker.begin(task.request)
                except BaseException as error:  # as above
                    task.result.put(error)
                    task.is_cancelled = True
            self._waiting_task = None
            if not task.is_cancelled:
                return task
        return None
