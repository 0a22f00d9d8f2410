"""What is done about a sample that cannot be made, and webdataset's names for how shards are split."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NoReturn

from samplerkit.compat.webdataset.split import Seat

Handler = Callable[[Exception], bool]
"""Takes what was raised: raises it again, or gives true to go on without the sample, or false to stop."""


def reraise_exception(error: Exception) -> NoReturn:
    """Raises the error in the loop: what is done when no handler is given."""
    raise error


def ignore_and_continue(error: Exception) -> bool:  # noqa: ARG001  # all handlers take it
    """Leaves the sample out."""
    return True


def warn_and_continue(error: Exception) -> bool:
    """Warns, and leaves the sample out."""
    warnings.warn(repr(error), stacklevel=2)
    return True


def ignore_and_stop(error: Exception) -> bool:  # noqa: ARG001  # likewise
    """Ends the epoch of this worker."""
    return False


def warn_and_stop(error: Exception) -> bool:
    """Warns, and ends the epoch of this worker."""
    warnings.warn(repr(error), stacklevel=2)
    return False


def split_by_node(source: Iterator[Any], group: Any = None) -> Iterator[Any]:  # noqa: ARG001  # webdataset's
    """Gives each rank a part: as `nodesplitter=`, which is what the dataset does anyway."""
    world = Seat.here(None, None).world
    return islice(source, world.shard_id, None, world.num_shards)


def split_by_worker(source: Iterator[Any]) -> Iterator[Any]:
    """Gives each worker a part: as `workersplitter=`, which is what the dataset does anyway."""
    seat = Seat.here(None, None)
    return islice(source, seat.worker, None, seat.workers)


def single_node_only(source: Iterator[Any], group: Any = None) -> Iterator[Any]:  # noqa: ARG001  # likewise
    """As `nodesplitter=`, webdataset's default: accepted, and several ranks are split all the same."""
    return source
