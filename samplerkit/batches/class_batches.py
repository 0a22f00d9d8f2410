"""Batches of P classes with K samples of each."""

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
from samplerkit.order.dataset_protocol import require_one_each
from samplerkit.order.files import BlockCache, permuted_within
from samplerkit.order.intervals import edges_of, groups, interval_of, numbers_in
from samplerkit.order.keys import Key
from samplerkit.order.order import Located
from samplerkit.order.sequences import Occurrences
from samplerkit.order.typing import Ids
from samplerkit.samplers.groups import DEFAULT_COLUMN, PKSampler


@final
@dataclass(frozen=True, eq=False)
class ClassBatches(BatchRecipe):
    """Batches of `num_class` classes with `num_val` samples of each: for contrastive learning.

    Classes are read in rounds, in another order in each round, each class at most once per round. In its next
    round a class continues with its next samples; if fewer than `num_val` remain, another pass over the class
    begins. No sample and no class is twice in a batch. All classes are read equally often, so samples of
    small classes are read more often. A part of a batch would not have all its classes, so a loader refuses
    the tail `split`.

    Args:
        num_class: P, classes in a batch.
        num_val: K, samples of each.
        labels: of the samples of the dataset; None reads them from the dataset.
        class_column: the attribute or column of the dataset with the labels. With the default, `targets` is
            used if there is no such one.
        num_batches: batches in an epoch; None for so many that the epoch has as many samples as the set.
        abreast: has no effect, since all batches cost alike; it is in states.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is not positive, or `labels` or `class_column` is empty.
        DatasetError: with the plan: no labels are found, or not one for each sample; there are fewer classes
            than `num_class`, or a class has fewer samples than `num_val`.
        CompositionError: with the plan: the sampler does not read a set whole in random order.

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
        labels = self._finder()._labels_of(dataset)
        require_one_each("labels", labels.size, dataset)
        if chosen is None:
            problem = "of classes need a sampler that reads a fixed set at random"
            hint = "use RandomSampler or DistributedSampler with shuffle GLOBAL, alone or over a subset"
            raise CompositionError("batches", problem, hint=hint)
        ids = np.arange(chosen.size) if chosen.ids is None else chosen.ids
        values, numbers, counts = np.unique(labels[ids], return_inverse=True, return_counts=True)
        if values.size < self.num_class:
            problem = f"is more than the {values.size} classes of the dataset"
            raise DatasetError("num_class", problem, self.num_class)
        small = np.flatnonzero(counts < self.num_val)
        if small.size:
            problem = f"is more than the {int(counts[small[0]])} samples of class {values[small[0]].item()!r}"
            hint = "use a smaller one, or leave such classes out by a SubsetRandomSampler"
            raise DatasetError("num_val", problem, self.num_val, hint=hint)
        members = ids[np.argsort(numbers, kind="stable")]
        make_plan = partial(
            ClassPlan, members=members, counts=counts, num_class=self.num_class, num_val=self.num_val
        )
        return Prepared(Measure(), plan=make_plan, labels=labels)

    def cut(self, ids: Ids, lengths: Ids, context: WindowContext) -> list[Ids]:
        """Raises an error: the samples of a window may have fewer than P classes."""
        raise NotSupportedError("window", "cannot be combined with batches of classes", context.window)

    def _finder(self) -> PKSampler:
        return PKSampler(self.num_val, class_column=self.class_column, labels=self.labels)


@dataclass(eq=False, repr=False)
class ClassPlan(BatchPlan):
    """Batches of classes, each of them by arithmetic on its number.

    With C classes, a round has C // P batches, and so seats for (C // P) * P classes: a permutation for each
    round seats them, and the others are left out of it. In round t, a class with n samples reads its part
    t modulo n // K, which is K samples, in its pass t // (n // K); each pass permutes the samples.

    For example, C = 5 classes A to E with 4 samples each, P = 2 and K = 2: batch 0 may have A and D, batch 1
    C and B, and E is left out of round 0. Round 1 is batches 2 and 3. A pass over a class has two parts of 2
    samples: round 0 reads the first part of the classes that are seated, round 1 the second, and round 2
    begins another pass.

    Args:
        num_batches: None for so many that the epoch has as many samples as the set.
        keys: one for the samples of classes, one for the seats.
        members: the ids of the samples, class after class; int64 of shape (n,).
        counts: the number of samples of each class; int64 of shape (classes,).
        num_class: P.
        num_val: K.
    """

    num_batches: int | None
    keys: tuple[Key, Key]
    members: Ids
    counts: Ids
    num_class: int
    num_val: int

    def __post_init__(self) -> None:
        self._starts = edges_of(self.counts)
        self._member_blocks, self._class_blocks = map(BlockCache, self.keys)
        self._per_round = self.counts.size // self.num_class
        self._batch_size = self.num_class * self.num_val

    def __len__(self) -> int:
        return self.num_batches or max(1, self.members.size // self._batch_size)

    @property
    def num_draws(self) -> int:
        return len(self) * self._batch_size

    def samples(self, numbers: Ids) -> BatchSamples:
        size = self._batch_size
        positions = (numbers[:, None] * size + np.arange(size)).reshape(-1)
        turns, classes = self._classes_at(positions[:: self.num_val])
        passes, parts = np.divmod(turns, self.counts[classes] // self.num_val)
        rows = (parts[:, None] * self.num_val + np.arange(self.num_val)).reshape(-1)
        rows = self._members_in(classes, passes, np.repeat(np.arange(classes.size), self.num_val), rows)
        ids = self.members[np.repeat(self._starts[classes], self.num_val) + rows]
        return BatchSamples(ids, positions, np.arange(numbers.size + 1) * size)

    def passes_at(self, draws: Ids) -> Ids:
        turns, classes = self._classes_at(draws)
        return turns // (self.counts[classes] // self.num_val)

    def locate(self, ids: Ids) -> Located:
        # The inverse of `samples`: from a sample to its part in each pass over its class, from pass and part
        # to the round, and from the seat of the class in that round to the batch.
        which, at = Occurrences(self.members).locate(ids)
        classes = interval_of(self._starts, at)
        rounds, parts = -(-len(self) // self._per_round), self.counts[classes] // self.num_val
        times = -(-rounds // parts)
        passes, index = numbers_in(np.zeros_like(times), times), np.repeat(np.arange(times.size), times)
        which, classes, parts = which[index], classes[index], parts[index]
        rows = at[index] - self._starts[classes]
        part = self._members_in(classes, passes, np.arange(rows.size), rows, inverse=True) // self.num_val
        turns = passes * parts + part
        due = np.flatnonzero((part < parts) & (turns < rounds))
        slots = self._permute_rounds(turns[due], classes[due], inverse=True) // self.num_class
        numbers = turns[due] * self._per_round + slots
        exists = (slots < self._per_round) & (numbers < len(self))
        return which[due[exists]], numbers[exists]

    def _classes_at(self, draws: Ids) -> tuple[Ids, Ids]:
        """Returns (rounds, classes) of draws, each int64 of shape (m,)."""
        numbers, places = np.divmod(draws, self._batch_size)
        turns, slots = np.divmod(numbers, self._per_round)
        seats = slots * self.num_class + places // self.num_val
        return turns, self._permute_rounds(turns, seats)

    def _permute_rounds(self, turns: Ids, seats: Ids, *, inverse: bool = False) -> Ids:
        """Returns the class in each seat of a round; with `inverse`, the seat of each class.

        Args:
            turns: the round of each seat; shape (m,).
            seats: from 0; those from P * (C // P) on are of classes that are left out. Shape (m,).
            inverse: `seats` are classes, and the result is their seats.
        """
        classes = np.empty_like(seats)
        for turn, at in groups(turns):
            block = self._class_blocks.block(turn, 0, self.counts.size)
            classes[at] = block.permuted(seats[at], inverse=inverse)
        return classes

    def _members_in(self, classes: Ids, passes: Ids, index: Ids, rows: Ids, *, inverse: bool = False) -> Ids:
        """Permutes samples of classes within a pass.

        Args:
            classes: shape (k,).
            passes: over each class; shape (k,).
            index: which of these passes each row is of; shape (m,).
            rows: the number of a sample in its class; shape (m,).
            inverse: whether to apply the inverses.
        """
        sizes = self.counts[classes]
        columns = classes.tolist(), passes.tolist(), sizes.tolist()
        blocks = [*map(self._member_blocks.block, *columns)]
        return permuted_within(blocks, index, rows, inverse=inverse)
