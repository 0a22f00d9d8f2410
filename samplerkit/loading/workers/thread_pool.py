"""Workers that are threads of this process: they take requests in turn, and answer each at its place."""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from queue import Empty, SimpleQueue
from statistics import median
from typing import Any, Final, final

from samplerkit.loading.background import end_at_exit, loaders_read_for, read_for, start_thread
from samplerkit.loading.workers.batch_maker import BatchMaker
from samplerkit.loading.workers.protocol import Answer, BatchesInOrder, Request, WorkerPool, timed_out

TRIAL_BATCHES: Final = 5
"""Batches by which a number of threads is judged, and steps by which the loop is."""

FIRST_PAUSE, LONGEST_PAUSE = 50, 3200
"""Batches from one trial to the next: twice as many each time that nothing changed."""

LONG_BATCH: Final = 0.25
"""Seconds of a batch above which nothing is tried: such batches mostly wait, or compute in C."""

PATIENCE: Final = 0.05
"""The least seconds of the batch of one thread before all make batches: it may wait for another one."""

HANDOVER: Final = 0.0001
"""Approximate seconds of taking a batch from a thread. During a longer step of the loop, a thread should make
the next batch."""


@final
class ThreadSchedule:
    """Decides who makes the batches of threads: all threads at once, one at a time, or the loop itself.

    A batch of small samples is Python with many short calls that release the GIL. Each time another thread
    takes it, across processors, and so several threads can be slower together than one alone. Where a batch
    is decoded in C, or waits for a network, threads are as many times as fast. A dataset does not show which
    case it is, so both ways are tried now and then on a few batches, by the time of a batch in its thread,
    and the faster one is kept. If one thread is enough and the loop does nothing between two batches, the
    loop makes them: taking them from a thread would only cost time.

    Args:
        threads: how many there are.

    Attributes:
        at_once: how many threads may make a batch now.
        trial: changes with `at_once`: a batch that was begun before does not count for the current trial.

    Example:
        >>> schedule = ThreadSchedule(2)
        >>> while schedule.at_once == 2:  # batches take .01 seconds where two threads make one each
        ...     schedule.count_batch(schedule.trial, 0.01)
        >>> for _ in range(TRIAL_BATCHES):  # and .003 where one makes them
        ...     schedule.count_batch(schedule.trial, 0.003)
        >>> schedule.at_once
        1
    """

    def __init__(self, threads: int) -> None:
        self.at_once = threads
        self.trial = 0
        self._threads: Final = threads
        self._rates: Final[dict[int, float]] = {}  # batches a second, by how many are made at once
        self._steps: Final[deque[float]] = deque(maxlen=TRIAL_BATCHES)
        self._measured: list[float] = []
        self._is_trial = False
        self._pause = FIRST_PAUSE
        # Threads open files and fill caches at first. Without the GIL, all at once is nearly always the
        # quickest way, and one thread that is looked at when all is warm would seem quicker than all before.
        has_gil: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
        self._to_skip = threads * (1 if has_gil else 4)

    @property
    def loop_makes(self) -> bool:
        """Whether the loop makes batches: only where one thread of several is enough."""
        if self.at_once > 1 or self._is_trial:
            return False
        return len(self._steps) == TRIAL_BATCHES and median(self._steps) < HANDOVER

    @property
    def patience(self) -> float:
        """Seconds after which all make batches though one at a time is quicker."""
        rate = self._rates.get(self._threads)
        return max(PATIENCE, 4 * self._threads / rate if rate else 0.0)

    def give_up(self) -> None:
        """Lets all threads make batches: one takes far longer than others, and may wait for another."""
        self._rates.pop(1, None)
        self._keep(self._threads)

    def count_step(self, seconds: float) -> None:
        """Counts the time of the loop between two batches."""
        self._steps.append(seconds)

    def count_batch(self, trial: int, seconds: float) -> None:
        """Counts a batch.

        Args:
            trial: in which it was begun.
            seconds: what it took by the clock.
        """
        if self._threads == 1 or trial != self.trial:
            return
        if self._to_skip:
            self._to_skip -= 1
            return
        self._measured.append(seconds)
        rates, current, other = self._rates, self.at_once, self._threads + 1 - self.at_once
        typical = median(self._measured)
        rates[current] = current / max(typical, 1e-9)
        if self._is_trial and rates[current] < rates[other] / 2:  # hopeless: the rest would cost time
            self._keep(other)
        elif len(self._measured) < TRIAL_BATCHES:
            return
        elif self._is_trial:
            # If both are equal, one thread leaves more of the processors to the loop.
            self._keep(1 if rates[1] > 0.95 * rates[self._threads] else self._threads)
        elif typical > LONG_BATCH:
            self._keep(current)
        else:
            self._change(other, 0, is_trial=True)

    def _keep(self, at_once: int) -> None:
        """Keeps a number of threads for some batches."""
        is_new = self._is_trial and at_once == self.at_once
        self._pause = FIRST_PAUSE if is_new else min(2 * self._pause, LONGEST_PAUSE)
        self._change(at_once, self._pause, is_trial=False)

    def _change(self, at_once: int, to_skip: int, *, is_trial: bool) -> None:
        self.at_once, self._to_skip, self._is_trial, self._measured = at_once, to_skip, is_trial, []
        self.trial += 1


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

    request: Request
    is_cancelled: bool = False
    result: SimpleQueue[Any] = field(default_factory=SimpleQueue)


@final
class ThreadPool(WorkerPool):
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
        super().__init__(maker, number, options)
        self.schedule: Final = schedule
        self._loaders: Final = loaders_read_for() | {loader}
        self._numbers: Final = [next(_numbers) for _ in range(number)]
        self._is_stopped = False
        self.has_copies = False  # of the dataset, one a thread: then the loop makes no batch
        self._tasks: Final[SimpleQueue[Task | None]] = SimpleQueue()
        self._waiting_task: Task | None = None  # waits until no thread reads for the epoch before
        self._busy = 0
        self._started = 0.0  # when the latest batch was
        self._turn: Final = threading.Condition()
        self._threads: Final = [
            threading.Thread(target=self._run, args=(place,), name=f"samplerkit-worker-{place}", daemon=True)
            for place in range(number)
        ]
        self._end_with_owner: Final = weakref.finalize(owner, self.stop)
        self._end_with_owner.atexit = False
        del owner  # an exception of a signal handler below holds this frame as long as it is kept
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

    def open(self, requests: Iterator[Request], *, in_the_loop: bool) -> Iterator[Answer]:
        """Begins an iteration."""
        # What several threads share, the loop may read as well.
        is_bound = self._options.get("worker_init_fn") or self.timeout
        loop_helps = in_the_loop and len(self._threads) > 1 and not is_bound
        batches = (LoopAssistedBatches if loop_helps else BatchesInOrder)(self, requests)
        self._iteration = weakref.ref(batches)
        if self._is_stopped:  # meanwhile, by another thread that iterates over the same loader
            self.cancel()
        return batches

    def submit(self, request: Request) -> Task:
        """Has a thread make a batch."""
        task = Task(request)
        self._tasks.put(task)
        return task

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

    def make_in_caller(self, request: Request) -> Answer:
        """Makes a batch in the thread that calls this, while no other one makes any."""
        trial, started = self.schedule.trial, time.perf_counter()
        batch: Answer = self._maker[request]
        self.schedule.count_batch(trial, time.perf_counter() - started)
        return batch

    def stop(self) -> None:
        """Ends the wait for a batch, and the threads after their current batch."""
        self._is_stopped = True
        self._tasks.put(None)  # first: an exception of a signal handler may skip the rest
        self.cancel()
        self._end_with_owner.detach()  # it would keep this alive

    def join(self, deadline: float) -> None:
        """Waits for the threads until a time of the monotonic clock; those that still read are left."""
        if self.process != os.getpid() or sys.is_finalizing():
            return
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, place: int) -> None:
        """The main function of each thread."""
        maker: BatchMaker | None = None
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

    def _maker_of(self, place: int, copies: ExitStack) -> BatchMaker:
        if (init := self._options.get("worker_init_fn")) is not None:
            init(place)
        maker: BatchMaker = self._maker.for_thread(self._numbers[place], copies)
        self.has_copies |= maker is not self._maker
        return maker

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
            while not self._is_stopped:
                if self._busy < schedule.at_once and (task := self._next_task()) is not None:
                    self._busy += 1
                    self._started = time.perf_counter()
                    if self._busy < schedule.at_once:
                        self._turn.notify()
                    return task
                if not self._is_stopped:
                    self._turn.wait(PATIENCE)
                is_long = time.perf_counter() - self._started > schedule.patience
                if is_long and self._busy == schedule.at_once < len(self._threads):
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
        while (task := self._waiting_task or self._tasks.get()) is not None and not self._is_stopped:
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


@final
class LoopAssistedBatches(BatchesInOrder):
    """An iteration over the batches of threads, in which the loop makes them if that is faster."""

    _received_at: float | None = None  # when the batch before was

    def __next__(self) -> Answer:
        """Returns the next batch."""
        if self._received_at is not None:
            self._pool.schedule.count_step(time.perf_counter() - self._received_at)
        answer = super().__next__()
        self._received_at = time.perf_counter()
        return answer

    def _submit(self) -> None:
        # A thread makes the first batch. When it is there, none reads for an iteration before this one.
        if self._received_at is None or self._pool.has_copies or not self._pool.schedule.loop_makes:
            super()._submit()

    def _receive(self) -> Answer:
        if self._tasks or self._requests is None:
            return super()._receive()
        # All tasks of threads came before this one, and were received: no thread reads.
        answer: Answer = self._pool.make_in_caller(next(self._requests))
        return answer
