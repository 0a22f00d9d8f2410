"""What a device loader must know of the loader that it wraps, and that of a stage, by their methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeGuard


class BatchStage(Protocol):
    """What moves the batches of an iterator on, in a thread of its own: a `DeviceStage` for instance."""

    def __iter__(self) -> Iterator[Any]: ...

    def __next__(self) -> Any: ...

    def close(self, seconds: float | None = ...) -> bool:
        """Stops, waits for at most some seconds, None for ever, and tells whether the thread has ended."""


MakeStage = Callable[[Iterator[Any]], BatchStage]
"""Puts a stage behind the batches on the host."""


class Staged(Protocol):
    """A loader that puts a stage between its source and its loop by itself, and counts behind the stage."""

    def iterate_on(self, stage: MakeStage, *, run_ahead: bool) -> Iterator[Any]:
        """Iterates over an epoch.

        Args:
            stage: makes a stage around a source.
            run_ahead: whether the source goes on into the next epoch.
        """
        ...

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Gives the state after the batches handed out."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration begin where a state stands."""
        ...

    def close(self) -> None:
        """Ends what runs."""
        ...


def is_staged(loader: Any) -> TypeGuard[Staged]:
    """Whether a loader takes a stage: samplerkit's own does."""
    return callable(getattr(loader, "iterate_on", None))


def is_stateful(loader: Any) -> bool:
    """Whether a loader has a state of its own, as torchdata's `StatefulDataLoader` has."""
    return all(callable(getattr(loader, name, None)) for name in ("state_dict", "load_state_dict"))


def tell_epoch(loader: Any, epoch: int) -> None:
    """Tells the epoch to the loader, or else to the first of its samplers that takes it."""
    for place in _samplers(loader):
        set_epoch = getattr(place, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)
            return


def known_epoch(loader: Any) -> int | None:
    """Gives the epoch at which the sampler that takes one says it is."""
    for place in _samplers(loader):
        if callable(getattr(place, "set_epoch", None)):
            epoch = getattr(place, "epoch", None)
            return epoch if isinstance(epoch, int) else None
    return None


def _samplers(loader: Any) -> Iterator[Any]:
    yield loader
    yield getattr(loader, "sampler", None)
    batches = getattr(loader, "batch_sampler", None)
    yield batches
    yield getattr(batches, "sampler", None)
