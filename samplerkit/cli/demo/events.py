"""What rank 0 of the demo's job tells the command: one JSON object a line on stdout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


def epoch_done(mode: str) -> dict[str, Any]:
    """Gives what rank 0 tells after each epoch of each training."""
    return {"event": "epoch", "mode": mode}


@dataclass(frozen=True)
class EpochCount:
    """What the ranks received in one epoch, counted from the ids in their training loops.

    Args:
        seen: samples that reached a training loop, repeats included.
        repeated: how many of those had been seen in this epoch before, by this rank or another.
        missing: samples of the training part that reached no rank.
        files_opened: how many files each rank opened.
    """

    seen: int
    repeated: int
    missing: int
    files_opened: tuple[int, ...]


@dataclass(frozen=True)
class Training:
    """One training from start to end.

    Args:
        mode: the value of the shuffle mode.
        seed: the seed of the order and of the network.
        accuracy: right answers on the test set, in percent.
        order: a digest of all ids in the order in which each rank received them.
        epochs: what each epoch delivered.
        device: where the network was trained.
    """

    mode: str
    seed: int
    accuracy: float
    order: str
    epochs: tuple[EpochCount, ...]
    device: str

    def to_event(self) -> dict[str, Any]:
        """Gives what rank 0 tells of it."""
        return {"event": "training", **asdict(self)}

    @classmethod
    def from_event(cls, event: Mapping[str, Any]) -> Training:
        """Understands what rank 0 told."""
        fields = {name: value for name, value in event.items() if name not in {"event", "epochs"}}
        counts = (
            EpochCount(**{**count, "files_opened": tuple(count["files_opened"])}) for count in event["epochs"]
        )
        return cls(**fields, epochs=tuple(counts))


def tell(event: Mapping[str, Any]) -> None:
    """Writes an event for the command that launched this job."""
    # One call, so that the line arrives in one piece; flushed, so that it arrives now.
    print(json.dumps(event), flush=True)  # noqa: T201  # stdout is the channel here, not a screen
