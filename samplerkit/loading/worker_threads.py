"""Workers that are threads of this process: they take requests in turn, and answer each at its place."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import count
from queue import SimpleQueue
from typing import Any, Final, NamedTuple, final

from torch.utils.data._utils.pin_memory import pin_memory

from samplerkit.errors import StateError
from samplerkit.loading.beside_the_loop import not_an_end, start_thread
from samplerkit.loading.request import Request
from samplerkit.loading.requested import RequestedDataset
from samplerkit.loading.thread_turns import ThreadTurns
from samplerkit.loading.watch import LAST_BATCH_SECONDS

WHERE: Final = "a dataset or its collate function"
"""Who raised a StopIteration, in errors."""
_numbers = count(-1, -1)
_here = threading.local()


def require_outside(loader: object) -> None:
    """Sees that no thread that reads for a loader begins an iteration of it: each would begin more of them.

    Raises:
        StateError: this is such a thread, or was begun by one.
    """
    if loader in _read_for():
        raise StateError(
            "iteration",
            "was ended by a newer one, which a thread began that reads for it",
            mend="give the dataset a loader of its own",
        )


def _read_for() -> frozenset[object]:
    return getattr(_here, "read_for", frozenset())


class Raised(NamedTuple):
    """What was raised in place of a batch.

    Args:
        error: the error itself, with its traceback.
    """

    error: BaseException


@final
class Slot:
    """The place of one batch among those under way.

    The loop waits for its answer alone. A finalizer or a signal handler may use such a queue in the middle of
    another call of its; a lock would wait for itself there.

    Args:
        request: what is wanted.

    Attributes:
        trial: of `ThreadTurns.loop`, the one in which a thread was asked for it; None where none was.
        is_wanted: whether somebody waits for it still.
        answer: where the batch is put, or what was raised.
    """

    __slots__ = ("answer", "is_wanted", "request", "trial")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.trial: int | None = None
        self.is_wanted = True
        self.answer: SimpleQueue[Any] = SimpleQueue()


@final
class WorkPlan(NamedTuple):
    """How threads make a batch of a request.

    Args:
        requested: answers requests; all threads share it, or what it reads is copied for each.
        collate: makes a batch of samples.
        pins: whether the batch is pinned.
        start: is called in each thread, with its number, before it reads.
        loader: stands for the loader that they read for.
        turns: how many make batches at once.
    """

    requested: RequestedDataset
    collate: Callable[[Any], Any]
    pins: bool
    start: Callable[[int], None] | None
    loader: object
    turns: ThreadTurns

    def batch(self, requested: RequestedDataset, request: Request) -> Any:
        """Makes a batch, in whichever thread this is called."""
        batch = self.collate(requested.read(request))
        return pin_memory(batch) if self.pins else batch  # type: ignore[no-untyped-call]


@final
class _Desk:
    """What the threads share: the requests that wait, and whose turn it is. It knows none who ends them."""

    def __init__(self, plan: WorkPlan) -> None:
        self.plan: Final = plan
        self._read_for: Final = _read_for() | {plan.loader}
        self._slots: Final[SimpleQueue[Slot | None]] = SimpleQueue()
        self._turn: Final = threading.Lock()
        lock = threading.Lock()
        self._changed: Final = threading.Condition(lock)
        self._idle: Final = threading.Condition(lock)
        self._under_way = self._made = 0
        self._is_stopped = False
        self.has_copies = False

    def put(self, slot: Slot) -> None:
        """Gives the threads one more batch to make."""
        self._slots.put(slot)

    def stop(self) -> None:
        """Ends the threads when they are done with the batch that they are at."""
        self._is_stopped = True
        self._slots.put(None)
        # A finalizer may stop them in the middle of what holds the lock. Whoever waits then, waits shortly.
        if self._changed.acquire(blocking=False):
            self._changed.notify_all()
            self._changed.release()

    def work(self, number: int, reader: int) -> None:
        """What a thread does.

        Args:
            number: of the thread, from 0.
            reader: under which its figures are kept, if it reads a copy.
        """
        plan, mine, batch = self.plan, None, None
        _here.read_for = self._read_for
        with ExitStack() as copies:
            while (slot := self._taken()) is not None:
                trial, begun = plan.turns.trial, time.perf_counter()
                try:
                    if mine is None:
                        mine = self._begun(number, reader, copies)
                    if mine is not plan.requested:
                        mine.begin(slot.request)
                    batch = plan.batch(mine, slot.request)
                except BaseException as error:  # whatever it is, it belongs into the loop
                    batch = Raised(not_an_end(error, WHERE))
                self._done(trial, time.perf_counter() - begun)
                slot.answer.put(batch)
                # A thread that waits for the next request holds nothing of this one.
                del slot
                batch = None

    def _begun(self, number: int, reader: int, copies: ExitStack) -> RequestedDataset:
        if self.plan.start is not None:
            self.plan.start(number)
        mine = self.plan.requested.of_one_thread(reader, copies)
        self.has_copies |= mine is not self.plan.requested
        return mine

    def _taken(self) -> Slot | None:
        """Takes the next request, when one more batch may be made."""
        while not self._is_stopped:
            with self._turn:
                if self._under_way < self.plan.turns.at_once:
                    return self._next()
            self._wait_for_turn()
        return None

    def _wait_for_turn(self) -> None:
        turns = self.plan.turns
        with self._changed:
            made = self._made
            if self._changed.wait_for(
                lambda: self._is_stopped or self._under_way < turns.at_once, turns.patience
            ):
                return
            if self._made == made:
                turns.give_up()
                self._changed.notify_all()

    def _next(self) -> Slot | None:
        """Takes the next request; what it begins, such as an epoch, begins in the order of the requests."""
        while True:
            slot = self._slots.get()
            if slot is None or self._is_stopped:
                self._slots.put(None)  # for the next thread
                return None
            if not slot.is_wanted:
                continue
            try:
                if self.plan.requested.tells_epoch(slot.request):
                    # Nobody reads for one epoch while a dataset that all share is told another one.
                    with self._idle:
                        self._idle.wait_for(lambda: not self._under_way)
                self.plan.requested.begin(slot.request)
            except BaseException as error:  # likewise
                slot.answer.put(Raised(not_an_end(error, WHERE)))
                continue
            with self._changed:
                self._under_way += 1
            return slot

    def _done(self, trial: int, seconds: float) -> None:
        """Counts a batch that was made."""
        turns = self.plan.turns
        with self._changed:
            turns.ended(trial, seconds)
            self._under_way -= 1
            self._made += 1
            if not self._under_way:
                self._idle.notify_all()
            if turns.at_once > 1:
                # Where one at a time makes a batch, the next one is this thread's too: to pass it on to
                # another, on another processor, takes as long as some of its samples.
                self._changed.notify_all()


@final
class WorkerThreads:
    """The threads of a loader.

    Args:
        plan: what they do.
        number: how many.

    Attributes:
        readers: under which numbers the figures of copies come; no process has such an id.
    """

    def __init__(self, plan: WorkPlan, number: int) -> None:
        self.readers: Final = [next(_numbers) for _ in range(number)]
        self._desk: Final = _Desk(plan)
        self._process: Final = os.getpid()
        self._threads: Final = [
            threading.Thread(
                target=self._desk.work,
                args=(place, reader),
                name=f"samplerkit-worker-{place}",
                daemon=True,
            )
            for place, reader in enumerate(self.readers)
        ]
        # The threads know the desk alone: so this can become garbage, and end them.
        weakref.finalize(self, self._desk.stop).atexit = False
        _running.add(self)
        _end_at_exit()
        for thread in self._threads:
            start_thread(thread)

    @property
    def can_be_used(self) -> bool:
        """Whether they read for this process, and were not ended."""
        return self._process == os.getpid() and not self._desk._is_stopped

    @property
    def turns(self) -> ThreadTurns:
        """Who makes batches."""
        return self._desk.plan.turns

    @property
    def loop_may_help(self) -> bool:
        """Whether the loop may make batches itself: what several threads share it may read as well."""
        return len(self._threads) > 1 and self._desk.plan.start is None and not self._desk.has_copies

    def put(self, slot: Slot) -> None:
        """Asks for one more batch."""
        self._desk.put(slot)

    def made_here(self, request: Request) -> Any:
        """Makes a batch in the thread that calls this, while no other one makes any."""
        plan = self._desk.plan
        plan.requested.begin(request)
        return plan.batch(plan.requested, request)

    def stop(self) -> None:
        """Ends the threads when they are done with what they read now."""
        self._desk.stop()

    def join(self, deadline: float) -> None:
        """Waits for the threads until a time of the monotonic clock; what reads on is left to itself."""
        if self._process != os.getpid() or sys.is_finalizing():
            return
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join(max(0.0, deadline - time.monotonic()))


_running: weakref.WeakSet[WorkerThreads] = weakref.WeakSet()


@functools.cache
def _end_at_exit() -> None:
    # A daemon thread that is inside of torch when the interpreter goes would take the process down.
    atexit.register(lambda: end_together(list(_running)))


def end_together(running: Iterable[WorkerThreads]) -> None:
    """Ends the threads of some loaders, and waits for all of them for `LAST_BATCH_SECONDS`."""
    deadline = time.monotonic() + LAST_BATCH_SECONDS
    for threads in running:
        threads.stop()
    for threads in running:
        threads.join(deadline)
