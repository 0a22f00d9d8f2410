"""The fluent pipeline: methods that each give another dataset."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Self

from samplerkit.order import arguments
from samplerkit.storage.tar.decode import Decode
from samplerkit.storage.tar.pipeline import Selection, View
from samplerkit.storage.tar.steps import Map, MapDict, Rename, Step, ToTuple, checked_function


class Pipeline(ABC):
    """A dataset with a pipeline, of which each method gives a new dataset and changes nothing of this one.

    Attributes:
        _view: which samples, and what is done to each.
        _window: the size of the window of the default order; None for no shuffle.
    """

    _view: View
    _window: int | None

    @abstractmethod
    def _with(self, view: View, window: int | None) -> Self:
        """Gives the dataset with another view and window."""

    def decode(self, *handlers: str | Callable[[str, bytes], Any], only: Any = None) -> Self:
        """Decodes files by their extensions.

        Text (`txt`), numbers (`cls`, `index`, `id`), `json`, `npy` and `npz` are always decoded, `.gz` is
        unpacked first, and unknown extensions stay bytes. Pickles are refused: they run code.

        Args:
            handlers: how images are decoded: `pil`, `rgb8`, `torchrgb`, `l` and so on; or functions that
                take an extension with its dot, such as ".jpg", and the bytes, and give None for what they
                leave to others.
            only: the fields to decode; None for all.

        Raises:
            ArgumentTypeError: a handler is neither a string nor a function.
            ArgumentValueError: a short name is not known.
        """
        return self._then(Decode.of(handlers, only))

    def rename(self, **fields: Any) -> Self:
        """Gives fields other names: `rename(image="jpg;png")` takes the first that a sample has.

        Args:
            fields: for each new name the old one, or several. Other fields stay as they are.
        """
        return self._then(Rename.of(fields))

    def map_dict(self, **functions: Callable[[Any], Any]) -> Self:
        """Applies a function to each of some fields."""
        return self._then(MapDict.of(functions))

    def map(self, function: Callable[[Any], Any]) -> Self:
        """Applies a function to each sample."""
        return self._then(Map(checked_function("map", function)))

    def to_tuple(self, *fields: Any) -> Self:
        """Makes a tuple of some fields; `"jpg;png"` takes the first that a sample has.

        Args:
            fields: names; one text of several names with spaces between them is taken too.
        """
        return self._then(ToTuple.of(fields))

    def select(self, predicate: Callable[[Any], Any], *, by: Literal["sample", "key"] = "sample") -> Self:
        """Keeps the samples for which a function gives true.

        The function is asked once for each sample, when the length or a sample is first needed; the ids of
        those that stay are held in memory, 8 bytes each.

        Args:
            predicate: is given the sample as it is at this place of the pipeline, or its key.
            by: `sample` reads every sample once; `key` reads the index only.
        """
        selection = Selection.of(self._view, predicate, by)
        return self._with(replace(self._view, selection=selection), self._window)

    def shuffle(self, size: int) -> Self:
        """Makes PARTIAL with this window the default order of samplerkit's loaders and of `for`.

        Args:
            size: samples in a window; 0 for no shuffle.

        Raises:
            ArgumentTypeError: no integer.
            ArgumentRangeError: negative.
        """
        return self._with(self._view, _checked_window(size))

    def _then(self, step: Step) -> Self:
        return self._with(self._view.then(step), self._window)


def _checked_window(size: Any) -> int | None:
    """Takes the size of a window; 0 is none.

    Raises:
        ArgumentTypeError: no integer.
        ArgumentRangeError: negative.
    """
    return arguments.at_least("shuffle", size, 0) or None
