"""One iteration over a source: who makes its batches, and the stage that they go through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Protocol, final

from samplerkit.loading.at_exit import leave_at_exit
from samplerkit.loading.device.kinds import MakeStage
from samplerkit.loading.generators import kept_generators
from samplerkit.loading.reading import Reading

_STAGE_SECONDS = 1.0
"""How long a stage may take to end by itself before the workers that it waits for are ended."""


class Workers(Protocol):
    """Who makes the batches of an iteration, beside the loop or in it."""

    @property
    def pids(self) -> Sequence[int]:
        """The ids of the processes."""

    @property
    def readers(self) -> list[int]:
        """Under which numbers their figures come."""

    @property
    def can_go_on(self) -> bool:
        """Whether they may read another iteration."""

    def __iter__(self) -> Iterator[Any]: ...

    def __next__(self) -> Any: ...

    def give_up(self) -> None:
        """Ends the wait of whoever waits for a batch, where that can be done while they read."""

    def end(self) -> None:
        """Ends the iteration; they may live on."""

    def close(self) -> None:
        """Ends them."""


@final
class OpenSource:
    """One iteration over a source, through a stage if there is one.

    Attributes:
        next_epoch: the epoch to which it ran ahead when the one before was finished; None before.
        is_open: whether it is under way.

    Args:
        workers: who makes the batches.
        make_stage: puts a stage behind them.
        keeps_workers: whether `close` leaves the workers alive.
        keeps_generators: whether the generators of this process are as before after each batch.
    """

    def __init__(
        self,
        workers: Workers,
        make_stage: MakeStage | None,
        *,
        keeps_workers: bool,
        keeps_generators: bool = False,
    ) -> None:
        self.next_epoch: int | None = None
        self.workers = workers
        self._make_stage = make_stage
        # A stage closes its source, but these workers may live on: so it gets a source without them.
        self._stage = None if make_stage is None else make_stage(batch for batch in workers)
        self._batches: Iterator[Any] = iter(workers) if self._stage is None else iter(self._stage)
        self._keeps_workers = keeps_workers
        self._keeps_generators = keeps_generators
        self.is_open = True
        leave_at_exit(self)

    def runs_ahead_to(self, reading: Reading, make_stage: MakeStage | None) -> bool:
        """Tells whether its next batches are those of a reading."""
        wanted = (reading.epoch, reading.start, make_stage)
        return self.is_open and (self.next_epoch, 0, self._make_stage) == wanted

    def next(self) -> Any:
        """Gives the next batch; raises what was raised while it was made."""
        with kept_generators() if self._keeps_generators else nullcontext():
            return next(self._batches)

    def end(self) -> bool:
        """Ends the iteration; tells whether its workers live on, and can be used for another one."""
        if not self.is_open:
            return self._keeps_workers
        self.is_open = False
        self.workers.give_up()
        has_ended = self._stage is None or self._stage.close(_STAGE_SECONDS)
        self._keeps_workers = self._keeps_workers and has_ended and self.workers.can_go_on
        if self._keeps_workers:
            self.workers.end()
        else:
            self.workers.close()
        return self._keeps_workers

    def close(self) -> None:
        """Ends the iteration and the workers."""
        if self.end():
            self._keeps_workers = False
            self.workers.close()
