"""The fields of the samples of a batch: sequences get one type, all else is left to torch."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, NamedTuple, Self

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten
from torch.utils.data import default_collate, default_convert

from samplerkit.batches.plan import BatchPlan, Measure
from samplerkit.batches.segments import Segments
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.order.typing import Ids

_MAX_NAMED = 8


class SampleCollate(ABC):
    """A collate function that receives from a loader the ids of its samples."""

    def __call__(self, samples: list[Any]) -> Any:
        return self.collated(samples)

    @abstractmethod
    def collated(self, samples: Any, ids: Ids | None = None, segments: Segments | None = None) -> Any:
        """Makes a batch.

        Args:
            samples: at least one; what the dataset gives of several, which may be columns.
            ids: theirs, int64 of shape (samples,), for errors; None where they are not known.
            segments: which parts of the samples they are, for packs; None for whole samples.
        """


class PlannedCollate(SampleCollate):
    """The base of collate functions for samples of different lengths: padding, and checks against a plan.

    Args:
        value: the padding value: a number, or one by field.
        plan: of any epoch; None if it is not known, or given by `measured_by`.

    Raises:
        ArgumentTypeError: an argument is something else.
    """

    def __init__(self, value: Any, plan: Any) -> None:
        for number in value.values() if isinstance(value, Mapping) else (value,):
            if not isinstance(number, int | float | np.number):
                raise ArgumentTypeError("value", "must be a number, or one by field", number)
        if plan is not None and not isinstance(plan, BatchPlan):
            hint = "pass recipe.plan(sampler, dataset)"
            raise ArgumentTypeError("plan", "must be a plan", plan, hint=hint)
        self.value: Final[float | Mapping[str, float]] = value
        self._measure = Measure() if plan is None else plan.measure

    def measured_by(self, measure: Measure) -> Self:
        """Returns a copy with the lengths and the limit of a run's batches; called by a loader."""
        measured = copy.copy(self)
        measured._measure = measure
        return measured

    def _padding_of(self, field: str, dtype: Any) -> float:
        """Returns what a field is padded with.

        Raises:
            ArgumentValueError: its type is of integers that do not hold it: it would change silently.
        """
        value = self.value.get(field, 0) if isinstance(self.value, Mapping) else self.value
        if value and not _holds(dtype, value):
            hint = "give value= by field, or let the dataset give a type that has it"
            raise ArgumentValueError("value", f"is no {dtype}, as field {field!r} is", value, hint=hint)
        return value


def _holds(dtype: Any, value: float) -> bool:
    """Whether a type can hold a padding value: otherwise it would change silently."""
    try:
        limits: Any = torch.iinfo(dtype) if isinstance(dtype, torch.dtype) else np.iinfo(dtype)
    except (TypeError, ValueError):  # no type of integers
        return True
    return value % 1 == 0 and bool(limits.min <= value <= limits.max)


class Padded(NamedTuple):
    """A padded field that has no key: of a tuple, or the sample itself.

    Args:
        values: of shape (samples, longest, ...).
        mask: of shape (samples, longest): True where a value is no padding.
    """

    values: torch.Tensor
    mask: torch.Tensor


@dataclass(frozen=True, eq=False)
class SequenceField:
    """The sequences of one field, one a sample.

    Args:
        path: of the field.
        items: all tensors, or all arrays; of one shape except for the first dimension.
        lengths: of each, int64 of shape (samples,).
        dtype: torch's or numpy's type of all together.
    """

    path: str
    items: list[Any]
    lengths: Ids
    dtype: Any

    @staticmethod
    def joined(parts: list[Any]) -> torch.Tensor:
        """Joins items, or other parts of their kind, one after another."""
        are_tensors = isinstance(parts[0], torch.Tensor)
        return torch.cat(parts) if are_tensors else torch.from_numpy(np.concatenate(parts))

    def padded(self, length: int, value: float) -> Padded:
        """Pads all to one length.

        Args:
            length: at least that of each.
            value: what is padded with.
        """
        first = self.items[0]
        make = first.new_full if isinstance(first, torch.Tensor) else np.full
        padding = make((length, *first.shape[1:]), value, dtype=self.dtype)
        ends = (length - self.lengths).tolist()
        parts = [part for item, end in zip(self.items, ends, strict=True) for part in (item, padding[:end])]
        values = self.joined(parts).reshape(len(self.items), length, *first.shape[1:])
        lengths = torch.from_numpy(self.lengths).to(values.device)
        return Padded(values, torch.arange(length, device=values.device) < lengths[:, None])


def rows_of(samples: Any, size: int | None = None) -> list[Any]:
    """Returns the samples of a batch one by one; from columns, a dict of rows for each.

    Args:
        samples: which may be columns.
        size: how many there are, where it is known.

    Raises:
        DatasetError: columns have other lengths.

    Example:
        >>> rows_of({"text": ["a", "b"], "label": torch.tensor([0, 1])})
        [{'text': 'a', 'label': tensor(0)}, {'text': 'b', 'label': tensor(1)}]
    """
    if not isinstance(samples, Mapping):
        return samples if isinstance(samples, list) else list(samples)
    columns = [rows_of(column) for column in samples.values()]
    lengths = [*map(len, columns)]
    if lengths.count(lengths[0] if size is None else size) != len(lengths):
        problem = "gives columns with more or fewer entries than samples"
        raise DatasetError("dataset", problem, dict(zip(samples, lengths, strict=True)))
    return [dict(zip(samples, row, strict=True)) for row in zip(*columns, strict=True)]


def is_sequence(item: Any) -> bool:
    """Whether a field holds a sequence: a tensor or an array that is not a scalar, or a list of numbers.

    Example:
        >>> [is_sequence(item) for item in ([1, 2], [], torch.zeros(3), 7, "text", ["a"], torch.tensor(1))]
        [True, True, True, False, False, False, False]
    """
    if isinstance(item, torch.Tensor | np.ndarray):
        return item.ndim > 0 and (isinstance(item, torch.Tensor) or item.dtype.kind in "biuf")
    if not isinstance(item, list):
        return False
    while isinstance(item, list) and item:
        item = item[0]
    return isinstance(item, list | int | float | np.number | np.bool_)  # a list is empty here


def field_of(path: str, items: list[Any], ids: Ids | None, longest: int | None = None) -> SequenceField:
    """Makes the sequences of a field one type: tensors, or arrays.

    Lists become int64, float or bool as in torch. An empty list has no type, and fits any shape.

    Args:
        path: of the field.
        items: what it holds, one a sample.
        ids: of the samples, for errors; None where they are not known.
        longest: the length to which longer ones are cut; None if none are.

    Raises:
        DatasetError: a sample has no sequence there, or one of another shape.
    """
    are_tensors = all(isinstance(item, torch.Tensor) for item in items)
    if are_tensors:
        items = items.copy()
    else:
        items = [_array(item, _place(ids, place, path)) for place, item in enumerate(items)]
    full = next((item for item in items if item.ndim and item.shape[0]), items[0])
    shape = full.shape[1:]
    for place, item in enumerate(items):
        if item.ndim and not item.shape[0]:
            items[place] = full[:0]
        elif not item.ndim or item.shape[1:] != shape:
            problem = f"must be a sequence, of shape {('length', *shape)}"
            hint = "let all samples have one shape except for the first dimension"
            raise DatasetError(_place(ids, place, path), problem, tuple(item.shape), hint=hint)
    if longest is not None:
        items = [item[:longest] for item in items]
    lengths = np.array([item.shape[0] for item in items], dtype=np.int64)
    # numpy's promotion of three types in pairs depends on their order.
    dtypes = {item.dtype for item in items}
    dtype = reduce(torch.promote_types, dtypes) if are_tensors else np.result_type(*dtypes)
    return SequenceField(path, items, lengths, dtype)


def _array(item: Any, where: str) -> np.ndarray[Any, Any]:
    try:
        array = np.asarray(item)
    except (TypeError, ValueError, RuntimeError):  # rows of different lengths, a tensor on a device
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        hint = "name the fields to pad, PadCollate(fields=[...]), or to pack, PackCollate(...)"
        raise DatasetError(where, "must be a sequence of numbers", item, hint=hint)
    if isinstance(item, list) and array.dtype.kind == "f":
        array = array.astype(np.float32 if torch.get_default_dtype() == torch.float32 else np.float64)
    return array


def keys_of(sample: Any) -> Any:
    """Returns the keys of a dict, or the places of a tuple; None for what has no fields."""
    if isinstance(sample, Mapping):
        return sample.keys()
    return range(len(sample)) if isinstance(sample, tuple) else None


def require_alike(path: str, items: list[Any], ids: Ids | None) -> None:
    """Refuses samples that differ in structure from the first one of their batch.

    Raises:
        DatasetError: one does.
    """
    keys = keys_of(items[0])
    for place, item in enumerate(items):
        if keys_of(item) != keys:
            problem = "has another structure than the first sample of its batch"
            hint = "let all samples have the same fields"
            raise DatasetError(_place(ids, place, path), problem, describe_sample(item), hint=hint)


def batch_of(samples: Any) -> Any:
    """Makes a batch, by default as torch does; arrays from a dataset are a batch already.

    Args:
        samples: a list; or an array with a row a sample, or a mapping of such.

    Example:
        >>> batch_of(np.array([[1, 2], [3, 4]])), batch_of([1, 2])
        (tensor([[1, 2],
                [3, 4]]), tensor([1, 2]))
    """
    if isinstance(samples, np.ndarray | Mapping):
        return default_convert(samples)  # type: ignore[no-untyped-call]
    return default_collate(samples)


def collated_by_torch(path: str, items: list[Any]) -> Any:
    """Makes a batch of a field that holds no sequences.

    Raises:
        DatasetError: torch cannot.
    """
    try:
        return default_collate(items)
    except (TypeError, RuntimeError, ValueError) as error:
        problem = f"cannot be made a batch by torch ({error})"
        hint = "name it among fields= if it is a sequence to pad, or leave it out of the samples"
        raise DatasetError(f"field {path}" if path else "samples", problem, items[0], hint=hint) from None


def describe_sample(sample: Any) -> str:
    """Describes a sample in a few words."""
    if isinstance(sample, Mapping):
        return f"the keys {[*map(str, sample)]}"
    return f"{len(sample)} fields" if isinstance(sample, tuple) else f"a {type(sample).__name__}"


def above_limit(problem: str, places: Ids, ids: Ids | None, lengths: Ids, given: Ids) -> DatasetError:
    """Makes the error of a batch above its limit.

    Args:
        problem: that it is.
        places: of its samples in the batch, int64 of shape (samples,).
        ids: of all samples of the batch; None where they are not known.
        lengths: of the samples, int64 of shape (samples, fields).
        given: the lengths that the plan counts with; 0 where ids are not known.

    Returns:
        An error whose value names the samples that are longer than these, most of all.
    """
    excess = (lengths - given).max(axis=1)
    most = [at for at in np.argsort(-excess, kind="stable")[:_MAX_NAMED] if excess[at] > 0]
    too_long: dict[Any, str] = {}
    for at in most:
        if ids is None:
            too_long[f"place {places[at]}"] = _shown(lengths[at])
        else:
            too_long[int(ids[places[at]])] = f"{_shown(lengths[at])}, not {_shown(given[at])}"
    problem = f"{problem}; samples, by id, are longer than their given lengths"
    hint = "count them as the dataset gives them, with all that it adds; length_multiple= is for the recipe"
    return DatasetError("lengths", problem, too_long, hint=hint)


def _place(ids: Ids | None, place: int, path: str) -> str:
    """Names the field of a sample by its id, or by its place in the batch where that is not known."""
    name = f"the sample at place {place} of a batch" if ids is None else f"sample {ids[place]}"
    return f"{name}, field {path}" if path else name


def _shown(lengths: Ids) -> str:
    return " and ".join(map(str, lengths.tolist()))


# Parts of samples, for packs.


def cut(samples: Any, segments: Segments) -> list[Any]:
    """Cuts parts out of whole samples.

    The last part of a sample is cut to the sample's end, whatever its given length, so that no token is lost
    silently.

    Args:
        samples: one for each segment: sequences, or dicts or tuples of them; or a mapping of columns.
        segments: which part of each.

    Raises:
        DatasetError: a sample holds no sequence that could be cut.

    Example:
        >>> import numpy as np
        >>> nothing = np.zeros(2, dtype=np.int64)
        >>> segments = Segments(np.array([2, 0]), np.array([2, 3]), nothing, np.array([False, True]))
        >>> cut([[5, 6, 7, 8, 9], {"text": [1, 2, 3]}], segments)
        [[7, 8], {'text': [1, 2, 3]}]
    """
    rows = rows_of(samples, len(segments))
    begins, lengths, is_last = segments.starts.tolist(), segments.lengths.tolist(), segments.is_last.tolist()
    return [
        sample if begin == 0 and last else _part(sample, slice(begin, None if last else begin + length))
        for sample, begin, length, last in zip(rows, begins, lengths, is_last, strict=True)
    ]


def _part(sample: Any, part: slice) -> Any:
    """Cuts all sequences that are as long as the first one: tokens and their labels, for instance."""
    if isinstance(sample, str | bytes):
        return sample[part]
    sample = dict(sample) if isinstance(sample, Mapping) else sample
    fields, tree = tree_flatten(sample, is_leaf=lambda item: isinstance(item, list))
    lengths = [len(field) if is_sequence(field) else None for field in fields]
    first = next((length for length in lengths if length is not None), None)
    if first is None:
        hint = "give tokens as an array, or write __getsegments__(segments)"
        raise DatasetError("samples", "hold no sequence of which a part could be cut", sample, hint=hint)
    pairs = zip(fields, lengths, strict=True)
    return tree_unflatten([field[part] if length == first else field for field, length in pairs], tree)
