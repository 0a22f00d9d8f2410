"""Steps of webdataset's that tar datasets do not have: one small picklable value each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
    """Gives a tuple that holds no None.

    Raises:
        DatasetError: it holds one.
    """
    if any(value is None for value in values):
        raise DatasetError("sample", "has a field that is None", mend="say none_is_error=False")
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
