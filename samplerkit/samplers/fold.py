"""Parts of a dataset that never meet: folds for cross-validation, and held-out parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, final

import numpy as np

from samplerkit.errors import ArgumentRangeError, ArgumentValueError, CompositionError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.deal import limited
from samplerkit.order.episodes import WholeFiles
from samplerkit.order.folds import FoldRows, Folds
from samplerkit.order.keys import Key, keyed_hash
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.sequences import Range, Table
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.context import Context
from samplerkit.samplers.pk import checked_labels

MOST_FOLDS = 1 << 20
_HASH_WORDS = 3


@final
class FoldSampler(Sampler):
    """Reads all samples but those of one fold, or those of the fold alone, in ascending order.

    Folds are drawn by the seed, and stay for ever: no epoch, rank or length of a run is in them. Each sample
    belongs to one fold. So a training and an evaluation that differ in `held_out` only never share a sample,
    and the k evaluations read each sample once. Folds differ by at most one sample; by groups, by no more
    than the samples of the largest group.

    Args:
        num_folds: k, at least 2.
        fold: which one is held out, in [0, num_folds).
        held_out: whether to read the samples of the fold; else all others.
        num_samples: how many samples, from the first; None and 0 mean all.
        labels: the label of each sample of the dataset: each fold then gets the same number of samples of
            each label, but for one.
        groups: the group of each sample of the dataset, such as a speaker or a patient, all of which belongs
            to one fold.
        by_files: whether files are the groups. What draws from this sampler then sees the files that are
            left: a `WindowSampler`, or a `RandomSampler` of any shuffle mode.
        seed: of the folds, in [0, 2^64).

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: `num_folds` is not in [2, 2^20] or `fold` not in [0, num_folds), or `labels` or
            `groups` is empty.
        ArgumentValueError: `num_samples` or `seed` is negative, or two of `labels`, `groups` and `by_files`
            are given.
        DatasetError: when the order is asked for: there are fewer samples or groups than folds, not one
            label or group for each sample, or no files.
        CompositionError: when the order is asked for: the child may yield other samples in other epochs, or
            a sample twice, so that folds would meet.

    Example:
        >>> training, evaluation = FoldSampler(5, 0, seed=7), FoldSampler(5, 0, held_out=True, seed=7)
        >>> sorted([*training.order(10), *evaluation.order(10)]), list(evaluation.order(10))
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [3, 8])
    """

    is_fixed: ClassVar[bool] = True

    def __init__(
        self,
        num_folds: int,
        fold: int,
        held_out: bool = False,
        num_samples: int | None = None,
        *,
        labels: Sequence[Any] | np.ndarray[Any, Any] | None = None,
        groups: Sequence[Any] | np.ndarray[Any, Any] | None = None,
        by_files: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__(num_samples)
        self.num_folds: Final = arguments.positive("num_folds", num_folds, MOST_FOLDS)
        if self.num_folds == 1:
            raise ArgumentRangeError("num_folds", "must be at least 2", num_folds)
        self.fold: Final = arguments.at_least("fold", fold, 0)
        if self.fold >= self.num_folds:
            raise ArgumentRangeError("fold", f"must be in [0, {self.num_folds})", fold)
        self.held_out: Final = arguments.boolean("held_out", held_out)
        self.labels: Final = None if labels is None else _filled(labels, "labels")
        self.groups: Final = None if groups is None else _filled(groups, "groups")
        self.by_files: Final = arguments.boolean("by_files", by_files)
        self.yields_files = self.by_files
        self.seed: Final = arguments.seed(seed)
        ways = {"labels": labels is not None, "groups": groups is not None, "by_files": self.by_files}
        given = [name for name, is_given in ways.items() if is_given]
        if len(given) > 1:
            raise ArgumentValueError(given[1], f"stands beside {given[0]}", None, mend="give one of them")

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        self._require_fixed(context.child)
        # No epoch is in it, nor where a mixture stands above: an evaluation outside of it has the same folds.
        key = Key(self.seed, 0, context.depth, "fold")
        return limited(self._rows(layout, context, key), self.num_samples or None)

    def _rows(self, layout: Layout, context: Context, key: Key) -> Order:
        size, folds = len(layout), Folds(self.num_folds, key)
        if self.by_files:
            if not layout.has_files:
                raise DatasetError("by_files", "needs a dataset of files", layout, mend="say groups")
            self._require_enough(layout.num_files, "files")
            return WholeFiles(layout, self._read(_folds_of_groups(folds, layout.sizes)))
        if not size:
            return Range(0, 0)
        given = self.labels if self.labels is not None else self.groups
        if given is None:
            self._require_enough(size, "samples")
            return FoldRows(size, folds, self.fold, held_out=self.held_out)
        place = "groups" if self.labels is None else "labels"
        there = len(Layout.of(context.dataset))
        if given.size != there:
            raise DatasetError(place, f"must be one for each of the {there} samples", given.size)
        of_rows = given if context.child is None else given[np.asarray(context.child)]
        names, numbers, counts = np.unique(of_rows, return_inverse=True, return_counts=True)
        if place == "groups":
            self._require_enough(names.size, "groups")
            return Table(self._read(_folds_of_groups(folds, counts)[numbers]))
        self._require_enough(size, "samples")
        # Label after label, and at random within each: every k-th row belongs to a fold.
        hashes = keyed_hash(key.words(_HASH_WORDS), np.arange(size))
        fold_of = np.empty(size, dtype=np.int64)
        fold_of[np.lexsort((hashes, numbers))] = np.arange(size) % self.num_folds
        return Table(self._read(fold_of))

    def _read(self, fold_of: Ids) -> Ids:
        return np.flatnonzero((fold_of == self.fold) == self.held_out)

    def _require_enough(self, count: int, of: str) -> None:
        if count < self.num_folds:
            raise DatasetError("num_folds", f"is more than the {count} {of} there are", self.num_folds)

    def _require_fixed(self, child: Order | None) -> None:
        moving = next((link for link in self._links()[1:] if not link.is_fixed), None)
        if moving is not None:
            raise CompositionError(
                "FoldSampler",
                "would part other samples in each epoch, so that what is held out is trained on",
                moving,
                mend="put that sampler above it",
            )
        if child is not None and child.num_passes > 1:
            raise CompositionError(
                "FoldSampler",
                "has a child that yields a sample more than once, which would come into several folds",
                self.get_child(),
                mend="repeat samples above it",
            )


def _folds_of_groups(folds: Folds, sizes: Ids) -> Ids:
    """Gives the fold of each group: each fold gets one of k groups of like sizes."""
    fold_of = np.empty(sizes.size, dtype=np.int64)
    fold_of[np.argsort(-sizes, kind="stable")] = folds.fold_of(np.arange(sizes.size))
    return fold_of


def _filled(values: Any, place: str) -> np.ndarray[Any, Any]:
    checked = checked_labels(values, place)
    if not checked.size:
        raise ArgumentRangeError(place, "must not be empty", values)
    return checked
