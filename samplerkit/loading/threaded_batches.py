"""One iteration over the batches that threads make, in order, a bounded number of them under way."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from queue import Empty
from typing import Any, Final, final

from samplerkit.errors import StateError, WorkerError
from samplerkit.loading.beside_the_loop import not_an_end
from samplerkit.loading.request import Request
from samplerkit.loading.worker_threads import WHERE, Raised, Slot, WorkerThreads, end_together

_GIVEN_UP: Final = object()


@final
class ThreadedBatches(Iterator[Any]):
    """One iteration over the batches that threads make: what `Watched` is of processes.

    Args:
        threads: who makes them.
        requests: what is wanted, in order; iterated over in the thread that asks for batches.
        ahead: how many are under way at most.
        timeout: how many seconds one may take; None for no limit.
        loop_helps: whether the loop makes batches itself where that is quicker.
    """

    pids: tuple[int, ...] = ()

    def __init__(
        self,
        threads: WorkerThreads,
        requests: Iterator[Request],
        ahead: int,
        timeout: float | None,
        *,
        loop_helps: bool = False,
    ) -> None:
        self._threads: Final = threads
        self._requests: Iterator[Request] | None = requests
        self._ahead: Final = ahead
        self._timeout: Final = timeout
        self._turns: Final = threads.turns
        self._loop_helps: Final = loop_helps and timeout is None
        self._received: float | None = None
        # Few, and no deque: without the GIL another thread's `give_up` could not go through one that grows.
        self._slots: Final[list[Slot]] = []
        self._failure: Exception | None = None
        self._is_over = False
        self._process: Final = os.getpid()

    @property
    def readers(self) -> list[int]:
        """Under which numbers the figures of copies come."""
        return self._threads.readers

    @property
    def can_go_on(self) -> bool:
        """Whether the threads may read another iteration: an error of the dataset does not end them."""
        return True

    def __next__(self) -> Any:
        """Gives the next batch.

        Raises:
            StateError: it was ended, or another process began it.
            WorkerError: the batch did not come in time.
        """
        if self._process != os.getpid():
            mend = "iterate anew in this process"
            raise StateError("iteration", "belongs to the process that began it", mend=mend)
        asked = time.perf_counter()
        self._ask()
        if not self._slots and not self._is_over:
            if self._failure is not None:
                raise self._failure
            raise StopIteration
        trial = self._turns.loop.trial
        answer = _GIVEN_UP if self._is_over else self._answer(self._slots[0])
        if answer is _GIVEN_UP or self._is_over:
            raise StateError("iteration", "was ended by a newer one or by close()")
        slot = self._slots.pop(0)
        if isinstance(answer, Raised):
            try:
                raise answer.error
            finally:
                # The error's traceback refers to this frame.
                del answer
        self._ask()
        before, self._received = self._received, time.perf_counter()
        if before is not None and self._loop_helps:
            self._turns.received(
                trial if slot.trial is None else slot.trial, asked - before, self._received - asked
            )
        return answer

    def _answer(self, slot: Slot) -> Any:
        if slot.trial is None:
            return self._made_here(slot.request)
        try:
            return slot.answer.get(timeout=self._timeout)
        except Empty:
            raise WorkerError(
                "timeout",
                "is over, and a thread still reads this batch; seconds",
                self._timeout,
                mend="allow more, or look for what the dataset waits for",
            ) from None

    def _made_here(self, request: Request) -> Any:
        # What threads were asked for came before it, and behind it they were asked for nothing: none reads.
        try:
            return self._threads.made_here(request)
        except StopIteration as error:
            return Raised(not_an_end(error, WHERE))

    def _ask(self) -> None:
        """Sees that as many batches are under way as may be, and that threads are asked for theirs."""
        while self._requests is not None and len(self._slots) < self._ahead and not self._is_over:
            try:
                self._slots.append(Slot(next(self._requests)))
            except StopIteration:
                self._requests = None
            except Exception as error:  # raised behind the batches before it
                self._requests, self._failure = None, error
        for slot in list(self._slots):
            # A thread makes the first batch. When it is there, none reads for an iteration before this one.
            if slot.trial is None and not (self._received is not None and self._is_by_loop):
                slot.trial = self._turns.loop.trial
                self._threads.put(slot)

    @property
    def _is_by_loop(self) -> bool:
        return self._loop_helps and not self._turns.loop.now and self._threads.loop_may_help

    def give_up(self) -> None:
        """Ends the iteration, and the wait of whoever waits for a batch; what waits is not read any more."""
        self._is_over = True
        for slot in self._slots.copy():
            slot.is_wanted = False
            slot.answer.put(_GIVEN_UP)

    def end(self) -> None:
        """Ends the iteration; the threads live on."""
        self.give_up()

    def close(self) -> None:
        """Ends the threads: they may finish what they read, and are waited for as long as processes are."""
        self.give_up()
        end_together([self._threads])
