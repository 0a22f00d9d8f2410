"""How far the loop has come, in the terms of the loader that is wrapped."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final, Protocol, final

from samplerkit.errors import ArgumentTypeError, SamplerkitError, StateError
from samplerkit.loading.cursor import Place
from samplerkit.loading.device.kinds import is_stateful
from samplerkit.order import arguments

SCHEMA: Final = 1
"""Of the states of loaders that have none of their own."""


class WrappedProgress(Protocol):
    """Knows which batches were handed out, however far the loading thread is."""

    def note(self) -> Any:
        """Says, in the loading thread, what is to be known of the batch just loaded."""
        ...

    def count(self, note: Any) -> None:
        """Takes the note of a batch that is handed out, of the end of an epoch, or of its beginning."""
        ...

    def reached(self, epoch: int, start: int, taken: int) -> tuple[int, bool]:
        """The arithmetic of the cursor."""
        ...

    def state(self, place: Place) -> dict[str, Any]:
        """Gives the state after the batches handed out, which is where the cursor says."""
        ...

    def load(self, state: Mapping[str, Any]) -> Place | None:
        """Takes a state; gives its place if it says one."""
        ...


def progress_of(loader: Any) -> WrappedProgress:
    """Chooses the way in which a loader's progress is known."""
    return Snapshots(loader) if is_stateful(loader) else Steps(loader)


@final
class Snapshots:
    """Progress of a loader that has a state: a snapshot of it is taken after each batch, and travels with it.

    The cursor then knows the epoch alone: what a state means is the loader's own affair.

    Args:
        loader: has `state_dict` and `load_state_dict`.
    """

    def __init__(self, loader: Any) -> None:
        self._loader: Final = loader
        self._state: dict[str, Any] | None = None

    def note(self) -> dict[str, Any]:
        """A copy: a state may refer to what the loader goes on to change."""
        state: dict[str, Any] = copy.deepcopy(self._loader.state_dict())
        return state

    def count(self, note: Any) -> None:
        """Keeps the snapshot."""
        self._state = note

    def reached(self, epoch: int, start: int, taken: int) -> tuple[int, bool]:
        """Nothing is skipped, and an end is only seen."""
        return 0, False

    def state(self, place: Place) -> dict[str, Any]:
        """The snapshot of the batch handed out last; before the first one, the loader's own state."""
        return self.note() if self._state is None else copy.deepcopy(self._state)

    def load(self, state: Mapping[str, Any]) -> None:
        """Gives it to the loader."""
        self._loader.load_state_dict(state)
        self._state = copy.deepcopy(dict(state))


@final
class Steps:
    """Progress of a loader without a state: its batches are counted, and skipped after a restore.

    Skipped batches are read all the same. The loader must give the same batches in the same order again.

    Args:
        loader: any iterable; if it has a length, the end of an epoch is known before the loop asks for more.
    """

    def __init__(self, loader: Any) -> None:
        self._loader: Final = loader

    def note(self) -> None:
        """Nothing."""

    def count(self, note: Any) -> None:
        """Nothing: the cursor counts."""

    def reached(self, epoch: int, start: int, taken: int) -> tuple[int, bool]:
        """The batches, and whether they are all. A stream may go on beyond the length that it claims."""
        step = start + taken
        return step, 0 < step == self._length()

    def state(self, place: Place) -> dict[str, Any]:
        """The epoch and the step; at the end of an epoch the next one and 0."""
        return {"schema": SCHEMA, "epoch": place.epoch, "step": place.position}

    def load(self, state: Mapping[str, Any]) -> Place:
        """Takes the epoch and the step.

        Raises:
            StateError: a field is missing, or damaged, or of a newer schema.
        """
        if not isinstance(state, Mapping):
            raise StateError("state", "must be a mapping", state)
        if (schema := _field(state, "schema")) != SCHEMA:
            raise StateError("schema", "is not known to this version", schema, SCHEMA)
        return Place(_field(state, "epoch"), _field(state, "step"))

    def _length(self) -> int | None:
        try:
            return len(self._loader)
        except TypeError:
            return None


def _field(state: Mapping[str, Any], name: str) -> int:
    if name not in state:
        raise StateError(name, "is missing", mend="this is no state of a loader without one of its own")
    try:
        return arguments.epoch(state[name])
    except SamplerkitError as error:
        problem = "must be an integer" if isinstance(error, ArgumentTypeError) else "must not be negative"
        raise StateError(name, problem, state[name]) from error
