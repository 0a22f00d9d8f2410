"""Samplers of classes and groups: K samples of each class; folds for cross-validation and held-out parts."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Final, final

import numpy as np

from samplerkit.errors import (
    ArgumentRangeError,
    ArgumentTypeError,
    ArgumentValueError,
    CompositionError,
    DatasetError,
    NotSupportedError,
)
from samplerkit.order import arguments
from samplerkit.order.algebra import limited
from samplerkit.order.dataset_protocol import find_column
from samplerkit.order.files import FileSequence
from samplerkit.order.keys import ALGORITHM, Key
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.sequences import FoldRows, Permuted, Range, Table
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
            hint = "use a smaller one, or num_samples, and more epochs"
            raise ArgumentRangeError("num_val", problem, self.num_val, hint=hint)
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


MAX_FOLDS = 1 << 20


@final
@dataclass(eq=False, repr=False)
class FoldSampler(Sampler):
    """Reads all samples except those of one fold, or only those of the fold, in ascending order.

    Folds depend on the seed, and not on the epoch, rank or length of a run. Each sample belongs to one fold.
    So a training and an evaluation that differ only in `held_out` never share a sample, and the k evaluations
    read each sample once. Folds differ by at most one sample; by groups, by no more than the samples of the
    largest group.

    Args:
        num_folds: k, at least 2.
        fold: which one is held out, in [0, num_folds).
        held_out: whether to read the samples of the fold; else all others.
        num_samples: how many samples, from the first; None and 0 mean all.
        labels: the label of each sample of the dataset: each fold then gets the same number of samples of
            each label, or one more or less.
        groups: the group of each sample of the dataset, such as a speaker or a patient, all of which belongs
            to one fold.
        by_files: whether files are the groups. A parent then sees the remaining files: a `WindowSampler`, or
            a `RandomSampler` of any shuffle mode.
        seed: of the folds, in [0, 2^64).

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: `num_folds` is not in [2, 2^20] or `fold` not in [0, num_folds), or `labels` or
            `groups` is empty.
        ArgumentValueError: `num_samples` or `seed` is negative, or two of `labels`, `groups` and `by_files`
            are given.
        DatasetError: when the order is made: there are fewer samples or groups than folds, not one
            label or group for each sample, or no files.
        CompositionError: when the order is made: the child may yield other samples in other epochs, or
            a sample twice, so that folds would meet.

    Example:
        >>> training, evaluation = FoldSampler(5, 0, seed=7), FoldSampler(5, 0, held_out=True, seed=7)
        >>> sorted([*training.order(10), *evaluation.order(10)]), list(evaluation.order(10))
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [3, 8])
    """

    is_fixed: ClassVar[bool] = True

    num_folds: int
    fold: int
    held_out: bool = False
    num_samples: int | None = None
    _: KW_ONLY
    labels: Sequence[Any] | np.ndarray[Any, Any] | None = None
    groups: Sequence[Any] | np.ndarray[Any, Any] | None = None
    by_files: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        self._check(
            num_folds=partial(arguments.positive, largest=MAX_FOLDS),
            fold=partial(arguments.at_least, least=0),
            held_out=arguments.boolean,
            labels=given_labels,
            groups=given_labels,
            by_files=arguments.boolean,
        )
        if self.num_folds == 1:
            raise ArgumentRangeError("num_folds", "must be at least 2", self.num_folds)
        if self.fold >= self.num_folds:
            raise ArgumentRangeError("fold", f"must be in [0, {self.num_folds})", self.fold)
        self.yields_files = self.by_files
        options = {"labels": self.labels, "groups": self.groups, "by_files": self.by_files or None}
        given = [name for name, value in options.items() if value is not None]
        if len(given) > 1:
            raise ArgumentValueError(given[1], f"is given with {given[0]}", None, hint="give one of them")

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        self._require_fixed(context.child)
        # It depends neither on the epoch nor on a mixture above: an evaluation outside of it has the same
        # folds.
        key = Key(self.seed, 0, context.depth, "fold")
        return limited(self._rows(layout, context, key), self.num_samples or None)

    def _rows(self, layout: Layout, context: Context, key: Key) -> Order:
        size = len(layout)
        if self.by_files:
            if not layout.has_files:
                raise DatasetError("by_files", "needs a dataset of files", layout, hint="use groups")
            return FileSequence(layout, self._selected_groups(layout.sizes, key, "files"), keeps_files=True)
        if not size:
            return Range(0, 0)
        if self.groups is not None:
            groups = context.values_of(np.asarray(self.groups), "groups")
            _, numbers, counts = np.unique(groups, return_inverse=True, return_counts=True)
            return Table(np.flatnonzero(np.isin(numbers, self._selected_groups(counts, key, "groups"))))
        if self.labels is None:
            return self._fold_rows(size, key, "samples")
        labels = context.values_of(np.asarray(self.labels), "labels")
        self._require_enough(size, "samples")
        # Label after label, and at random within each: every k-th row belongs to a fold.
        hashes = key.hashes(np.arange(size))
        fold_of = np.empty(size, dtype=np.int64)
        fold_of[np.lexsort((hashes, labels))] = np.arange(size) % self.num_folds
        return Table(np.flatnonzero((fold_of == self.fold) == self.held_out))

    def _selected_groups(self, sizes: Ids, key: Key, unit: str) -> Ids:
        """Returns the groups that are read: each fold gets one of k groups of similar sizes."""
        return np.sort(np.argsort(-sizes, kind="stable")[self._fold_rows(sizes.size, key, unit)[:]])

    def _fold_rows(self, size: int, key: Key, unit: str) -> FoldRows:
        self._require_enough(size, unit)
        return FoldRows(size, self.num_folds, key, self.fold, self.held_out)

    def _require_enough(self, count: int, unit: str) -> None:
        if count < self.num_folds:
            raise DatasetError("num_folds", f"is more than the {count} {unit} of the dataset", self.num_folds)

    def _require_fixed(self, child: Order | None) -> None:
        unfixed = next((link for link in self._links()[1:] if not link.is_fixed), None)
        if unfixed is not None:
            problem = "would split differently in each epoch, so that held-out samples are trained on"
            raise CompositionError("FoldSampler", problem, unfixed, hint="put that sampler above it")
        if child is not None and child.num_passes > 1:
            problem = "has a child that yields a sample more than once, and it would be in several folds"
            raise CompositionError("FoldSampler", problem, self.get_child(), hint="repeat samples above it")


def checked_labels(labels: Any, place: str) -> np.ndarray[Any, Any]:
    """Validates labels, a flat list or array of integers, numbers or strings, and returns a copy."""
    if isinstance(labels, str | bytes | int | float):
        raise ArgumentTypeError(place, "must be a list of labels", labels)
    try:
        array = np.asarray(labels).copy()
    except (TypeError, ValueError, RuntimeError):  # rows of different lengths, a tensor on a device
        array = np.empty((0, 0))
    if array.ndim != 1 or array.dtype.kind not in "iubUSf":
        raise ArgumentTypeError(place, "must be a flat list of integers or strings", labels)
    return arguments.read_only(array)


def given_labels(place: str, labels: Any) -> np.ndarray[Any, Any] | None:
    """Validates labels, which must not be empty; None stays None."""
    checked = None if labels is None else checked_labels(labels, place)
    if checked is not None and not checked.size:
        raise ArgumentRangeError(place, "must not be empty", labels)
    return checked
