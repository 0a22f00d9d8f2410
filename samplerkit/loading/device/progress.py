"""How far the loop has come, in the terms of the loader that is wrapped."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final, Protocol, final

from samplerkit.errors import ArgumentTypeError, SamplerkitError, StateError
from samplerkit.loading.device.kinds import is_stateful
from samplerkit.order import arguments

SCHEMA: Final = 1
"""Of the states of loaders that have none of their own."""


class WrappedProgress(Protocol):
    """Knows which batches were handed out, however far the loading thread is."""

    def note(self) -> Any:
        """Says, in the loading thread, what is to be known of the batch just loaded."""
        ...

    def begin(self) -> int:
        """An epoch begins to be read; gives the number of batches to skip."""
        ...

    def count(self, note: Any) -> None:
        """A batch is handed out."""
        ...

    def end_epoch(self, note: Any) -> None:
        """The loop has seen the end of an epoch."""
        ...

    def forget(self) -> None:
        """The next iteration begins another epoch."""
        ...

    def state(self, epoch: int, following: int) -> dict[str, Any]:
        """Gives the state after the batches handed out.

        Args:
            epoch: the epoch that is being read, or is next.
            following: the one after it.
        """
        ...

    def load(self, state: Mapping[str, Any]) -> int | None:
        """Takes a state; gives its epoch if it says one."""
        ...


def progress_of(loader: Any) -> WrappedProgress:
    """Chooses the way in which a loader's progress is known."""
    return Snapshots(loader) if is_stateful(loader) else Steps(loader)


@final
class Snapshots:
    """Progress of a loader that has a state: a snapshot of it is taken after each batch, and travels with it.

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

    def begin(self) -> int:
        """The loader itself begins where its state stands."""
        self._state = self.note()
        return 0

    def count(self, note: Any) -> None:
        """Keeps the snapshot."""
        self._state = note

    def end_epoch(self, note: Any) -> None:
        """Keeps the snapshot."""
        self._state = note

    def forget(self) -> None:
        """Nothing: what the loader makes of the epoch that its sampler is told is its own affair."""

    def state(self, epoch: int, following: int) -> dict[str, Any]:
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
        self._step = 0
        self._skipped = 0

    def note(self) -> None:
        """Nothing."""

    def begin(self) -> int:
        """As many as the state says."""
        self._step, self._skipped = self._skipped, 0
        return self._step

    def count(self, note: Any) -> None:
        """Counts."""
        self._step += 1

    def end_epoch(self, note: Any) -> None:
        """The next epoch begins with its first batch."""
        self._step = 0

    def forget(self) -> None:
        """The next epoch begins with its first batch."""
        self._step = self._skipped = 0

    def state(self, epoch: int, following: int) -> dict[str, Any]:
        """The epoch and the step; at the end of an epoch the next one and 0."""
        step = self._step or self._skipped
        if step and step == self._length():
            return {"schema": SCHEMA, "epoch": following, "step": 0}
        return {"schema": SCHEMA, "epoch": epoch, "step": step}

    def load(self, state: Mapping[str, Any]) -> int:
        """Takes the epoch and the step.

        Raises:
            StateError: a field is missing, or damaged, or of a newer schema.
        """
        if not isinstance(state, Mapping):
            raise StateError("state", "must be a mapping", state)
        if (schema := _field(state, "schema")) != SCHEMA:
            raise StateError("schema", "is not known to this version", schema, SCHEMA)
        epoch, step = _field(state, "epoch"), _field(state, "step")
        self._step, self._skipped = 0, step
        return epoch

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
