"""One iteration over the batches that threads make, in order, a bounded number of them under way."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from queue import Empty
from typing import Any, Final, final

from samplerkit.errors import StateError, WorkerError
from samplerkit.loading.request import Request
from samplerkit.loading.worker_threads import Raised, Slot, WorkerThreads, end_together

_GIVEN_UP: Final = object()


@final
class ThreadedBatches(Iterator[Any]):
    """One iteration over the batches that threads make: what `Watched` is of processes.

    Args:
        threads: who makes them.
        requests: what is wanted, in order; iterated over in the thread that asks for batches.
        ahead: how many are under way at most.
        timeout: how many seconds one may take; None for no limit.
    """

    pids: tuple[int, ...] = ()

    def __init__(
        self, threads: WorkerThreads, requests: Iterator[Request], ahead: int, timeout: float | None
    ) -> None:
        self._threads: Final = threads
        self._requests: Iterator[Request] | None = requests
        self._ahead: Final = ahead
        self._timeout: Final = timeout
        self._slots: Final[deque[Slot]] = deque()
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
        self._ask()
        if not self._slots and not self._is_over:
            if self._failure is not None:
                raise self._failure
            raise StopIteration
        answer = _GIVEN_UP if self._is_over else self._answer(self._slots[0])
        if answer is _GIVEN_UP or self._is_over:
            raise StateError("iteration", "was ended by a newer one or by close()")
        self._slots.popleft()
        if isinstance(answer, Raised):
            try:
                raise answer.error
            finally:
                # The error's traceback refers to this frame.
                del answer
        self._ask()
        return answer

    def _answer(self, slot: Slot) -> Any:
        try:
            return slot.answer.get(timeout=self._timeout)
        except Empty:
            raise WorkerError(
                "timeout",
                "is over, and a thread still reads this batch; seconds",
                self._timeout,
                mend="allow more, or look for what the dataset waits for",
            ) from None

    def _ask(self) -> None:
        """Asks for as many batches as may be under way."""
        while self._requests is not None and len(self._slots) < self._ahead and not self._is_over:
            try:
                slot = Slot(next(self._requests))
            except StopIteration:
                self._requests = None
            except Exception as error:  # raised behind the batches before it
                self._requests, self._failure = None, error
            else:
                self._slots.append(slot)
                self._threads.put(slot)

    def give_up(self) -> None:
        """Ends the iteration, and the wait of whoever waits for a batch; what waits is not read any more."""
        self._is_over = True
        for slot in list(self._slots):
            slot.is_wanted = False
            slot.answer.put(_GIVEN_UP)

    def end(self) -> None:
        """Ends the iteration; the threads live on."""
        self.give_up()

    def close(self) -> None:
        """Ends the threads: they may finish what they read, and are waited for as long as processes are."""
        self.give_up()
        end_together([self._threads])
