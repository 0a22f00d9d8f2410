"""What is raised in the loop, the handlers that may prevent it, and webdataset's names of splitters."""

from __future__ import annotations

import logging
import pickle
import tarfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, NoReturn

from torch.utils.data import get_worker_info

from samplerkit.errors import DatasetError, SamplerkitError, note_once
from samplerkit.loading.world import detect_world
from samplerkit.storage.opening import AbsentError
from samplerkit.storage.tar.format.flaws import REASONS

Handler = Callable[[Exception], bool]
"""Takes what was raised: raises it, or returns true to continue without the sample, or false to stop."""


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
    """Keeps the part of this rank: as `nodesplitter=`, which is what the dataset does anyway."""
    world = detect_world()
    return islice(source, world.shard_id, None, world.num_shards)


def split_by_worker(source: Iterator[Any]) -> Iterator[Any]:
    """Keeps the part of this worker: as `workersplitter=`, which is what the dataset does anyway."""
    worker = get_worker_info()
    return source if worker is None else islice(source, worker.id, None, worker.num_workers)


def single_node_only(source: Iterator[Any], group: Any = None) -> Iterator[Any]:  # noqa: ARG001  # likewise
    """As `nodesplitter=`, webdataset's default: accepted, and several ranks are split all the same."""
    return source


_log = logging.getLogger("samplerkit")


class FieldError(DatasetError, KeyError, ValueError):
    """A sample lacks a field, or it is None."""


class DecodingError(DatasetError):
    """A field cannot be decoded; what a decoder of the user's raised is the cause of its cause."""


class DamagedShardError(DatasetError, tarfile.ReadError):
    """A shard is truncated or damaged."""


class UnreadableShardError(DatasetError, OSError):
    """A shard cannot be read: a server, a disk or a command failed."""


class MissingShardError(UnreadableShardError, FileNotFoundError):
    """There is no such shard."""


class EmptyDatasetError(DatasetError, ValueError):
    """There is no sample."""


_OF_STEPS: Mapping[str, type[DatasetError]] = {
    "decode": DecodingError,
    **dict.fromkeys(("to_tuple", "rename", "map_dict"), FieldError),
}


def of_shard(error: DatasetError) -> DatasetError:
    """Returns an error of reading shards as the class that webdataset's users catch; one of a step stays."""
    cause = error.__cause__
    if type(error) not in {DatasetError, AbsentError}:
        return error
    if error.problem.startswith(REASONS):
        return _as(DamagedShardError, error)
    if isinstance(cause, FileNotFoundError) or error.place == "urls":
        return _as(MissingShardError, error)
    is_remote = cause is None and ("://" in error.place or error.place.startswith("pipe:"))
    if is_remote or isinstance(cause, OSError):
        return _as(UnreadableShardError, error)
    return error


def told(item: Any, step: str, error: Exception) -> tuple[Exception, str]:
    """Returns what is raised where a step failed, and a note for it that says at which sample.

    What a function of the user's raised stays as it is. An error of ours is made new with the place in it,
    and so is what would not arrive: Python takes a StopIteration for the end of the stream, and a class that
    only one process knows does not get from a worker into the loop.

    Args:
        item: the sample, as it was before the steps.
        step: the method that the user called.
        error: what was raised.
    """
    place = "pipeline"
    if isinstance(item, dict) and "__key__" in item:
        place = f"{item.get('__url__', 'dataset')}: sample {item['__key__']!r}"
    if type(error) is DatasetError:
        problem = error.problem if error.place == "sample" else f"{error.place}: {error.problem}"
        kind = _OF_STEPS.get(step, DatasetError)
    elif isinstance(error, StopIteration) or not _travels(error):
        problem, kind = f"{type(error).__name__} {error}", DatasetError
    else:
        return error, f"{place}: {step} failed"
    hint = error.hint if isinstance(error, SamplerkitError) else ""
    described = kind(place, f"{step} failed: {problem}", hint=hint)
    described.__cause__ = error
    return described, ""


def goes_on(handler: Handler | None, error: Exception, note: str = "") -> bool:
    """Asks a handler whether to continue without what could not be read or made.

    Args:
        handler: None for raising.
        error: what happened.
        note: what is added to what is raised.

    Raises:
        Exception: the handler raises, or there is none.
    """
    try:
        verdict = (handler or reraise_exception)(error)
    except Exception as raised:
        if note:
            note_once(raised, note)
        raise
    if not verdict:
        _log.warning("the handler ends the epoch early: %s", f"{note}: {error!r}" if note else error)
    return bool(verdict)


def _as(kind: type[DatasetError], error: DatasetError) -> DatasetError:
    made = kind(str(error))
    made.__dict__.update(error.__dict__)
    made.__cause__ = error.__cause__
    return made.with_traceback(error.__traceback__)


def _travels(error: Exception) -> bool:
    """Whether the loop can know the class: torch waits for ever for what a worker cannot send."""
    if get_worker_info() is None:
        return True
    try:
        pickle.dumps(type(error))
    except Exception:
        return False
    return True
