"""The state of one worker in the middle of an epoch, for torchdata's `StatefulDataLoader`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from samplerkit.compat.webdataset.reading import SamplePipeline, WorkerPlace
from samplerkit.compat.webdataset.split import Seat
from samplerkit.compat.webdataset.stages import UNKNOWN, named
from samplerkit.errors import StateError
from samplerkit.loading.identity import digest

KIND = "webdataset"
SCHEMA = 1


def obstacle(pipeline: SamplePipeline) -> str:
    """Says why an iteration cannot be taken up again; nothing if it can."""
    if pipeline.tar is None:
        return "commands are read from the beginning"
    return next((f"of .{named(stage)}" for stage in pipeline.stages if stage.counts == UNKNOWN), "")


def state(pipeline: SamplePipeline, seat: Seat, cursor: WorkerPlace) -> dict[str, Any]:
    """Gives the state as JSON values."""
    why = obstacle(pipeline)
    values = asdict(cursor) if not why else {"obstacle": why}
    return {"samplerkit": KIND, "schema": SCHEMA, **values, **_identity(pipeline, seat, is_open=not why)}


def restored(saved: Any, pipeline: SamplePipeline, seat: Seat) -> WorkerPlace:
    """Reads a saved state.

    Raises:
        StateError: it is none of a dataset like this, or was saved by another worker or rank.
    """
    if not isinstance(saved, Mapping) or saved.get("samplerkit") != KIND:
        raise StateError("state", "is not the state of a samplerkit WebDataset", saved)
    if saved.get("schema") != SCHEMA:
        raise StateError("schema", "is not known", saved.get("schema"), SCHEMA, mend="update samplerkit")
    if "obstacle" in saved or obstacle(pipeline):
        raise StateError(
            "state",
            f"cannot be resumed because {saved.get('obstacle') or obstacle(pipeline)}",
            mend="use samplerkit.Loader over a TarDataset",
        )
    for name, value in _identity(pipeline, seat, is_open=True).items():
        if saved.get(name) != value:
            problem = "is another one in the saved state"
            mend = "a samplerkit.Loader over a TarDataset resumes on any number of ranks and workers"
            raise StateError(name, problem, saved.get(name), value, mend=mend)
    numbers = {name: saved.get(name) for name in asdict(WorkerPlace(0))}
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise StateError(name, "is no number of samples", number)
    return WorkerPlace(**numbers)  # type: ignore[arg-type]  # they were looked at


def _identity(pipeline: SamplePipeline, seat: Seat, *, is_open: bool) -> dict[str, Any]:
    """What must be the same in the run that loads a state."""
    if not is_open or pipeline.tar is None:
        return {}
    order = (pipeline.shuffling, pipeline.split, pipeline.passes, pipeline.most_items)
    return {
        "dataset": pipeline.tar.fingerprint,
        "order": digest(repr(order)),
        "num_shards": seat.world.num_shards,
        "shard_id": seat.world.shard_id,
        "workers": seat.workers,
        "worker": seat.worker,
    }
