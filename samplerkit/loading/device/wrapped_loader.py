"""Loaders of other packages behind a stage: what the loop received of them, their epochs and their states."""

import copy
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from samplerkit.loading.background import ended_iteration
from samplerkit.loading.device.stage import DeviceStage, EpochEnd, MakeStage
from samplerkit.loading.iteration import FunctionCursor, Iteration
from samplerkit.loading.state.state import FieldCheck, Place, int_in, optional, require_fields
from samplerkit.loading.workers.protocol import LONGEST_TIMEOUT
from samplerkit.order import arguments
from samplerkit.order.arguments import LARGEST

SCHEMA: Final = 1
"""The version of the states of loaders that have no state of their own."""

_CHECKS = {
    "schema": FieldCheck(lambda value: value == SCHEMA, "is not known to this version"),
    "epoch": int_in(0, LARGEST),
    "step": int_in(0, LARGEST),
    "ended": optional(int_in(0, LARGEST)),
}


@dataclass(frozen=True, eq=False)
class LoadedItem:
    """A batch of a loader.

    Args:
        batch: the batch.
        state: a function that returns the state of the loader after it; None of a loader that has no state.
    """

    batch: Any
    state: Any


class WrappedLoader:
    """Puts a stage between the loop and a loader that does not count what was handed out; counts behind it.

    For a loader with its own state, such as torchdata's, a snapshot is taken after each batch, and the cursor
    knows the epoch alone. Of any other one, batches are counted, and skipped after a restore: they are read
    all the same, so it must give the same batches in the same order again.

    Args:
        loader: any iterable; if it has a length, the end of an epoch is known before the loop asks for more.
    """

    def __init__(self, loader: Any) -> None:
        self._loader: Final = loader
        self._has_state: Final = _has_state(loader)
        sized = None if self._has_state else loader
        self._cursor: Final = FunctionCursor(partial(_reached, sized), waits=True)
        # Returns the state after the batch handed out last; None before the first one.
        self._state: Any = None
        self._stage: DeviceStage | None = None
        self._dropped_stage: DeviceStage | None = None
        # A thread that outlasts its iteration, or that this one was copied from, may have moved the epoch of
        # the sampler since it was set.
        self._must_set_epoch = False
        # A state of the loader's own sets it when an iteration begins.
        self._state_sets_epoch = False

    def iterate_on(self, make_stage: MakeStage, *, run_ahead: bool) -> Iterator[Any]:
        """Reads an epoch, or the rest of the one that was run into ahead; ends the iteration before."""
        self._end(self._cursor.current)
        if self._stage is None:
            self._stage = make_stage(self._begin(run_ahead=run_ahead))
        iteration = self._cursor.begin()
        try:
            for item in self._stage:
                self._state = item.state
                if isinstance(item, EpochEnd):
                    self._end_epoch(iteration, run_ahead=run_ahead)
                    return
                # As in `Loader`: no call between these lines, in which a handler could raise.
                iteration.taken += 1
                yield item.batch
                del item
                if not iteration.is_open:
                    raise ended_iteration()
        finally:
            self._end(iteration)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads; while one is under way, at its end.

        What was read ahead of another epoch is dropped. The epoch of a loaded state keeps its position.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentValueError: negative.
        """
        epoch, before = arguments.epoch(epoch), self._cursor.epoch
        self._cursor.set_epoch(epoch)
        if not self._cursor.current.is_open and (epoch != before or self._stage is None):
            self._set_epoch_of_loader()

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the batches handed out.

        At the end of an epoch that is the beginning of the next one, with the epoch that ended.
        """
        if self._has_state:
            state: dict[str, Any] = (self._state or _state_now(self._loader))()
            return state
        place = self._cursor.place()
        return {"schema": SCHEMA, "epoch": place.epoch, "step": place.position, "ended": place.ended}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration begin at the place of a state.

        Raises:
            StateError: it cannot be read, or an iteration is under way.
        """
        self._cursor.require_closed()
        self._drop_stage()
        if self._has_state:
            self._loader.load_state_dict(state)
            self._state = partial(copy.deepcopy, copy.deepcopy(dict(state)))
            self._must_set_epoch, self._state_sets_epoch = False, True
        else:
            require_fields("state", state, _CHECKS)
            self._cursor.load(Place(state["epoch"], state["step"], state["ended"]))
            self._set_epoch_of_loader()

    def close(self) -> None:
        """Ends the thread, and the iteration under way."""
        self._end(self._cursor.current)
        if self._stage is not None:  # it runs ahead
            self._set_epoch_of_loader()

    def __getstate__(self) -> dict[str, Any]:
        """A copy begins from scratch: the thread that reads ahead stays with this one."""
        must_set_epoch = self._must_set_epoch or self._stage is not None
        fresh = {"_stage": None, "_dropped_stage": None, "_must_set_epoch": must_set_epoch}
        return {**self.__dict__, **fresh}

    def _begin(self, *, run_ahead: bool) -> Iterator[Any]:
        if self._dropped_stage is not None:
            # Two threads must not read from one loader: a load may have outlasted the end.
            self._dropped_stage.close(LONGEST_TIMEOUT)
            self._dropped_stage = None
        if self._must_set_epoch:
            self._set_epoch_of_loader()
        elif (epoch := _epoch_of(self._loader)) not in {None, self._cursor.upcoming.epoch}:
            # The sampler's epoch was set directly, not through this loader.
            self._cursor.set_epoch(epoch)
        # Worker processes are started by the thread that trains, as without a device loader.
        batches = iter(()) if self._cursor.upcoming.is_spent else iter(self._loader)
        if self._state_sets_epoch and (epoch := _epoch_of(self._loader)) is not None:
            self._cursor.go_to(epoch)
        upcoming, self._state_sets_epoch = self._cursor.upcoming, False
        self._state = _state_now(self._loader)
        # What is skipped is read in the loading thread.
        rest = itertools.islice(batches, upcoming.start, None)
        return _read(self._loader, rest, itertools.count(upcoming.epoch + 1) if run_ahead else iter(()))

    def _end_epoch(self, iteration: Iteration, *, run_ahead: bool) -> None:
        following, requested = iteration.epoch + 1, self._cursor.next_epoch
        self._cursor.end(iteration, at_its_end=True)
        # Nothing is read ahead of an empty epoch.
        if run_ahead and iteration.taken and requested in {None, following}:
            return  # the thread has set the sampler's epoch, and reads it already
        if run_ahead or requested is not None:
            self._set_epoch_of_loader()
        else:
            self._drop_stage()  # the sampler moves on alone, or stays

    def _end(self, iteration: Iteration) -> None:
        """Ends an iteration that did not reach its end: what was read ahead is of no use."""
        if iteration.is_open and not sys.is_finalizing():
            self._cursor.end(iteration)
            self._set_epoch_of_loader()

    def _set_epoch_of_loader(self) -> None:
        """Sets the epoch of the loader's sampler; what was read ahead of it is of another one."""
        self._drop_stage()
        self._must_set_epoch = self._dropped_stage is not None
        _set_epoch(self._loader, self._cursor.epoch)

    def _drop_stage(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            # Only one whose load outlasts the end is kept: a stage holds leaves of its last batches.
            self._dropped_stage = None if stage.close() else stage


def _read(loader: Iterable[Any], batches: Iterator[Any], following: Iterator[int]) -> Iterator[Any]:
    """Yields the batches of an epoch, and of those that follow, each with its state. In the loading thread.

    It ends with an epoch that is empty: nothing would bound how many of these are read ahead.
    """
    while True:
        is_empty = True
        for batch in batches:
            is_empty = False
            yield LoadedItem(batch, _state_now(loader))
            del batch
        yield EpochEnd(_state_now(loader))
        if is_empty or (epoch := next(following, None)) is None:
            return
        _set_epoch(loader, epoch)
        batches = iter(loader)


def _reached(sized: Any, _: int, start: int, taken: int) -> tuple[int, bool]:
    """The batches, and whether they are all. A stream may continue beyond the length that it claims."""
    step = start + taken
    try:
        return step, 0 < step == len(sized)
    except TypeError:
        return step, False


def _has_state(loader: Any) -> bool:
    return all(callable(getattr(loader, name, None)) for name in ("state_dict", "load_state_dict"))


def _state_now(loader: Any) -> Any:
    """Returns what copies the state that a loader has now: a function, which a stage does not look into.

    The state is copied, as it may refer to what the loader will change.
    """
    return partial(copy.deepcopy, copy.deepcopy(loader.state_dict())) if _has_state(loader) else None


def _set_epoch(loader: Any, epoch: int) -> None:
    """Sets the epoch of the loader, or else of the first of its samplers that has one."""
    if (owner := _epoch_owner(loader)) is not None:
        owner.set_epoch(epoch)


def _epoch_of(loader: Any) -> Any:
    """Returns the epoch of whatever has one; None if nothing has."""
    epoch = getattr(_epoch_owner(loader), "epoch", None)
    return epoch if isinstance(epoch, int) else None


def _epoch_owner(loader: Any) -> Any:
    """The first of a loader and its samplers that has `set_epoch`; None if there is none."""
    batches = getattr(loader, "batch_sampler", None)
    candidates = (loader, getattr(loader, "sampler", None), batches, getattr(batches, "sampler", None))
    return next((item for item in candidates if callable(getattr(item, "set_epoch", None))), None)
