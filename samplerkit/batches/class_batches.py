"""Batches of P classes with K samples each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, ClassVar, final

import numpy as np

from samplerkit.batches.plan import BatchPlan, BatchSamples, Measure
from samplerkit.batches.recipe import SHARED_ARGUMENTS, BatchRecipe, Prepared, require_positive
from samplerkit.batches.sample_set import SampleSet
from samplerkit.batches.table_cache import TableCache
from samplerkit.batches.window_plan import WindowContext
from samplerkit.errors import CompositionError, DatasetError, NotSupportedError
from samplerkit.order.files import Block, KeptBlocks
from samplerkit.order.intervals import edges_of, groups
from samplerkit.order.keys import Key
from samplerkit.order.layout import Layout
from samplerkit.order.order import Located
from samplerkit.order.typing import Ids
from samplerkit.samplers.pk import DEFAULT_COLUMN, PKSampler


@final
@dataclass(frozen=True, eq=False)
class ClassBatches(BatchRecipe):
    """Batches of `num_class` classes with `num_val` samples each: for contrastive learning.

    Classes come in rounds, each at most once a round, in another order each time; a class that comes again
    continues with other samples of its own, until all but fewer than `num_val` have come. No sample and no
    class is twice in a batch. Classes come equally often, so that samples of small ones come more often.
    A batch stays whole, and so a loader refuses the tail `split`: with fewer classes or samples the loss is
    another one.

    Args:
        num_class: P, classes in a batch.
        num_val: K, samples of each.
        labels: of the samples of the dataset, in place of asking it.
        class_column: the attribute or column of the dataset that holds the labels. Where it is left out, the
            dataset's `targets` will do as well.
        num_batches: batches in an epoch; None for as many as hold as many samples as there are.
        abreast: of no effect here, where all batches are alike; states have it.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is not positive, or `labels` or `class_column` is empty.
        DatasetError: with the plan: no labels are found, or not one for each sample; there are fewer classes
            than `num_class`, or a class has fewer samples than `num_val`.
        CompositionError: with the plan: the sampler reads no fixed set.

    Example:
        >>> import samplerkit as sk
        >>> labels = ["cat", "dog", "cat", "owl", "dog", "owl"]
        >>> plan = ClassBatches(2, 2, labels=labels).plan(sk.RandomSampler(seed=1), 6)
        >>> sorted({labels[id] for id in plan[0]}), plan.shape(0)
        (['cat', 'dog'], (4,))
    """

    can_be_split: ClassVar[bool] = False

    num_class: int
    num_val: int
    _: KW_ONLY
    labels: Sequence[Any] | np.ndarray[Any, Any] | None = field(default=None, repr=False)
    class_column: str = DEFAULT_COLUMN
    num_batches: int | None = None
    abreast: int | None = None

    def __post_init__(self) -> None:
        require_positive(self, num_class=1 << 31, num_val=1 << 31, **SHARED_ARGUMENTS)
        object.__setattr__(self, "labels", self._finder().labels)

    def prepared(self, dataset: Any, chosen: SampleSet | None, abreast: int, kept: TableCache) -> Prepared:
        finder = self._finder()
        labels = finder.labels if finder.labels is not None else finder.looks_at(dataset)[self.class_column]
        size = len(Layout.of(dataset))
        if labels.size != size:
            raise DatasetError("labels", f"must be one for each of the {size} samples", labels.size)
        if chosen is None:
            problem = "of classes need a sampler that reads a fixed set at random"
            hint = "use RandomSampler or DistributedSampler with shuffle GLOBAL, alone or over a subset"
            raise CompositionError("batches", problem, hint=hint)
        ids = np.arange(chosen.size) if chosen.ids is None else chosen.ids
        values, numbers, counts = np.unique(labels[ids], return_inverse=True, return_counts=True)
        if values.size < self.num_class:
            problem = f"is more than the {values.size} classes that there are"
            raise DatasetError("num_class", problem, self.num_class)
        few = np.flatnonzero(counts < self.num_val)
        if few.size:
            problem = f"is more than the {int(counts[few[0]])} samples of class {values[few[0]].item()!r}"
            hint = "say a smaller one, or leave such classes out by a SubsetRandomSampler"
            raise DatasetError("num_val", problem, self.num_val, hint=hint)
        members = ids[np.argsort(numbers, kind="stable")]
        length = self.num_batches or max(1, ids.size // (self.num_class * self.num_val))
        sizes = self.num_class, self.num_val
        whole = partial(ClassPlan, Measure(), abreast, members, counts, sizes, length)
        return Prepared(Measure(labels=labels), whole=whole)

    def cut(self, ids: Ids, lengths: Ids, context: WindowContext) -> list[Ids]:
        """Refuses windows: a few samples in their order need not hold P classes."""
        raise NotSupportedError("window", "does not go with batches of classes", context.window)

    def _finder(self) -> PKSampler:
        return PKSampler(self.num_val, class_column=self.class_column, labels=self.labels)


@final
@dataclass(eq=False, repr=False)
class ClassPlan(BatchPlan):
    """Batches of classes, each batch by arithmetic on its number.

    Args:
        members: ids, class after class.
        counts: how many members each class has.
        sizes: P and K.
        length: the number of batches.
        keys: of the members, and of the classes.
    """

    members: Ids
    counts: Ids
    sizes: tuple[int, int]
    length: int
    keys: tuple[Key, Key]

    def __post_init__(self) -> None:
        self._starts = edges_of(self.counts)
        self._classes, self._each = self.sizes
        self._of_members, self._of_classes = map(KeptBlocks, self.keys)
        # A round holds as many batches as it has classes for; each time other classes are left over.
        self._in_a_round = self.counts.size // self._classes

    def __len__(self) -> int:
        return self.length

    @property
    def num_draws(self) -> int:
        return self.length * self._classes * self._each

    def samples(self, numbers: Ids) -> BatchSamples:
        size = self._classes * self._each
        ids = np.empty((numbers.size, self._classes, self._each), dtype=np.int64)
        for row, (turn, slot) in enumerate(zip(*np.divmod(numbers, self._in_a_round), strict=True)):
            seats = np.arange(slot * self._classes, (slot + 1) * self._classes)
            classes = self._of_classes.permuted(self._round(int(turn)), seats)
            for column, number in enumerate(classes.tolist()):
                ids[row, column] = self._drawn(number, int(turn))
        positions = np.repeat(numbers * size, size) + np.tile(np.arange(size), numbers.size)
        return BatchSamples(ids.reshape(-1), positions, np.arange(numbers.size + 1) * size)

    def passes_at(self, draws: Ids) -> Ids:
        number, place = np.divmod(draws, self._classes * self._each)
        turn, slot = np.divmod(number, self._in_a_round)
        seat = slot * self._classes + place // self._each
        passes = np.empty_like(draws)
        for round_, mine in groups(turn):
            classes = self._of_classes.permuted(self._round(round_), seat[mine])
            passes[mine] = round_ // (self.counts[classes] // self._each)
        return passes

    def locate(self, ids: Ids) -> Located:
        sorted_at = np.argsort(self.members)
        at = np.searchsorted(self.members[sorted_at], ids)
        at = sorted_at[np.minimum(at, self.members.size - 1)]
        which: list[int] = []
        numbers: list[int] = []
        for place in np.flatnonzero(self.members[at] == ids).tolist():
            found = self._batches_of(int(at[place]))
            which += [place] * len(found)
            numbers += found
        return np.array(which, dtype=np.int64), np.array(numbers, dtype=np.int64)

    def _round(self, turn: int) -> Block:
        return Block(turn, 0, self.counts.size)

    def _drawn(self, number: int, turn: int) -> Ids:
        """Gives the samples of a class in a round: the next ones of a pass over it, or of a new pass."""
        count = int(self.counts[number])
        again, part = divmod(turn, count // self._each)
        rows = np.arange(part * self._each, (part + 1) * self._each)
        rows = self._of_members.permuted(Block(number, again, count), rows)
        drawn: Ids = self.members[self._starts[number] + rows]
        return drawn

    def _batches_of(self, place: int) -> list[int]:
        # The way of `samples` backwards: from a member to its part of a pass over the class, from there to
        # the round in which that part is due, and to the batch of the round in which the class has a seat.
        number = int(np.searchsorted(self._starts, place, side="right")) - 1
        count = int(self.counts[number])
        parts = count // self._each
        row = np.array([place - int(self._starts[number])])
        found = []
        rounds = -(-self.length // self._in_a_round)
        for again in range(-(-rounds // parts)):
            part = (
                int(self._of_members.permuted(Block(number, again, count), row, inverse=True)[0])
                // self._each
            )
            turn = again * parts + part
            if part >= parts or turn >= rounds:
                continue
            seat = int(self._of_classes.permuted(self._round(turn), np.array([number]), inverse=True)[0])
            slot = seat // self._classes
            if slot < self._in_a_round and turn * self._in_a_round + slot < self.length:
                found.append(turn * self._in_a_round + slot)
        return found
