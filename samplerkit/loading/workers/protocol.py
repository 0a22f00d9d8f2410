"""The interface of workers: they receive a request for each batch, and return an answer."""

from __future__ import annotations

import os
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, final

import numpy as np
import torch.utils.data
from torch.utils.data._utils.pin_memory import pin_memory

from samplerkit.batches.segments import Segments
from samplerkit.errors import WorkerError, note_once
from samplerkit.loading.background import end_together, ended_iteration, require_process
from samplerkit.order.typing import Ids, as_array
from samplerkit.samplers.mixing.edit import Edit

WorkerKind = Literal["processes", "threads"]
"""What the workers of a loader are."""

BadSamples = Literal["raise", "skip"]
"""What to do with a sample that cannot be read."""

Batches = Callable[[int, int], Iterator[tuple[int, Ids]]]
"""Iterates over the steps of a reading and their ids; its arguments are the first step and the stride."""

_MAX_IDS_NAMED = 64


@dataclass(eq=False)
class Request:
    """One batch that a rank reads. It is never changed, but not frozen, which would be slower.

    Args:
        epoch: the epoch, which so reaches persistent workers too.
        start: the position of the epoch at which the reading began.
        step: the step of the reading.
        ids: the samples, int64 of shape (samples,).
        draws: of the samples, their positions in the epoch's order; mostly a range, which is less to send.
        columns: further arguments of the dataset after the ids: the passes over their sources, the epochs of
            these, or both.
        segments: which parts of the samples are read, for packs; None where they are whole.
        edits: all edits of the run, if one was made since it began.
        places: the indices of these samples in the batch, ascending, if other workers read the rest; None if
            these are all of the batch, so that the worker that reads them collates them.
    """

    epoch: int
    start: int
    step: int
    ids: Ids
    draws: range | Ids
    columns: tuple[Ids, ...] = ()
    segments: Segments | None = None
    edits: tuple[Edit, ...] = ()
    places: Ids | None = None

    def place(self, number: int) -> int:
        """Returns the place in the batch of one of the samples."""
        return number if self.places is None else int(self.places[number])

    def follows(self, last: Request) -> bool:
        """Returns whether the dataset already expects this request, because another one comes before it."""
        is_same = (last.epoch, last.start, len(last.edits)) == (self.epoch, self.start, len(self.edits))
        return is_same and last.step < self.step

    def upcoming(self, batches: Batches, dataset: Any) -> Iterator[Ids]:
        """Returns the ids of the batches that this worker reads from here on, in turn with the others."""
        worker = torch.utils.data.get_worker_info()
        stride = 1 if worker is None else worker.num_workers
        return (ids for _, ids in batches(self.step, stride))

    def at(self, index: Ids | slice, **changed: Any) -> Self:
        """Returns the request for the samples at some places alone."""
        return replace(
            self,
            ids=self.ids[index],
            draws=as_array(self.draws)[index],
            columns=tuple(column[index] for column in self.columns),
            segments=self.segments and self.segments.at(index),
            **changed,
        )

    def read_by(self, answer: Answer) -> Request:
        """Returns the request for the samples that an answer has: those not left out, or a substitute."""
        if answer.substitute is None:
            places = answer.places_skipped
            # Nearly every batch has all of its samples, and is handed on without a copy.
            return self.at(np.delete(np.arange(self.ids.size), places)) if places else self
        segments, zero = self.segments, np.zeros(1, dtype=np.int64)
        if segments is not None:  # a substitute is as long as the longest part
            segments = Segments(zero, segments.lengths.max(keepdims=True), zero, np.zeros(1, dtype=bool))
        return replace(self, ids=np.array([answer.substitute]), segments=segments)

    def note_reading(self, error: Exception, number: int | None = None) -> None:
        """Adds a note with the sample to an error, so that the traceback names it."""
        samples = f"one of {self.some_ids}"
        if number is not None:
            samples = f"sample {self.ids[number]}, at place {self.place(number)}"
        self.note(error, f"reading {samples}")

    def note(self, error: Exception, doing: str) -> None:
        """Adds a note with the batch to an error."""
        note_once(error, f"samplerkit: while {doing} of {self.where}")

    @property
    def some_ids(self) -> str:
        """A text with the samples, or the first ones if there are many."""
        more = ", ..." if self.ids.size > _MAX_IDS_NAMED else ""
        return f"the samples {str(self.ids[:_MAX_IDS_NAMED].tolist())[:-1]}{more}]"

    @property
    def where(self) -> str:
        """A text that names the batch."""
        return f"the batch in step {self.step} of epoch {self.epoch}, counted from position {self.start}"


@dataclass(frozen=True)
class SkippedSample:
    """A sample that could not be read and was left out.

    Args:
        id: the sample.
        epoch: the epoch.
        place: its number in its batch.
        error: the type and message of what was raised.
        file: the file that lacks it, where the dataset itself leaves it out; the log has one line for each.
    """

    id: int
    epoch: int
    place: int
    error: str
    file: str = ""


@dataclass(eq=False)
class Answer:
    """The samples of a request, or the batch that was made of them, and what comes with it; see `Request`.

    Args:
        batch: the samples, as the dataset gave them, or the batch.
        skipped: samples that were left out; before they are collated, each with its number in the request.
        reports: the `stats` of the datasets of the processes that made it, if they have any, each after the
            process id.
        substitute: the sample of which the batch is made, if all of its samples were left out.
    """

    batch: Any
    skipped: tuple[SkippedSample, ...] = ()
    reports: tuple[tuple[int, Any], ...] = ()
    substitute: int | None = None

    @property
    def places_skipped(self) -> list[int]:
        """The numbers of the samples that were left out."""
        return [sample.place for sample in self.skipped]

    def pin_memory(self) -> Answer:
        """Pins the batch: what torch's DataLoader asks of batches that are not tensors."""
        return replace(self, batch=pin_memory(self.batch))  # type: ignore[no-untyped-call]


class Workers:
    """Makes the batches of requests, in order, for one iteration at a time.

    This class makes a batch in the loop, on demand; subclasses make it in the background.

    Args:
        maker: makes the batch of a request.

    Attributes:
        process: the id of the process that began them, and alone may use them.
        is_stopped: whether they end, or must not be used for another iteration.
    """

    def __init__(self, maker: Any) -> None:
        self._maker: Final = maker
        self.process = os.getpid()
        self.is_stopped = False

    @property
    def can_be_reused(self) -> bool:
        """Whether they can make the batches of another iteration."""
        return self.process == os.getpid() and not self.is_stopped

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers; others than processes have none."""
        return []

    def open(self, requests: Iterator[Request]) -> Iterator[Answer]:
        """Begins an iteration over the batches of requests; the one before was cancelled."""
        return map(self._maker.__getitem__, requests)

    def cancel(self) -> None:
        """Ends the iteration, and the wait for a batch if possible."""

    @final
    def close(self) -> None:
        """Ends the workers: they may finish their current batch, and are waited for shortly."""
        end_together([self])

    def stop(self) -> None:
        """Asks the workers to end, when they are done with the batch that they are at."""

    def join(self, deadline: float) -> None:
        """Waits for the workers until a time of the monotonic clock."""


BATCHES_AHEAD: Final = 2
"""Batches that each worker has ahead of the loop, unless `prefetch_factor` says another number."""


LONGEST_TIMEOUT: Final = 2_000_000
"""Seconds, 23 days: about the longest that the system can wait. A longer `timeout` is cut to it."""


class WorkerPool(Workers):
    """Workers that make batches in the background.

    Args:
        maker: makes the batch of a request.
        number: of workers.
        options: of the DataLoader.
    """

    def __init__(self, maker: Any, number: int, options: Mapping[str, Any]) -> None:
        super().__init__(maker)
        self._number: Final = number
        self._options: Final = options
        self.ahead: Final = (options.get("prefetch_factor") or BATCHES_AHEAD) * number
        self.timeout: Final = min(options.get("timeout") or 0, LONGEST_TIMEOUT) or None
        # Weak, as it refers to this pool: without a cycle the pool is freed without the garbage collector.
        self._iteration: Callable[[], BatchesInOrder | None] = lambda: None

    @abstractmethod
    def submit(self, request: Request) -> Any:
        """Submits a batch to a worker, and returns the task."""

    @abstractmethod
    def receive(self, task: Any) -> Answer:
        """Waits for the batch of the oldest task; raises what was raised while it was made.

        Raises:
            WorkerError: the batch did not come, or not in time.
        """

    def withdraw(self, task: Any) -> None:
        """Records that the batch of a task is no longer needed."""

    def open(self, requests: Iterator[Request]) -> Iterator[Answer]:
        """Begins an iteration; the one before was cancelled."""
        batches = BatchesInOrder(self, requests)
        self._iteration = weakref.ref(batches)
        if self.is_stopped:  # meanwhile, by another thread that iterates over the same loader
            self.cancel()
        return batches

    def cancel(self) -> None:
        """Ends the iteration; waiting requests are dropped."""
        if (batches := self._iteration()) is not None:
            batches.cancel()


class BatchesInOrder(Iterator[Answer]):
    """One iteration over the batches of a pool, in order, a bounded number of them under way.

    Args:
        pool: makes them.
        requests: of the batches, in order; iterated over in the thread that asks for batches.
    """

    def __init__(self, pool: WorkerPool, requests: Iterator[Request]) -> None:
        self._pool: Any = pool
        self._requests: Iterator[Request] | None = requests
        # A short list, not a deque: without the GIL `cancel` of another thread could not iterate over a
        # growing deque.
        self._tasks: Final[list[Any]] = []
        self._failure: Exception | None = None
        self._is_over = False

    def __next__(self) -> Answer:
        """Returns the next batch.

        Raises:
            StateError: it was ended, or another process began it.
            WorkerError: the batch did not come, or not in time.
        """
        require_process(self._pool.process)
        self._submit()
        # Behind what was submitted: `cancel` withdraws only what it finds there.
        self._require_open()
        if not self._tasks:
            raise self._failure or StopIteration
        answer: Answer = self._pool.receive(self._tasks[0])
        self._require_open()
        del self._tasks[:1]
        self._submit()
        return answer

    def cancel(self) -> None:
        """Ends the iteration, and the wait for a batch where that can be done."""
        self._is_over = True
        for task in self._tasks.copy():
            self._pool.withdraw(task)

    def _require_open(self) -> None:
        if self._is_over:
            raise ended_iteration()

    def _submit(self) -> None:
        """Submits as many batches as allowed."""
        while self._requests is not None and len(self._tasks) < self._pool.ahead and not self._is_over:
            try:
                request = next(self._requests)
            except StopIteration:
                self._requests = None
            except Exception as error:  # raised behind the batches before it
                self._requests, self._failure = None, error
            else:
                self._tasks.append(self._pool.submit(request))


def timed_out(maker: str, seconds: float | None) -> WorkerError:
    """Returns the error of a batch that did not come within the `timeout` of a loader."""
    problem = f"has passed while {maker} was reading the batch; seconds"
    hint = "raise it, or find out what the dataset waits for"
    return WorkerError("timeout", problem, seconds, hint=hint)
