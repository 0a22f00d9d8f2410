"""What makes the batches of requests: the interface, and the simplest of all, the loop itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import final

from samplerkit.errors import WorkerError
from samplerkit.loading.workers.batch_maker import BatchMaker
from samplerkit.loading.workers.protocol import Answer, Request

MakeRequests = Callable[[], Iterator[Request]]
"""Gives the requests of an iteration from the first one on: torch asks for them twice when workers start."""


class Workers(ABC):
    """Makes the batches of requests, in their order, for one iteration at a time.

    Attributes:
        can_be_reused: whether they can make the batches of another iteration.
    """

    can_be_reused = True

    @property
    def pids(self) -> list[int]:
        """The ids of the processes that make batches."""
        return []

    @property
    def readers(self) -> list[int]:
        """Under which numbers the figures of workers are reported."""
        return self.pids

    @abstractmethod
    def open(self, requests: MakeRequests, *, in_the_loop: bool) -> Iterator[Answer]:
        """Begins an iteration; the one before was cancelled.

        Args:
            requests: of the batches.
            in_the_loop: whether the loop asks for batches, and not the thread of a stage.
        """

    def cancel(self) -> None:  # noqa: B027  # only threads can
        """Ends the iteration, and the wait for a batch where that can be done while it is made."""

    def close(self) -> None:  # noqa: B027  # nothing is left of a loop
        """Ends the workers: they may finish the batch that they are at, and are waited for shortly."""


@final
class LoopWorkers(Workers):
    """No workers: a batch is made when the loop asks for it.

    Args:
        maker: makes batches.
    """

    def __init__(self, maker: BatchMaker) -> None:
        self._maker = maker

    def open(self, requests: MakeRequests, *, in_the_loop: bool) -> Iterator[Answer]:
        for request in requests():
            yield self._maker.__getitems__(request)


def timed_out(who: str, seconds: float | None) -> WorkerError:
    """Returns the error of a batch that did not come within the `timeout` of a loader."""
    return WorkerError(
        "timeout",
        f"is over, and {who} still reads this batch; seconds",
        seconds,
        hint="allow more, or look for what the dataset waits for",
    )
