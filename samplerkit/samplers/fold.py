"""Disjoint parts of a dataset: folds for cross-validation, and held-out parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, final

import numpy as np

from samplerkit.errors import ArgumentRangeError, ArgumentValueError, CompositionError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.algebra import limited
from samplerkit.order.caching import cached_property
from samplerkit.order.files import FileSequence
from samplerkit.order.keys import Key, scaled
from samplerkit.order.layout import Layout
from samplerkit.order.order import Located, Order, located
from samplerkit.order.sequences import Range, Table
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import Context
from samplerkit.samplers.pk import given_labels


@final
@dataclass(frozen=True, eq=False, repr=False)
class FoldRows(Order):
    """The rows of one fold, or those of all others, in ascending order.

    Each row of a block of `num_folds` rows belongs to another fold. A row stays in its fold when rows are
    added behind it. Nothing is kept in memory.

    Args:
        size: the number of rows.
        num_folds: how many.
        key: of the random shift of the folds within a block.
        fold: the number of the fold.
        held_out: the rows of the fold; else the others.

    Example:
        >>> key = Key(seed=7, epoch=0, depth=0, role="fold")
        >>> [FoldRows(7, 3, key, fold, held_out=True)[:].tolist() for fold in range(3)]
        [[2, 5], [0, 3, 6], [1, 4]]
    """

    size: int
    num_folds: int
    key: Key
    fold: int
    held_out: bool

    def __len__(self) -> int:
        return self._length

    @cached_property
    def _length(self) -> int:
        blocks, rest = divmod(self.size, self.num_folds)
        in_fold = blocks + (int(self._place(np.array([blocks]))[0]) < rest)
        return in_fold if self.held_out else self.size - in_fold

    def ids_at(self, positions: Ids) -> Ids:
        if self.held_out:
            return positions * self.num_folds + self._place(positions)
        block, row = np.divmod(positions, self.num_folds - 1)
        return block * self.num_folds + row + (row >= self._place(block))

    def locate(self, ids: Ids) -> Located:
        is_row = (ids >= 0) & (ids < self.size)
        block, place = np.divmod(np.where(is_row, ids, 0), self.num_folds)
        target = self._place(block)
        if self.held_out:
            return located(block, is_row & (place == target))
        return located(block * (self.num_folds - 1) + place - (place > target), is_row & (place != target))

    def _place(self, blocks: Ids) -> Ids:
        """The place of the fold's row within each block."""
        return (scaled(self.key.hashes(blocks), self.num_folds) + self.fold) % self.num_folds


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
        has_labels, has_groups = self.labels is not None, self.groups is not None
        options = {"labels": has_labels, "groups": has_groups, "by_files": self.by_files}
        given = [name for name, is_given in options.items() if is_given]
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
