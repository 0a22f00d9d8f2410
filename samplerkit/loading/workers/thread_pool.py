"""Workers that are threads of this process: they take requests in turn, and answer each at its place."""

import sys
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from statistics import median
from typing import Any, Final

from samplerkit.loading.background import end_at_exit, read_for
from samplerkit.loading.workers.protocol import Answer, WorkerPool, timed_out


@dataclass(eq=False)
class Task:
    """One batch that threads make.

    `SimpleQueue` is reentrant: a finalizer or a signal handler that interrupts one call may make another. A
    lock would deadlock there.

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
        is_started: whether they were started.
    """

    def __init__(
        self, maker: Any, number: int, options: Mapping[str, Any], *, name: str, owner: object
    ) -> None:
        super().__init__(maker, number, options)
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
    def is_alive(self) -> bool:
        """Whether one of the threads still runs."""
        return any(thread.is_alive() for thread in self._threads)

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
                thread.start()
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


TRIAL_BATCHES: Final = 5
"""Batches by which a number of threads is judged."""

FIRST_PAUSE, LONGEST_PAUSE = 50, 3200
"""Batches from one trial to the next: twice as many each time that nothing changed."""

PATIENCE: Final = 0.05
"""Seconds after which a batch no longer keeps another thread from its own: it may wait for that thread."""


class ThreadSchedule:
    """Decides how many threads make batches at once: all, or one.

    A batch of small samples is Python with many short calls that release the GIL. Each time another thread
    takes it, across processors, and so several threads can be slower together than one alone. Where a batch
    is decoded in C, or waits for a network, threads are as many times as fast. A dataset does not show which
    case it is, so both ways are tried now and then on a few batches, by the time of a batch in its thread,
    and the faster one is kept. Only threads use it, which hold a lock.

    Args:
        threads: how many there are.

    Attributes:
        at_once: how many threads may make a batch now.

    Example:
        >>> schedule = ThreadSchedule(2)
        >>> for _ in range(2 + TRIAL_BATCHES):  # batches take .01 seconds where two threads make one each
        ...     schedule.count_batch(2, 0.01)
        >>> for _ in range(TRIAL_BATCHES):  # and .003 where one makes them
        ...     schedule.count_batch(1, 0.003)
        >>> schedule.at_once
        1
    """

    def __init__(self, threads: int) -> None:
        self.at_once = threads
        self._threads: Final = threads
        self._decisions: Final = self._decide()
        next(self._decisions)

    def count_batch(self, at_once: int, seconds: float) -> None:
        """Counts a batch.

        Args:
            at_once: how many threads were to make one when it was begun; others do not count for a trial.
            seconds: what it took by the clock.
        """
        if at_once == self.at_once:
            self._decisions.send(seconds)

    def _decide(self) -> Generator[None, float, None]:
        """Receives the seconds of each batch, and decides now and then."""
        threads = self._threads
        # Threads open files and fill caches at first. Without the GIL, all at once is nearly always the
        # quickest way, and one thread that is looked at when all is warm would seem quicker than all before.
        has_gil: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
        to_skip, pause = threads * (1 if has_gil else 4), FIRST_PAUSE
        while True:
            for _ in range(to_skip):
                yield
            before = self.at_once
            rates = {before: (yield from self._rate())}
            self.at_once = threads + 1 - before
            rates[self.at_once] = yield from self._rate(rates[before] / 2)
            # If both are equal, one thread leaves more of the processors to the loop.
            self.at_once = 1 if rates[1] > 0.95 * rates[threads] else threads
            to_skip = pause = FIRST_PAUSE if self.at_once != before else min(2 * pause, LONGEST_PAUSE)

    def _rate(self, least: float = 0.0) -> Generator[None, float, float]:
        """Measures batches a second; fewer than the least need no more batches, which would cost time."""
        seconds: list[float] = []
        rate = least
        while len(seconds) < TRIAL_BATCHES and rate >= least:
            seconds.append((yield))
            rate = self.at_once / max(median(seconds), 1e-9)
        return rate


class ThreadPool(WorkerThreads):
    """The threads of a loader.

    Args:
        maker: makes batches; all threads share its dataset, unless that is copied for each.
        number: of threads.
        options: of the DataLoader.
        schedule: how many make batches at once.
        owner: ends the threads when it is garbage.
        loader: the cursor of the loader that they read for, which they must not keep alive.
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
        self._loader: Final = loader
        self._waiting_task: Task | None = None  # waits until no thread reads for the epoch before
        self._busy = 0
        self._started = 0.0  # when the latest batch was
        self._turn: Final = threading.Condition()

    def _run(self, place: int) -> None:
        maker: Any = None
        batch: Any = None
        read_for(self._loader)
        with ExitStack() as copies:
            task = self._take()
            while task is not None:
                at_once, started = self.schedule.at_once, time.perf_counter()
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
                task = self._take(at_once, seconds)

    def _maker_of(self, place: int, copies: ExitStack) -> Any:
        if (init := self._options.get("worker_init_fn")) is not None:
            init(place)
        return self._maker.for_thread(copies)

    def _take(self, at_once: int = 0, seconds: float = 0.0) -> Task | None:
        """Counts the batch that this thread has made, and takes the next task when one more may be made.

        Where one thread at a time makes a batch, it makes the next one too, while the others wait here: to
        pass it on to another, on another processor, takes as long as some of its samples.

        Returns:
            The task; None at the end.
        """
        schedule = self.schedule
        with self._turn:
            if at_once:
                self._busy -= 1
                schedule.count_batch(at_once, seconds)
            while not self.is_stopped:
                is_long = time.perf_counter() - self._started > PATIENCE
                if (self._busy < schedule.at_once or is_long) and (task := self._next_task()) is not None:
                    self._busy += 1
                    self._started = time.perf_counter()
                    if self._busy < schedule.at_once:
                        self._turn.notify()
                    return task
                if not self.is_stopped:
                    self._turn.wait(PATIENCE)
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
