"""Errors that are raised in the loop, handlers that may prevent them, and webdataset's splitters."""

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
from samplerkit.storage.open_files import AbsentError
from samplerkit.storage.tar.format.flaws import REASONS
from samplerkit.storage.threads import this_worker

Handler = Callable[[Exception], bool]
"""Receives an error: raises it, or returns True to continue without the sample, or False to stop."""


def reraise_exception(error: Exception) -> NoReturn:
    """Raises the error in the loop; the default."""
    raise error


def ignore_and_continue(error: Exception) -> bool:  # noqa: ARG001  # all handlers take it
    """Skips the sample."""
    return True


def warn_and_continue(error: Exception) -> bool:
    """Warns, and skips the sample."""
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
    """Keeps the part of this rank; as `nodesplitter=`, the same as the default."""
    world = detect_world()
    return islice(source, world.shard_id, None, world.num_shards)


def split_by_worker(source: Iterator[Any]) -> Iterator[Any]:
    """Keeps the part of this worker; as `workersplitter=`, the same as the default."""
    worker, workers = this_worker()
    return islice(source, worker, None, workers)


def single_node_only(source: Iterator[Any], group: Any = None) -> Iterator[Any]:  # noqa: ARG001  # likewise
    """webdataset's default `nodesplitter=`: accepted, but samples are still split between ranks."""
    return source


_log = logging.getLogger("samplerkit")


class FieldError(DatasetError, KeyError, ValueError):
    """A sample lacks a field, or the field is None."""


class DecodingError(DatasetError):
    """A field cannot be decoded; the error of the user's decoder is the cause of its cause."""


class DamagedShardError(DatasetError, tarfile.ReadError):
    """A shard is truncated or damaged."""


class UnreadableShardError(DatasetError, OSError):
    """A shard cannot be read: a server, a disk or a command failed."""


class MissingShardError(UnreadableShardError, FileNotFoundError):
    """A shard does not exist."""


class EmptyDatasetError(DatasetError, ValueError):
    """The dataset has no samples."""


_STEP_ERRORS: Mapping[str, type[DatasetError]] = {
    "decode": DecodingError,
    **dict.fromkeys(("to_tuple", "rename", "map_dict"), FieldError),
}


def of_shard(error: DatasetError) -> DatasetError:
    """Converts an error of reading shards to the class that webdataset's users catch; keeps other errors."""
    cause = error.__cause__
    if type(error) not in {DatasetError, AbsentError}:
        return error
    if error.problem.startswith(REASONS):
        return _converted(DamagedShardError, error)
    if isinstance(cause, FileNotFoundError) or error.place == "urls":
        return _converted(MissingShardError, error)
    is_remote = cause is None and ("://" in error.place or error.place.startswith("pipe:"))
    if is_remote or isinstance(cause, OSError):
        return _converted(UnreadableShardError, error)
    return error


def step_error(item: Any, step: str, error: Exception) -> Exception:
    """Returns the error to raise if a step failed; it names the sample.

    An error of a user's function is kept, with a note. A samplerkit error is made again with the place in it;
    so is an error that would not reach the loop: Python takes a StopIteration for the end of the stream, and
    a class that only one process knows cannot be sent from a worker.

    Args:
        item: the sample before the steps.
        step: the method that the user called.
        error: the error that was raised.
    """
    place = "pipeline"
    if isinstance(item, dict) and "__key__" in item:
        place = f"{item.get('__url__', 'dataset')}: sample {item['__key__']!r}"
    if type(error) is DatasetError:
        problem = error.problem if error.place == "sample" else f"{error.place}: {error.problem}"
        kind = _STEP_ERRORS.get(step, DatasetError)
    elif isinstance(error, StopIteration) or not _is_picklable(error):
        problem, kind = f"{type(error).__name__} {error}", DatasetError
    else:
        note_once(error, f"{place}: {step} failed")
        return error
    hint = error.hint if isinstance(error, SamplerkitError) else ""
    described = kind(place, f"{step} failed: {problem}", hint=hint)
    described.__cause__ = error
    return described


def continues(handler: Handler | None, error: Exception) -> bool:
    """Asks a handler whether to continue without a sample or shard that failed.

    Args:
        handler: the handler; None to raise the error.
        error: the error.

    Raises:
        Exception: the handler raises, or there is no handler.
    """
    verdict = (handler or reraise_exception)(error)
    if not verdict:
        notes = ", ".join([repr(error), *getattr(error, "__notes__", ())])
        _log.warning("the handler ends the epoch early: %s", notes)
    return bool(verdict)


def _converted(kind: type[DatasetError], error: DatasetError) -> DatasetError:
    converted = kind(str(error))
    converted.__dict__.update(error.__dict__)
    converted.__cause__ = error.__cause__
    return converted.with_traceback(error.__traceback__)


def _is_picklable(error: Exception) -> bool:
    """Whether an error can be sent to the loop: torch waits forever for one that a worker cannot send."""
    if get_worker_info() is None:
        return True
    try:
        pickle.dumps(type(error))
    except Exception:
        return False
    return True
