"""Epochs of a loader that does not count what was handed out: any torch DataLoader, and any iterable."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, final

from samplerkit.errors import StateError
from samplerkit.loading.cursor import Cursor, Iteration
from samplerkit.loading.device.kinds import BatchStage, MakeStage, known_epoch, tell_epoch
from samplerkit.loading.device.producer import EpochEnd
from samplerkit.loading.device.progress import WrappedProgress, progress_of
from samplerkit.order import arguments


@final
class Noted:
    """What travels with a batch and is nothing that could be moved: so the stage lets it pass.

    Args:
        note: the state of the source after this batch.
    """

    def __init__(self, note: Any) -> None:
        self.note: Final = note


@final
class Epochs:
    """Puts a stage between a loader and the loop, and counts behind it.

    Args:
        loader: any iterable.
    """

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader: Final = loader
        self._progress: Final[WrappedProgress] = progress_of(loader)
        self._cursor: Final = Cursor(self._progress.reached, waits=True)
        self._stage: BatchStage | None = None
        self._late_stage: BatchStage | None = None
        # The sampler may stand elsewhere: it was read ahead of the loop, or a state was loaded.
        self._must_tell = False

    def iterate_on(self, stage: MakeStage, *, run_ahead: bool) -> Iterator[Any]:
        """Begins an epoch, or goes on with the one that was run into ahead; ends the iteration before."""
        self._end(self._cursor.at)
        if self._stage is None:
            self._stage = stage(self._begin(run_ahead=run_ahead))
        return self._deliver(self._cursor.begin(), self._stage, run_ahead=run_ahead)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads; while one is under way, at its end.

        What was read ahead of another epoch is dropped. The epoch at which a loaded state stands keeps its
        position.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentValueError: negative.
        """
        epoch, before = arguments.epoch(epoch), self._cursor.epoch
        self._cursor.set_epoch(epoch)
        if not self._cursor.at.is_open and (epoch != before or self._stage is None):
            self._tell()

    def state_dict(self) -> dict[str, Any]:
        """Gives the state after the batches handed out."""
        return self._progress.state(self._cursor.place())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration begin where a state stands.

        Raises:
            StateError: it cannot be read, or an iteration is under way.
        """
        if self._cursor.at.is_open:
            raise StateError(
                "state", "cannot be loaded while an iteration is under way", mend="load before iterating"
            )
        self._drop_stage()
        place = self._progress.load(state)
        self._must_tell = place is not None
        if place is not None:
            self._cursor.go_to(*place)

    def close(self) -> None:
        """Ends the thread, and the iteration under way."""
        self._end(self._cursor.at)
        self._drop_stage()

    def _begin(self, *, run_ahead: bool) -> Iterator[Any]:
        if self._late_stage is not None:
            # Two threads must not read from one loader.
            self._late_stage.close(None)
            self._late_stage = None
        epoch, skipped = self._cursor.upcoming
        if self._must_tell:
            self._tell()
        elif (known := known_epoch(self._loader)) is not None and known != epoch:
            # Somebody told the sampler, and not us.
            epoch = known
            self._cursor.go_to(epoch, skipped)
        # Worker processes are started by the thread that trains, as without a device loader.
        batches = iter(self._loader)
        self._progress.count(self._progress.note())
        return _read(self._loader, batches, epoch, skipped, self._progress.note, run_ahead=run_ahead)

    def _deliver(self, iteration: Iteration, stage: BatchStage, *, run_ahead: bool) -> Iterator[Any]:
        try:
            while True:
                if not iteration.is_open:
                    raise StateError("iteration", "was ended by a newer one or by close()")
                item = next(stage)
                if isinstance(item, EpochEnd):
                    self._progress.count(item.note)
                    self._end_epoch(iteration, run_ahead=run_ahead)
                    return
                *batch, noted = item
                self._progress.count(noted.note)
                # Nothing here refers to the batch while the loop has it: it may be done with it early.
                del item, noted
                iteration.taken += 1
                yield batch.pop()
        finally:
            self._end(iteration)

    def _end_epoch(self, iteration: Iteration, *, run_ahead: bool) -> None:
        following, asked = iteration.epoch + 1, self._cursor.asked
        self._cursor.end(iteration, at_its_end=True)
        if run_ahead and asked in {None, following}:
            return  # the thread has told the sampler, and reads there already
        self._drop_stage()
        self._must_tell = False
        if asked is not None:
            self._tell()

    def _end(self, iteration: Iteration) -> None:
        """Ends an iteration that did not reach its end: what was read ahead is of no use."""
        if iteration.is_open:
            self._cursor.end(iteration)
            self._drop_stage()

    def _tell(self) -> None:
        """Tells the sampler the epoch; what was read ahead of it is of another one."""
        self._drop_stage()
        self._must_tell = False
        tell_epoch(self._loader, self._cursor.epoch)

    def _drop_stage(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            # A load that outlasts the end goes on in its thread; the next iteration waits for it.
            self._late_stage = None if stage.close() else stage
            self._must_tell = True


def _read(
    loader: Iterable[Any],
    batches: Iterator[Any],
    epoch: int,
    skipped: int,
    note: Callable[[], Any],
    *,
    run_ahead: bool,
) -> Iterator[Any]:
    """Gives batches with what is to be noted after each; runs in the loading thread."""
    for _ in itertools.islice(batches, skipped):
        pass
    while True:
        for batch in batches:
            yield batch, Noted(note())
            del batch
        yield EpochEnd(note())
        if not run_ahead:
            return
        epoch += 1
        tell_epoch(loader, epoch)
        batches = iter(loader)
