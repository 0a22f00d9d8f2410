"""The stages and steps that a stream of samples passes through, as small picklable values; decoders."""

import logging
import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch

from samplerkit.compat.webdataset.handlers import Handler, continues, step_error
from samplerkit.errors import ArgumentValueError, DatasetError
from samplerkit.order import arguments
from samplerkit.storage.tar.steps import first_of

_log = logging.getLogger("samplerkit")


class Dropped:
    """The result of a step for a sample that is dropped on purpose."""


@dataclass(frozen=True)
class ItemStep:
    """Applies a step to each item.

    Args:
        name: the method that the user called.
        step: returns the new item, or `Dropped`.
        handler: called if the step raises an error; None raises it.
        may_drop: whether the step may drop items. A handler may drop them in any case, but only on errors.
    """

    name: str
    step: Callable[[Any], Any]
    handler: Handler | None = None
    may_drop: bool = False


@dataclass(frozen=True)
class Batched:
    """Makes batches: one item from several.

    Args:
        size: the number of items in a batch.
        collate: makes a batch from a list; None keeps the list.
        partial: whether the last, smaller batch is kept.
    """

    size: int
    collate: Callable[[list[Any]], Any] | None
    partial: bool
    name: str = "batched"
    draws: bool = False

    def run(self, items: Iterator[Any], /) -> Iterator[Any]:
        """Applies the stage."""
        while batch := list(islice(items, self.size)):
            if len(batch) == self.size or self.partial:
                yield batch if self.collate is None else self.collate(batch)


@dataclass(frozen=True)
class Uncounted:
    """A stage that yields any number of items and may buffer some; later items cannot be counted or resumed.

    Args:
        name: the method that the user called.
        run: a function of the items, and of a random generator if the stage draws.
        draws: whether the stage draws random numbers.
    """

    name: str
    run: Callable[..., Iterable[Any]]
    draws: bool = False


Stage = ItemStep | Batched | Uncounted


def run(
    stages: tuple[Stage, ...],
    items: Iterator[Any],
    draws: Callable[[int], np.random.Generator],
    *,
    may_drop: bool = True,
) -> Iterator[Any]:
    """Sends items through stages. Consecutive steps are applied in one loop.

    Args:
        stages: the stages, in order.
        items: the input of the first stage.
        draws: returns the random generator of the stage at a position.
        may_drop: whether steps may drop items; if False, dropping raises a `DatasetError` in the loop.
    """
    steps: tuple[ItemStep, ...] = ()
    for place, stage in enumerate(stages):
        if isinstance(stage, ItemStep):
            steps = (*steps, stage)
        else:
            run_stage: Callable[..., Iterable[Any]] = stage.run
            items = _run_steps(items, steps, may_drop=may_drop)
            items = iter(run_stage(items, draws(place)) if stage.draws else run_stage(items))
            steps = ()
    return _run_steps(items, steps, may_drop=may_drop)


def uncounted(stages: tuple[Stage, ...]) -> Stage | None:
    """Finds the first stage after which the number of items is not known; None if there is none."""
    for stage in stages:
        if isinstance(stage, Uncounted) or (isinstance(stage, ItemStep) and stage.may_drop):
            return stage
    return None


def batch_size(stages: tuple[Stage, ...]) -> int:
    """Returns the number of samples in an item, according to `.batched`."""
    size = 1
    for stage in stages:
        if isinstance(stage, Batched):
            size *= stage.size
        elif stage.name in {"unbatched", "unlisted"}:
            size = 1
    return size


def length(stages: tuple[Stage, ...], samples: int) -> int:
    """Returns the number of items made from `samples` samples; requires that `uncounted` returns None."""
    for stage in stages:
        if isinstance(stage, Batched):
            samples = -(-samples // stage.size) if stage.partial else samples // stage.size
    return samples


def map_or_drop(function: Callable[[Any], Any], sample: Any) -> Any:
    """Applies a function to the sample; the sample is dropped if it returns None, as in webdataset."""
    result = function(sample)
    if result is None:
        return Dropped
    if isinstance(sample, dict) and isinstance(result, dict) and "__key__" in sample:
        result["__key__"] = sample["__key__"]
    return result


def select(predicate: Callable[[Any], Any], sample: Any) -> Any:
    """Keeps the samples for which a function returns a true value."""
    return sample if predicate(sample) else Dropped


def only(fields: tuple[tuple[str, tuple[str, ...]], ...], sample: Any) -> Any:
    """Keeps only some fields, under new names: for each new name, the first of its old names that exists."""
    return {new: first_of(sample, olds) for new, olds in fields}


def to_tuple_or_none(fields: tuple[tuple[str, ...], ...], sample: Any) -> Any:
    """Makes a tuple of some fields, with None for missing ones."""
    return tuple(next((sample[name] for name in names if name in sample), None) for names in fields)


def without_none(values: Any) -> Any:
    """Returns a tuple, after checking that it holds no None.

    Raises:
        DatasetError: it holds None.
    """
    if any(value is None for value in values):
        raise DatasetError("sample", "has a field that is None", hint="use none_is_error=False")
    return values


def map_tuple(functions: tuple[Callable[[Any], Any] | None, ...], sample: Any) -> Any:
    """Applies a function to each entry of a tuple; entries with None or without a function are unchanged."""
    values = list(sample)
    for place, function in enumerate(functions[: len(values)]):
        if function is not None:
            values[place] = function(values[place])
    return tuple(values)


def unbatched(batches: Iterator[Any]) -> Iterator[Any]:
    """Splits batches of columns, tuples or dicts, into samples."""
    for batch in batches:
        if isinstance(batch, dict):
            for values in zip(*batch.values(), strict=True):
                yield dict(zip(batch, values, strict=True))
        else:
            yield from zip(*batch, strict=True)


def in_slice(bounds: tuple[int | None, ...], items: Iterator[Any]) -> Iterator[Any]:
    """Keeps a part of the items of each worker, as `itertools.islice` does."""
    return islice(items, *bounds)


def in_buffer(size: int, items: Iterator[Any], generator: np.random.Generator) -> Generator[Any, None, None]:
    """Shuffles a stream: each yielded item is drawn from a buffer of `size` items."""
    buffer: list[Any] = []
    for item in items:
        if len(buffer) < size:
            buffer.append(item)
            continue
        place = int(generator.integers(size))
        yield buffer[place]
        buffer[place] = item
    for place in generator.permutation(len(buffer)).tolist():
        yield buffer[place]


def by_chance(p: float, items: Iterator[Any], generator: np.random.Generator) -> Iterator[Any]:
    """Keeps each item of a stream with probability `p`."""
    return (item for item in items if generator.random() < p)


def _run_steps(items: Iterator[Any], group: tuple[ItemStep, ...], *, may_drop: bool) -> Iterator[Any]:
    if not group:
        yield from items
        return
    left_out = 0
    try:
        for item in items:
            value = item
            for stage in group:
                try:
                    value = stage.step(value)
                except Exception as error:
                    if not continues(stage.handler, step_error(item, stage.name, error)):
                        return
                    left_out += 1
                    value = Dropped
                if value is Dropped:
                    if not may_drop:
                        problem = "the sample is dropped, which equal_steps does not allow"
                        hint = "use with_epoch(n) instead of equal_steps"
                        raise step_error(item, stage.name, DatasetError("sample", problem, hint=hint))
                    break
            else:
                yield value
    finally:
        if left_out:
            _log.warning("%d samples were left out by the handler", left_out)


def default_collation_fn(samples: list[Any]) -> Any:
    """Makes a batch from samples, field by field.

    Args:
        samples: tuples of one length, or dicts of the same fields.

    Returns:
        A tuple or a dict of batches: tensors and arrays of one shape are stacked, to shape (samples, ...),
        and numbers become an array of shape (samples,). Other values become a list.

    Raises:
        DatasetError: the samples are dicts of different fields.
        ValueError: tuples have different lengths, or arrays different shapes.
        RuntimeError: tensors have different shapes.

    Source: webdataset's `batched`.

    Example:
        >>> default_collation_fn([("a", 1), ("b", 2)])
        (['a', 'b'], array([1, 2]))
    """
    first = samples[0]
    if isinstance(first, dict):
        if any(sample.keys() != first.keys() for sample in samples):
            raise DatasetError("batched", "the samples of a batch have different fields")
        return {name: _combined([sample[name] for sample in samples]) for name in first}
    if not isinstance(first, list | tuple):
        return _combined(samples)
    return tuple(_combined(list(column)) for column in zip(*samples, strict=True))


def _combined(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, int | float):
        return np.array(values)
    if not isinstance(first, torch.Tensor | np.ndarray):
        return values
    return torch.stack(values) if isinstance(first, torch.Tensor) else np.stack(values)


_MAGIC = b"~TenBin~"
_KINDS = frozenset({"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"})
_ALIGNMENT = 64
_CHUNK = struct.Struct("<8sq")
_HEADER = struct.Struct("<8s8sq")


def handle_extension(extensions: str, f: Callable[[bytes], Any]) -> Callable[[str, bytes], Any]:
    """Makes a function for `decode`.

    Args:
        extensions: extensions separated by spaces; an extension may have several parts, as in `seg.png`.
        f: a function of the bytes of such a field.

    Raises:
        ArgumentTypeError: `extensions` is not a string, or `f` is not a function.
        ArgumentValueError: there is no extension.

    Example:
        >>> decoder = handle_extension("jpg seg.png", len)
        >>> decoder(".left.jpg", b"123"), decoder(".seg.png", b"12"), decoder(".png", b"1")
        (3, 2, None)
    """
    endings = tuple(f".{word}" for word in arguments.text("extensions", extensions).lower().split())
    if not endings:
        raise ArgumentValueError("extensions", "must not be empty", extensions)
    return partial(_by_extension, endings, arguments.function("f", f))


def _by_extension(
    endings: tuple[str, ...], function: Callable[[bytes], Any], extension: str, data: bytes
) -> Any:
    """Decodes a field whose extension has one of the endings, such as `.seg.jpg`; None for others."""
    return function(data) if f".{extension.lower()}".endswith(endings) else None


def tensors(extension: str, data: bytes) -> list[np.ndarray[Any, Any]] | None:
    """Decodes `.ten` and `.tb`: a list of arrays; None for other extensions.

    Source: webdataset's `tenbin`: chunks padded to 64 bytes, alternately a header and its array.

    Raises:
        DatasetError: the bytes do not have this format.
    """
    if extension[extension.rfind(".") + 1 :] not in {"ten", "tb"}:
        return None
    try:
        chunks = list(_chunks(data))
        return [_array(header, values) for header, values in zip(chunks[::2], chunks[1::2], strict=True)]
    except (ValueError, struct.error) as error:
        raise DatasetError("tensors", f"are damaged ({error})") from error


def _chunks(data: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(data):
        magic, size = _CHUNK.unpack_from(data, position)
        position += _CHUNK.size
        if magic != _MAGIC or not 0 <= size <= len(data) - position:
            raise DatasetError("tensors", f"have a wrong mark or length at byte {position - _CHUNK.size}")
        yield data[position : position + size]
        position += -(-size // _ALIGNMENT) * _ALIGNMENT


def _array(header: bytes, values: bytes) -> np.ndarray[Any, Any]:
    kind, _, rank = _HEADER.unpack_from(header)
    name = kind.rstrip(b"\0").decode("ascii", "replace")
    shape = np.frombuffer(header, "<i8")[3:].tolist()
    if name not in _KINDS or len(shape) != rank or min(shape, default=0) < 0:
        raise DatasetError("tensors", f"have a header of type {name!r} and shape {tuple(shape)}")
    # A copy: torch needs writable arrays.
    return np.frombuffer(bytearray(values), np.dtype(name).newbyteorder("<")).reshape(shape)
