"""The device loader: any loader, with its batches on the device before the loop asks for them."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, final

import torch

from samplerkit.closing import Closing
from samplerkit.errors import ArgumentTypeError, NotSupportedError
from samplerkit.loading.background import ended_iteration
from samplerkit.loading.device.stage import DeviceStage, EpochEnd, Load, MakeStage
from samplerkit.loading.device.streams import (
    PinMemory,
    checked_device,
    current_device,
    pin_policy,
    require_available,
)
from samplerkit.loading.iteration import FunctionCursor, Iteration
from samplerkit.loading.state.state import FieldCheck, Place, int_in, optional, require_fields
from samplerkit.loading.stats import DeviceStats, StageCounts
from samplerkit.loading.steps import with_bar
from samplerkit.loading.workers.protocol import LONGEST_TIMEOUT
from samplerkit.order import arguments
from samplerkit.order.arguments import LARGEST
from samplerkit.samplers.mixing.edit import Edit

MAX_AHEAD = 2**16

SCHEMA: Final = 1
"""The version of the states of loaders that have no state of their own."""

_CHECKS = {
    "schema": FieldCheck(lambda value: value == SCHEMA, "is not known to this version"),
    "epoch": int_in(0, LARGEST),
    "step": int_in(0, LARGEST),
    "ended": optional(int_in(0, LARGEST)),
}


class DeviceLoader(Closing):
    """Hands out the batches of a loader on a device, and prefetches the next ones while the loop trains.

    A thread loads, pins and copies on a side stream, so that a step takes the longer of loading and training,
    not their sum. Batches may be any nesting of tensors and objects with `to`; see `map_leaves`.

    The state counts batches that the loop received. It is that of samplerkit's `Loader`, or of torchdata's
    `StatefulDataLoader` after the latest batch. For any other loader, it is the epoch and the number of
    batches, which are read and skipped after a restore.

    A second iteration ends the first. After an early break, the next iteration begins the epoch again. The
    attributes of the loader can be read here too.

    Args:
        loader: a samplerkit `Loader`, a `StatefulDataLoader`, a `DataLoader`, or any iterable of batches.
        device: the device of the batches; None for the accelerator of this process, or the cpu if there is
            none.
        depth: how many batches are prefetched; at most depth + 2 are on the device at a time.
        pin_memory: whether tensors are pinned before they are copied; "auto" if the device benefits from it.
        run_ahead: whether loading continues into the next epoch before the loop asks for it. The sampler's
            epoch is set then. `set_epoch` with another one drops what was loaded.
        load: makes of a batch on the host, pinned where that is done, what the loop gets, in place of copying
            its tensors. The thread calls it once a batch, on the side stream: augmentation on the device is
            off the loop there. It must not hold this object.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: `depth` is not positive.
        ArgumentValueError: the device is not available, or `pin_memory` is True without an accelerator.

    Example:
        >>> import torch
        >>> batches = torch.utils.data.DataLoader(torch.arange(6), batch_size=2)
        >>> with DeviceLoader(batches, "cpu") as loader:
        ...     for batch in loader:
        ...         if 3 in batch:
        ...             state = loader.state_dict()
        >>> state
        {'schema': 1, 'epoch': 0, 'step': 2, 'ended': None}
        >>> resumed = DeviceLoader(batches, "cpu")
        >>> resumed.load_state_dict(state)
        >>> list(resumed)
        [tensor([4, 5])]
    """

    def __init__(
        self,
        loader: Iterable[Any],
        device: torch.device | str | None = None,
        *,
        depth: int = 2,
        pin_memory: PinMemory = "auto",
        run_ahead: bool = False,
        load: Load | None = None,
    ) -> None:
        if not isinstance(loader, Iterable):
            raise ArgumentTypeError("loader", "must be an iterable of batches", loader)
        if isinstance(loader, DeviceLoader):
            raise ArgumentTypeError("loader", "is a device loader already", loader)
        pins = pin_policy(pin_memory)
        self.loader: Final[Any] = loader
        self.device: Final = current_device() if device is None else checked_device(device)
        require_available(self.device)
        self.depth: Final = arguments.positive("depth", depth, MAX_AHEAD)
        self.run_ahead: Final = arguments.boolean("run_ahead", run_ahead)
        if load is not None and not callable(load):
            raise ArgumentTypeError("load", "must be a function of a batch", load)
        # samplerkit's own loader puts a stage behind its source itself, and counts what leaves it.
        has_stages = callable(getattr(loader, "iterate_on", None))
        self._staged: Any = loader if has_stages else WrappedLoader(loader)
        self._counts: Final = StageCounts()
        # It knows nothing of this object: a loader that keeps it does not keep this one alive.
        self._make_stage = partial(
            DeviceStage,
            device=self.device,
            depth=self.depth,
            pins=pins,
            counts=self._counts,
            load=load and partial(_with_loaded, load),
        )

    @property
    def stats(self) -> DeviceStats:
        """Figures of the current epoch, or of the last one: waits of the loop, loading, copies."""
        return self._counts.stats

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "loader":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.loader, name)

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        self._counts.begin_epoch()
        batches: Iterator[Any] = self._staged.iterate_on(self._make_stage, run_ahead=self.run_ahead)
        return batches

    def progress(self) -> Iterator[Any]:
        """Iterates like `iter(loader)`, with a progress bar on the terminal of the first rank."""
        return with_bar(self)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads: that of the loader, or else of its sampler.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentValueError: negative.
        """
        self._staged.set_epoch(epoch)

    def edit(self, edit: Edit | None = None, /, **fields: Any) -> int:
        """Edits the run from a position on, and gives that position: what `Loader.edit` of its loader does.

        Args:
            edit: the edit; or:
            **fields: its arguments, by name.

        Raises:
            NotSupportedError: the loader is of another package, whose requests are not known.
            SamplerkitError: as `Loader.edit`.
        """
        if not hasattr(self.loader, "edit"):
            problem = "cannot be edited while it reads, since its requests are not known"
            hint = "read by sk.Loader; or save a state, and start with a ledger that has the edit"
            raise NotSupportedError("loader", problem, self.loader, hint=hint)
        position: int = self.loader.edit(edit, **fields)
        return position

    def state_dict(self) -> dict[str, Any]:
        """Returns the state after the batches handed out, without prefetched ones."""
        state: dict[str, Any] = self._staged.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration begin at the place of a saved state.

        Raises:
            StateError: the state cannot be read or does not fit, or an iteration is under way.
        """
        self._staged.load_state_dict(state)

    def close(self) -> None:
        """Ends the thread and the iteration under way. The loader can be used again."""
        self._staged.close()


@final
@dataclass(eq=False)
class LoadedItem:
    """A batch of a loader.

    Args:
        batch: the batch.
        state: a function that returns the state of the loader after it; None of a loader that has no state.
    """

    batch: Any
    state: Any


@final
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
        self._cursor: Final = FunctionCursor(
            partial(_reached, None if self._has_state else loader), waits=True
        )
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
        if iteration.is_open and not iteration.is_exiting:
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


def _with_loaded(load: Load, item: Any) -> Any:
    """Returns what a stage hands out, with what a function makes of its batch."""
    return item if isinstance(item, EpochEnd) else dataclasses.replace(item, batch=load(item.batch))


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
