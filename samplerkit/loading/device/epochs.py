"""Epochs of a loader that does not count what was handed out: any torch DataLoader, and any iterable."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, final

from samplerkit.errors import StateError
from samplerkit.loading.device.kinds import StageMaker, known_epoch, tell_epoch
from samplerkit.loading.device.producer import EpochEnd
from samplerkit.loading.device.progress import WrappedProgress, progress_of
from samplerkit.loading.device.stage import DeviceStage
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
        self._stage: DeviceStage | None = None
        self._late_stage: DeviceStage | None = None
        self._iteration: object | None = None
        self._epoch = 0
        self._next_epoch: int | None = None
        # The sampler may stand elsewhere: it was read ahead of the loop, or a state was loaded.
        self._must_tell = False

    def iterate_on(self, stage: StageMaker, *, run_ahead: bool) -> Iterator[Any]:
        """Begins an epoch, or goes on with the one that was run into ahead; ends the iteration before."""
        self._end_iteration()
        if self._stage is None:
            self._stage = stage(self._begin(run_ahead=run_ahead))
        iteration = self._iteration = object()
        return self._deliver(iteration, self._stage, run_ahead=run_ahead)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads; while one is under way, at its end.

        What was read ahead of another epoch is dropped. The epoch at which a loaded state stands keeps its
        position.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentValueError: negative.
        """
        epoch = arguments.epoch(epoch)
        if self._iteration is not None:
            self._next_epoch = epoch
        elif epoch != self._epoch or self._stage is None:
            self._go_to(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Gives the state after the batches handed out."""
        following = self._epoch + 1 if self._next_epoch is None else self._next_epoch
        return self._progress.state(self._epoch, following)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration begin where a state stands.

        Raises:
            StateError: it cannot be read, or an iteration is under way.
        """
        if self._iteration is not None:
            raise StateError(
                "state", "cannot be loaded while an iteration is under way", mend="load before iterating"
            )
        self._drop_stage()
        epoch = self._progress.load(state)
        self._must_tell = epoch is not None
        self._epoch = self._epoch if epoch is None else epoch

    def close(self) -> None:
        """Ends the thread, and the iteration under way."""
        self._end_iteration()
        self._drop_stage()

    def _begin(self, *, run_ahead: bool) -> Iterator[Any]:
        if self._late_stage is not None:
            # Two threads must not read from one loader.
            self._late_stage.close(None)
            self._late_stage = None
        if self._must_tell:
            tell_epoch(self._loader, self._epoch)
            self._must_tell = False
        else:
            known = known_epoch(self._loader)
            self._epoch = self._epoch if known is None else known
        # Worker processes are started by the thread that trains, as without a device loader.
        batches = iter(self._loader)
        skipped = self._progress.begin()
        return _read(self._loader, batches, self._epoch, skipped, self._progress.note, run_ahead=run_ahead)

    def _deliver(self, iteration: object, stage: DeviceStage, *, run_ahead: bool) -> Iterator[Any]:
        try:
            while True:
                if self._iteration is not iteration:
                    raise StateError("iteration", "was ended by a newer one or by close()")
                item = next(stage)
                if isinstance(item, EpochEnd):
                    self._end_epoch(item.note, run_ahead=run_ahead)
                    return
                *batch, noted = item
                self._progress.count(noted.note)
                # Nothing here refers to the batch while the loop has it: it may be done with it early.
                del item, noted
                yield batch.pop()
        finally:
            if self._iteration is iteration:
                self._end_iteration()

    def _end_epoch(self, note: Any, *, run_ahead: bool) -> None:
        self._iteration = None
        self._epoch += 1
        self._progress.end_epoch(note)
        if not run_ahead:
            self._drop_stage()
            self._must_tell = False
        self._go_to_next()

    def _end_iteration(self) -> None:
        """Ends an iteration that did not reach its end: what was read ahead is of no use."""
        if self._iteration is not None:
            self._iteration = None
            self._drop_stage()
            self._go_to_next()

    def _go_to_next(self) -> None:
        epoch, self._next_epoch = self._next_epoch, None
        if epoch is not None and epoch != self._epoch:
            self._go_to(epoch)

    def _go_to(self, epoch: int) -> None:
        self._drop_stage()
        if epoch != self._epoch:
            self._progress.forget()
        self._epoch, self._must_tell = epoch, False
        tell_epoch(self._loader, epoch)

    def _drop_stage(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
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
