"""K samples of each of P classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, DatasetError, NotSupportedError
from samplerkit.order import arguments
from samplerkit.order.dataset_protocol import find_column
from samplerkit.order.keys import ALGORITHM
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.sequences import Permuted, Range, Table
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import Context

DEFAULT_COLUMN = "label"

_MAX_SAMPLES: Final = 1 << 30
"""The most samples of an epoch: their order is a table."""


@final
@dataclass(eq=False, repr=False)
class PKSampler(Sampler):
    """Draws `num_val` samples of each class, with replacement, other ones each epoch.

    Args:
        num_val: K, how many samples of each class.
        num_class: not supported, as in MindSpore: P is the number of classes.
        shuffle: whether the classes come in a random order, another one each epoch; else sorted. All draws of
            a class are consecutive; a `RandomSampler` with this as its child mixes them.
        class_column: the attribute or column of the dataset that holds the labels. Where it is left out,
            the dataset's `targets` will do as well.
        num_samples: how many samples, from the first; None and 0 mean all P * K.
        seed: the seed of the draws, in [0, 2^64).
        labels: the label of each sample of the dataset, also above a child; None reads them from the dataset.
        algorithm: the id of the algorithm.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: `num_val` is not positive, or `labels` or `class_column` is empty.
        ArgumentValueError: `num_samples` or `seed` is negative, or `algorithm` is not known.
        NotSupportedError: `num_class` is given.
        DatasetError: when the order is made: no labels are found, or not one for each sample.
        ArgumentRangeError: likewise: more than 2^30 samples would be drawn.

    Source: `mindspore.dataset.PKSampler`.

    Example:
        >>> labels = ["cat", "dog", "cat", "cat"]
        >>> [labels[i] for i in PKSampler(2, labels=labels).order(4)]
        ['cat', 'cat', 'dog', 'dog']
    """

    num_val: int
    num_class: int | None = None
    shuffle: bool = False
    class_column: str = DEFAULT_COLUMN
    num_samples: int | None = None
    _: KW_ONLY
    seed: int = 0
    labels: Sequence[Any] | np.ndarray[Any, Any] | None = None
    algorithm: str = ALGORITHM

    def __post_init__(self) -> None:
        if self.num_class is not None:
            hint = "leave it out: all classes are drawn"
            raise NotSupportedError("num_class", "cannot be chosen", self.num_class, hint=hint)
        flag, text = arguments.boolean, arguments.text
        self._check(num_val=arguments.positive, shuffle=flag, class_column=text, labels=given_labels)
        if not self.class_column:
            raise ArgumentRangeError("class_column", "must not be empty", self.class_column)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        return self.drawn(context, partial(self._pick, context))

    def drawn(self, context: Context, pick: Callable[[Ids], tuple[Ids, Ids]]) -> Order:
        """Returns the samples of the chosen members of classes.

        Args:
            context: where the labels are found.
            pick: given how many members each class has, none of them 0, gives the class of each draw, and
                which of its members was drawn.
        """
        labels = context.values_of(self._labels_of(context.dataset), "labels")
        if labels.size == 0:
            return Range(0, 0)
        classes, members = np.unique(labels, return_inverse=True)
        counts = np.bincount(members, minlength=classes.size)
        by_class = np.argsort(members, kind="stable")
        chosen, within = pick(counts)
        return Table(by_class[(np.cumsum(counts) - counts)[chosen] + within])

    def each_class(self, classes: Ids) -> Ids:
        """Returns `num_val` times each class, one after another, and no more than `num_samples` in all.

        Raises:
            ArgumentRangeError: these are more than 2^30.
        """
        count = min(self.num_samples or arguments.LARGEST, classes.size * self.num_val)
        if count > _MAX_SAMPLES:
            problem = f"times {classes.size} classes is more than {_MAX_SAMPLES} samples"
            raise ArgumentRangeError(
                "num_val", problem, self.num_val, hint="use a smaller one, or num_samples, and more epochs"
            )
        return classes[np.arange(count) // self.num_val]

    def _pick(self, context: Context, counts: Ids) -> tuple[Ids, Ids]:
        classes = np.arange(counts.size)
        if self.shuffle:
            classes = Permuted(counts.size, context.key(self.seed, "pk classes")).ids_at(classes)
        classes = self.each_class(classes)
        hashes = context.key(self.seed, "pk").hashes(np.arange(classes.size))
        # 32 bits of the hash are enough to pick one of fewer than 2^31 members without a visible bias.
        return classes, (hashes >> np.uint64(33)).astype(np.int64) * counts[classes] >> 31

    def looks_at(self, dataset: Any) -> dict[str, Any]:
        """The labels of the dataset, if they were not given."""
        return {self.class_column: self._labels_of(dataset)} if self.labels is None else {}

    def _labels_of(self, dataset: Any) -> np.ndarray[Any, Any]:
        """Returns the labels that were given, or else those of the dataset."""
        if self.labels is not None:
            return np.asarray(self.labels)
        names = [self.class_column]
        if self.class_column == DEFAULT_COLUMN:
            names.append("targets")
        column = find_column(dataset, *names)
        if column is None:
            problem = f"the dataset has no attribute or column {' or '.join(names)}"
            raise DatasetError("class_column", problem, self.class_column, hint="give labels= to the sampler")
        name, labels = column
        return checked_labels(labels, name)


def checked_labels(labels: Any, place: str) -> np.ndarray[Any, Any]:
    """Takes labels: a flat list or array of integers, numbers or strings; copied and checked."""
    if isinstance(labels, str | bytes | int | float):
        raise ArgumentTypeError(place, "must be a list of labels", labels)
    try:
        array = np.asarray(labels).copy()
    except (TypeError, ValueError, RuntimeError):  # rows of different lengths, a tensor on a device
        array = np.empty((0, 0))
    if array.ndim != 1 or array.dtype.kind not in "iubUSf":
        raise ArgumentTypeError(place, "must be a flat list of integers or strings", labels)
    array.flags.writeable = False
    return array


def given_labels(place: str, labels: Any) -> np.ndarray[Any, Any] | None:
    """Takes labels, not empty, or None."""
    checked = None if labels is None else checked_labels(labels, place)
    if checked is not None and not checked.size:
        raise ArgumentRangeError(place, "must not be empty", labels)
    return checked
