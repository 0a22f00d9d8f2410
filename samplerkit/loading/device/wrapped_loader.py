"""Epochs of a loader that does not count what was handed out: any torch DataLoader, and any iterable."""

from __future__ import annotations

import collections
import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, final

from samplerkit.errors import StateError
from samplerkit.loading.cursor import Cursor, Iteration
from samplerkit.loading.device.stage import EPOCH_END, DeviceStage, MakeStage
from samplerkit.loading.state.state import FieldCheck, Place, optional, require_fields, whole
from samplerkit.order import arguments
from samplerkit.order.arguments import LARGEST

SCHEMA: Final = 1
"""Of the states of loaders that have none of their own."""

_CHECKS = {
    "schema": FieldCheck(lambda value: value == SCHEMA, "is not known to this version"),
    "epoch": whole(0, LARGEST),
    "step": whole(0, LARGEST),
    "ended": optional(whole(0, LARGEST)),
}


@final
class WrappedLoader:
    """Puts a stage between a loader and the loop, and counts behind it.

    Args:
        loader: any iterable.
    """

    def __init__(self, loader: Iterable[Any]) -> None:
        self._loader: Final = loader
        self._cursor: Final[StepCursor] = _cursor_of(loader)
        self._stage: DeviceStage | None = None
        # Of the batches in the stage and the ends of epochs, in the order in which they leave it.
        self._notes: collections.deque[Any] = collections.deque()
        self._late_stage: DeviceStage | None = None
        # The sampler may be at another epoch: it was read ahead of the loop, or a state was loaded.
        self._must_set_epoch = False

    def iterate_on(self, make_stage: MakeStage, *, run_ahead: bool) -> Iterator[Any]:
        """Begins an epoch, or continues the one that was run into ahead; ends the iteration before."""
        self._end(self._cursor.at)
        if self._stage is None:
            self._stage = make_stage(self._begin(run_ahead=run_ahead))
        return self._deliver(self._cursor.begin(), self._stage, run_ahead=run_ahead)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads; while one is under way, at its end.

        What was read ahead of another epoch is dropped. The epoch of a loaded state keeps its position.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentValueError: negative.
        """
        epoch, before = arguments.epoch(epoch), self._cursor.epoch
        self._cursor.set_epoch(epoch)
        if not self._cursor.at.is_open and (epoch != before or self._stage is None):
            self._set_epoch_of_loader()

    def state_dict(self) -> dict[str, Any]:
        """Gives the state after the batches handed out."""
        return self._cursor.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration begin at the place of a state.

        Raises:
            StateError: it cannot be read, or an iteration is under way.
        """
        self._cursor.require_closed()
        self._drop_stage()
        self._must_set_epoch = self._cursor.restore(state)

    def close(self) -> None:
        """Ends the thread, and the iteration under way."""
        self._end(self._cursor.at)
        self._drop_stage()

    def __getstate__(self) -> dict[str, Any]:
        """A copy begins from scratch: the thread that reads ahead stays with this one."""
        must_set_epoch = self._must_set_epoch or self._stage is not None
        fresh: dict[str, Any] = {"_stage": None, "_late_stage": None, "_notes": collections.deque()}
        return {**self.__dict__, **fresh, "_must_set_epoch": must_set_epoch}

    def _begin(self, *, run_ahead: bool) -> Iterator[Any]:
        if self._late_stage is not None:
            # Two threads must not read from one loader.
            self._late_stage.close(None)
            self._late_stage = None
        upcoming = self._cursor.upcoming
        epoch, skipped = upcoming.epoch, upcoming.start
        if self._must_set_epoch:
            self._set_epoch_of_loader()
        elif (known := _epoch_of(self._loader)) is not None and known != epoch:
            # Somebody set the sampler's epoch, and not ours.
            epoch = known
            self._cursor.go_to(epoch, skipped)
        # Worker processes are started by the thread that trains, as without a device loader.
        batches = iter(()) if upcoming.is_spent else iter(self._loader)
        cursor, notes = self._cursor, collections.deque[Any]()
        cursor.count(cursor.note())
        # The thread of a stage that was dropped may still append to its own.
        self._notes = notes
        rest = itertools.islice(batches, skipped, None)  # which reads what is skipped in the loading thread
        following = itertools.count(epoch + 1) if run_ahead else iter(())
        return _read(self._loader, rest, following, lambda: notes.append(cursor.note()))

    def _deliver(self, iteration: Iteration, stage: DeviceStage, *, run_ahead: bool) -> Iterator[Any]:
        try:
            while True:
                if not iteration.is_open:
                    raise StateError("iteration", "was ended by a newer one or by close()")
                received = [next(stage)]
                self._cursor.count(self._notes.popleft())
                if received[0] is EPOCH_END:
                    self._end_epoch(iteration, run_ahead=run_ahead)
                    return
                iteration.taken += 1
                # Nothing here refers to the batch while the loop has it: it may be done with it early.
                yield received.pop()
        finally:
            self._end(iteration)

    def _end_epoch(self, iteration: Iteration, *, run_ahead: bool) -> None:
        following, asked = iteration.epoch + 1, self._cursor.next_epoch
        self._cursor.end(iteration, at_its_end=True)
        if run_ahead and asked in {None, following}:
            return  # the thread has set the sampler's epoch, and reads it already
        self._drop_stage()
        self._must_set_epoch = False
        if asked is not None:
            self._set_epoch_of_loader()

    def _end(self, iteration: Iteration) -> None:
        """Ends an iteration that did not reach its end: what was read ahead is of no use."""
        if iteration.is_open:
            self._cursor.end(iteration)
            self._drop_stage()

    def _set_epoch_of_loader(self) -> None:
        """Sets the epoch of the loader's sampler; what was read ahead of it is of another one."""
        self._drop_stage()
        self._must_set_epoch = False
        _set_epoch(self._loader, self._cursor.epoch)

    def _drop_stage(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            # A load that outlasts the end continues in its thread; the next iteration waits for it.
            self._late_stage = None if stage.close() else stage
            self._must_set_epoch = True


def _read(
    loader: Iterable[Any], batches: Iterator[Any], following: Iterator[int], note: Callable[[], None]
) -> Iterator[Any]:
    """Gives the batches of an epoch, and of those that follow; notes each before. In the loading thread."""
    while True:
        for batch in batches:
            note()
            yield batch
            del batch
        note()
        yield EPOCH_END
        if (epoch := next(following, None)) is None:
            return
        _set_epoch(loader, epoch)
        batches = iter(loader)


class StepCursor(Cursor):
    """The cursor of a loader without a state: its batches are counted, and skipped after a restore.

    Skipped batches are read all the same. The loader must give the same batches in the same order again.

    Args:
        loader: any iterable; if it has a length, the end of an epoch is known before the loop asks for more.
    """

    def __init__(self, loader: Any) -> None:
        super().__init__(waits=True)
        self._loader: Final = loader

    def note(self) -> Any:
        """Gives, in the loading thread, a note of the batch just loaded."""
        return None

    def count(self, note: Any) -> None:
        """Takes the note of a batch that is handed out, of the end of an epoch, or of its beginning."""

    def reached(self, epoch: int, start: int, taken: int) -> tuple[int, bool]:
        """The batches, and whether they are all. A stream may continue beyond the length that it claims."""
        step = start + taken
        try:
            return step, 0 < step == len(self._loader)
        except TypeError:
            return step, False

    def state(self) -> dict[str, Any]:
        """The epoch and the step; at the end of an epoch the next one and 0, and the epoch that ended."""
        place = self.place()
        return {"schema": SCHEMA, "epoch": place.epoch, "step": place.position, "ended": place.ended}

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Goes to the place of a state; returns whether it says one.

        Raises:
            StateError: a field is missing, or damaged, or of a newer schema.
        """
        require_fields("state", state, _CHECKS, may_lack=("ended",))
        self.load(Place(state["epoch"], state["step"], state.get("ended")))
        return True


@final
class SnapshotCursor(StepCursor):
    """The cursor of a loader that has a state: a snapshot of it is taken after each batch.

    It knows the epoch alone: what a state means is the loader's own affair.

    Args:
        loader: has `state_dict` and `load_state_dict`, as torchdata's `StatefulDataLoader`.
    """

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._state: dict[str, Any] | None = None

    def note(self) -> dict[str, Any]:
        """A copy: a state may refer to what the loader will change."""
        state: dict[str, Any] = copy.deepcopy(self._loader.state_dict())
        return state

    def count(self, note: Any) -> None:
        """Keeps the snapshot."""
        self._state = note

    def reached(self, epoch: int, start: int, taken: int) -> tuple[int, bool]:
        """Nothing is skipped, and an end is only seen."""
        return 0, False

    def state(self) -> dict[str, Any]:
        """The snapshot of the batch handed out last; before the first one, the loader's own state."""
        return self.note() if self._state is None else copy.deepcopy(self._state)

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Gives it to the loader, which alone knows its place."""
        self._loader.load_state_dict(state)
        self._state = copy.deepcopy(dict(state))
        return False


def _cursor_of(loader: Any) -> StepCursor:
    is_stateful = all(callable(getattr(loader, name, None)) for name in ("state_dict", "load_state_dict"))
    return SnapshotCursor(loader) if is_stateful else StepCursor(loader)


def _set_epoch(loader: Any, epoch: int) -> None:
    """Sets the epoch of the loader, or else of the first of its samplers that has one."""
    if (found := _takes_epoch(loader)) is not None:
        found.set_epoch(epoch)


def _epoch_of(loader: Any) -> int | None:
    """Gives the epoch at which the sampler that has one says it is."""
    epoch = getattr(_takes_epoch(loader), "epoch", None)
    return epoch if isinstance(epoch, int) else None


def _takes_epoch(loader: Any) -> Any:
    """The first of a loader and its samplers that has `set_epoch`; None if there is none."""
    batches = getattr(loader, "batch_sampler", None)
    found = (loader, getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None))
    return next((one for one in found if callable(getattr(one, "set_epoch", None))), None)
