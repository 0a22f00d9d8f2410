"""What is done to the stream of samples: one small picklable value a stage or a step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Protocol

import numpy as np

from samplerkit.compat.webdataset.handlers import Handler, goes_on, told
from samplerkit.errors import DatasetError
from samplerkit.storage.tar.steps import first_of


class Dropped:
    """What a step gives for a sample that is left out on purpose."""


@dataclass(frozen=True)
class MapOrDrop:
    """Applies a function to the sample; None leaves the sample out, as in webdataset."""

    function: Callable[[Any], Any]

    def __call__(self, sample: Any, /) -> Any:
        """Applies the step."""
        result = self.function(sample)
        if result is None:
            return Dropped
        if isinstance(sample, dict) and isinstance(result, dict) and "__key__" in sample:
            result["__key__"] = sample["__key__"]
        return result


@dataclass(frozen=True)
class Select:
    """Keeps the samples for which a function gives true."""

    predicate: Callable[[Any], Any]

    def __call__(self, sample: Any, /) -> Any:
        """Applies the step."""
        return sample if self.predicate(sample) else Dropped


@dataclass(frozen=True)
class Only:
    """Keeps some fields under new names, and no others.

    Args:
        fields: for each new name the old ones, of which the first that is there is taken.
    """

    fields: tuple[tuple[str, tuple[str, ...]], ...]

    def __call__(self, sample: Any, /) -> Any:
        """Applies the step."""
        return {new: first_of(sample, olds) for new, olds in self.fields}


@dataclass(frozen=True)
class ToTupleOrNone:
    """Makes a tuple of some fields, with None for what a sample lacks.

    Args:
        fields: of each place the names, of which the first that is there is taken.
    """

    fields: tuple[tuple[str, ...], ...]

    def __call__(self, sample: Any, /) -> Any:
        """Applies the step."""
        return tuple(next((sample[name] for name in names if name in sample), None) for names in self.fields)


def without_none(values: Any) -> Any:
    """Returns a tuple that holds no None.

    Raises:
        DatasetError: it holds one.
    """
    if any(value is None for value in values):
        raise DatasetError("sample", "has a field that is None", hint="say none_is_error=False")
    return values


@dataclass(frozen=True)
class MapTuple:
    """Applies a function to each place of a tuple; None leaves a place as it is, and so does no function."""

    functions: tuple[Callable[[Any], Any] | None, ...]

    def __call__(self, sample: Any, /) -> Any:
        """Applies the step."""
        values = list(sample)
        for place, function in enumerate(self.functions[: len(values)]):
            if function is not None:
                values[place] = function(values[place])
        return tuple(values)


_log = logging.getLogger("samplerkit")

ROLE = "stage"
"""The role in the keys of stages that draw."""

ONE_EACH = "one each"
"""Gives exactly one item for each item."""
BATCHES = "batches"
"""Gives one item for several."""
ANY_NUMBER = "any number"
"""Gives as many items as it likes, but holds none back."""
UNKNOWN = "unknown"
"""Does what it likes; it may hold items back."""


class Stage(Protocol):
    """One stage: takes the items of the stage before, gives others."""

    @property
    def counts(self) -> str:
        """How many items it gives: one of the four constants above."""

    def run(self, items: Iterator[Any], generator: np.random.Generator, /) -> Iterator[Any]:
        """Applies the stage; what it draws, it draws from the generator."""


@dataclass(frozen=True)
class Each:
    """Applies a step to each item.

    Args:
        name: of the method that the user called.
        step: gives the new item, or `Dropped`.
        handler: what is asked when the step raises; None raises.
        may_drop: whether the step may leave items out.
    """

    name: str
    step: Callable[[Any], Any]
    handler: Handler | None = None
    may_drop: bool = False

    @property
    def counts(self) -> str:
        """A handler is a step that may drop, too; but only where there is an error."""
        return ANY_NUMBER if self.may_drop else ONE_EACH

    def run(self, items: Iterator[Any], _generator: np.random.Generator, /) -> Iterator[Any]:
        """Applies the stage."""
        return _each(items, (self,), may_drop=True)


@dataclass(frozen=True)
class Batched:
    """Makes batches.

    Args:
        size: items in a batch.
        collate: makes a batch of a list; None leaves the list.
        partial: whether a last, smaller batch is given.
    """

    size: int
    collate: Callable[[list[Any]], Any] | None
    partial: bool

    counts: ClassVar = BATCHES
    """One item for several."""

    def run(self, items: Iterator[Any], _generator: np.random.Generator, /) -> Iterator[Any]:
        """Applies the stage."""
        while batch := list(islice(items, self.size)):
            if len(batch) == self.size or self.partial:
                yield batch if self.collate is None else self.collate(batch)


@dataclass(frozen=True)
class Unbatched:
    """Takes batches apart: tuples or dicts of columns, or lists of samples."""

    in_columns: bool = True

    counts: ClassVar = UNKNOWN
    """It stands in the middle of a batch between two items."""

    def run(self, items: Iterator[Any], _generator: np.random.Generator, /) -> Iterator[Any]:
        """Applies the stage."""
        for batch in items:
            if not self.in_columns:
                yield from batch
            elif isinstance(batch, dict):
                for values in zip(*batch.values(), strict=True):
                    yield dict(zip(batch, values, strict=True))
            else:
                yield from zip(*batch, strict=True)


@dataclass(frozen=True)
class Slice:
    """Keeps a part of the items of each worker, as `itertools.islice` does."""

    bounds: tuple[int | None, ...]

    counts: ClassVar = UNKNOWN
    """It counts from the beginning, which a resumed iteration does not see."""

    def run(self, items: Iterator[Any], _generator: np.random.Generator, /) -> Iterator[Any]:
        """Applies the stage."""
        return islice(items, *self.bounds)


@dataclass(frozen=True)
class CustomStage:
    """Applies a user's own function, from an iterator to an iterable."""

    function: Callable[[Iterator[Any]], Any]

    counts: ClassVar = UNKNOWN
    """Unknown."""

    def run(self, items: Iterator[Any], _generator: np.random.Generator, /) -> Iterator[Any]:
        """Applies the stage."""
        return iter(self.function(items))


@dataclass(frozen=True)
class Drawing:
    """Shuffles items, or leaves some out by chance, newly in each epoch.

    Args:
        name: of the method that the user called.
        function: takes the items, the generator and the amount.
        amount: for instance how many items to hold.
    """

    name: str
    function: Callable[[Iterator[Any], np.random.Generator, Any], Iterator[Any]]
    amount: float

    counts: ClassVar = UNKNOWN
    """What it draws depends on all that it has drawn."""

    def run(self, items: Iterator[Any], generator: np.random.Generator, /) -> Iterator[Any]:
        """Applies the stage."""
        return self.function(items, generator, self.amount)


_METHODS: dict[type, str] = {
    Batched: "batched",
    Unbatched: "unbatched",
    Slice: "slice",
    CustomStage: "compose",
}


def run(
    stages: tuple[Stage, ...],
    items: Iterator[Any],
    draws: Callable[[int], np.random.Generator],
    *,
    may_drop: bool = True,
) -> Iterator[Any]:
    """Sends items through stages. Steps that follow one another are applied by one loop.

    Args:
        stages: the first one first.
        items: what the first one takes.
        draws: gives the generator of the stage at a place.
        may_drop: whether steps may leave items out; else that is a `DatasetError` in the loop.
    """
    steps: list[Each] = []
    for place, stage in enumerate(stages):
        if isinstance(stage, Each):
            steps.append(stage)
            continue
        items = _each(items, tuple(steps), may_drop=may_drop) if steps else items
        items = stage.run(items, draws(place))
        steps = []
    return _each(items, tuple(steps), may_drop=may_drop) if steps else items


def uncounted(stages: tuple[Stage, ...]) -> Stage | None:
    """Finds the first stage after which the number of items is not known; None if there is none."""
    return next((stage for stage in stages if stage.counts not in {ONE_EACH, BATCHES}), None)


def batch_size(stages: tuple[Stage, ...]) -> int:
    """Returns how many samples an item holds, as far as `.batched` says."""
    size = 1
    for stage in stages:
        if isinstance(stage, Batched):
            size *= stage.size
        elif isinstance(stage, Unbatched):
            size = 1
    return size


def length(stages: tuple[Stage, ...], samples: int) -> int:
    """Returns how many items come of samples; `uncounted` finds nothing."""
    for stage in stages:
        if isinstance(stage, Batched):
            samples = -(-samples // stage.size) if stage.partial else samples // stage.size
    return samples


def named(stage: Stage) -> str:
    """Returns the name of the method that adds a stage."""
    return stage.name if isinstance(stage, Each | Drawing) else _METHODS[type(stage)]


def _each(items: Iterator[Any], group: tuple[Each, ...], *, may_drop: bool) -> Iterator[Any]:
    left_out = 0
    try:
        for item in items:
            value = item
            for each in group:
                try:
                    value = each.step(value)
                except Exception as error:
                    if not goes_on(each.handler, *told(item, each.name, error)):
                        return
                    left_out += 1
                    value = Dropped
                if value is Dropped:
                    if not may_drop:
                        raise _dropped(item, each.name)
                    break
            else:
                yield value
    finally:
        if left_out:
            _log.warning("%d samples were left out, as the handler said", left_out)


def _dropped(item: Any, step: str) -> Exception:
    error = DatasetError(
        "sample",
        "the sample is left out, and equal_steps counts on it",
        hint="say with_epoch(n) in place of equal_steps",
    )
    return told(item, step, error)[0]
