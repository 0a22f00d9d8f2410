"""A plan: which samples are in which batch of an epoch, as a value; and how the samples are measured."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final, overload

import numpy as np

from samplerkit.batches.lengths import SampleLengths
from samplerkit.batches.segments import Segments
from samplerkit.errors import OutOfDatasetError
from samplerkit.order.arguments import integer, integers
from samplerkit.order.order import PASS_BITS, Located, lookup
from samplerkit.order.typing import Ids


@dataclass(frozen=True, eq=False, repr=False)
class Measure:
    """How long the samples of a plan are, and to what a batch of them is padded.

    Args:
        lengths: of the samples; None if they are not known, or the batches are by keys.
        padded: rounds lengths up to padded ones; None if they are not rounded.
        longest: the length to which longer samples are truncated; None if none are.
        upper: returns the upper end of the bucket of each length, or the length itself above all buckets;
            None if there are no buckets.
        cap: returns for each length how many samples a batch may have whose longest sample has that length;
            None if there is no limit.
        keys: the distinct keys, and the number of the key of each sample; None if batches are not by keys.
        pack: tokens of a pack; None if batches are not packs.
        multiple: the length of a part in a pack is rounded up to a multiple of it.
    """

    lengths: SampleLengths | None = None
    padded: Callable[[Ids], Ids] | None = None
    longest: int | None = None
    upper: Callable[[Ids], Ids] | None = None
    cap: Callable[[Ids], Ids] | None = None
    keys: tuple[tuple[Any, ...], SampleLengths] | None = None
    pack: int | None = None
    multiple: int = 1

    @property
    def max_parts(self) -> int:
        """The largest number of batches that a sample is in: more than 1 for long documents in packs."""
        if self.pack is None or self.lengths is None:
            return 1
        return 1 + int(self.lengths.histogram.values.max(initial=0)) // self.pack

    def counted(self, ids: Ids) -> Ids:
        """Returns the lengths of samples after truncation; 1 for each if they are not known."""
        if self.lengths is None:
            return np.ones(ids.size, dtype=np.int64)
        lengths = self.lengths.at(ids)
        return lengths if self.longest is None else np.minimum(lengths, self.longest)

    def tokens(self, ids: Ids) -> Ids:
        """Returns the number of tokens of each sample: both lengths of a pair; 1 if they are not known."""
        lengths = self.counted(ids)
        return lengths if lengths.ndim == 1 else lengths.sum(axis=1)

    def padded_tokens(self, ids: Ids, edges: Ids) -> Ids:
        """Returns the padded tokens of batches, whose samples are ids[edges[i]:edges[i + 1]]."""
        longest = self.rounded(np.maximum.reduceat(self.counted(ids), edges[:-1]))
        return np.diff(edges) * (longest if longest.ndim == 1 else longest.sum(axis=1))

    def shape(self, ids: Ids, *, of_bucket: bool = False) -> tuple[Any, ...]:
        """Returns the shape of a batch, as `BatchPlan.shape`."""
        if self.keys is not None:
            keys, numbers = self.keys
            key = keys[numbers.at(ids[:1]).item()]
            return (ids.size, *key) if isinstance(key, tuple) else (ids.size, key)
        if self.lengths is None:
            return (ids.size,)
        longest = self.counted(ids).max(axis=0, keepdims=True)
        if of_bucket and self.upper is not None:
            longest = self.upper(longest)
        longest = self.rounded(longest)
        return (ids.size, *longest.reshape(-1).tolist())

    def rounded(self, lengths: Ids) -> Ids:
        """Rounds lengths up to padded ones."""
        return lengths if self.padded is None else self.padded(lengths)

    def __repr__(self) -> str:
        return "no lengths" if self.lengths is None else f"lengths {self.lengths.digest}"


_BATCHES_AT_ONCE = 1024
_BATCHES_MEASURED = 1 << 14


@dataclass(frozen=True, eq=False)
class BatchSamples:
    """The samples of some batches, one batch after another.

    Args:
        ids: of the samples, int64 of shape (m,).
        positions: the draw of each, which is unique in an epoch; parts of one sample have the same. int64 of
            shape (m,).
        edges: batch i has the samples ids[edges[i]:edges[i + 1]]; int64 of shape (batches + 1,).
        segments: which parts of the samples, for packs; None if samples are whole.
    """

    ids: Ids
    positions: Ids
    edges: Ids
    segments: Segments | None = None

    def batches(self) -> list[Any]:
        """Returns each batch as an item of a plan: its ids, or its packs."""
        parts = [slice(a, b) for a, b in pairwise(self.edges.tolist())]
        if self.segments is None:
            return [self.ids[part] for part in parts]
        return [self.segments.at(part).packs(self.ids[part]) for part in parts]


@dataclass(eq=False, repr=False)
class BatchPlan(ABC):
    """The batches of an epoch: `plan[k]` has the ids of the samples in batch k.

    A plan is a value, which does not depend on ranks, workers or prefetching. Batches are numbered in the
    order in which they are read. Any batch costs the same to compute.

    Args:
        measure: how long the samples are.
        abreast: batches of a group, which cost alike: a constant of the run.

    Example:
        >>> import samplerkit as sk
        >>> recipe = sk.TokenBatches(12, lengths=[3, 6, 2, 3, 5, 1, 4])
        >>> plan = recipe.plan(sk.RandomSampler(seed=7), 7, epoch=0)
        >>> sorted(id for batch in plan for id in batch.tolist())
        [0, 1, 2, 3, 4, 5, 6]
        >>> all(samples * longest <= 12 for samples, longest in map(plan.shape, range(len(plan))))
        True
    """

    measure: Measure
    abreast: int

    @abstractmethod
    def __len__(self) -> int:
        """The number of batches. A plan of windows has to cut all windows of the epoch to find it, once."""

    def has(self, number: int) -> bool:
        """Returns whether there is a batch with this number, from 0, without computing later ones."""
        return 0 <= number < len(self)

    @abstractmethod
    def samples(self, numbers: Ids) -> BatchSamples:
        """Returns the samples of batches that are known to exist.

        Args:
            numbers: of the batches, int64 of shape (b,).
        """

    @abstractmethod
    def locate(self, ids: Ids) -> Located:
        """Finds all batches in which samples are.

        Args:
            ids: int64 of shape (m,), any values.

        Returns:
            (which, numbers): ids[which[i]] is in the batch numbers[i]. Sorted by neither.
        """

    @property
    def dropped(self) -> int:
        """How many samples are in no batch because of `long` or `short`; `num_batches` does not count."""
        return 0

    @property
    @abstractmethod
    def num_draws(self) -> int:
        """A number above all draws of the epoch; pads, which read batches again, have draws from there on."""

    def passes_at(self, draws: Ids) -> Ids:
        """Returns in which pass over its source each draw is, as `Order.passes_at`: 0 if nothing repeats.

        Args:
            draws: from `positions`, int64 of shape (m,).
        """
        return np.zeros_like(draws)

    def epochs_at(self, epoch: int, draws: Ids) -> Ids:
        """Returns in which epoch of its source each draw is, as `Order.epochs_at`."""
        return epoch + (self.passes_at(draws) << PASS_BITS)

    @property
    def window(self) -> int | None:
        """Samples in a window; None if the plan is of a whole set."""
        return None

    def window_of(self, number: int) -> tuple[int, int]:
        """Returns the window of a batch and the number of batches before that window, for a state."""
        return 0, 0

    @final
    def __getitem__(self, number: int) -> Any:
        """Returns the ids of a batch, int64 of shape (samples,); of packs their `Packs`.

        Raises:
            ArgumentTypeError: the number is not an integer.
            OutOfDatasetError: there is no such batch.
        """
        return self._samples_of(integer("index", number)).batches()[0]

    @final
    def __iter__(self) -> Iterator[Any]:
        number = 0
        while self.has(number):
            # Batches are computed together, more and more of them, so that the first one comes soon.
            end = number + min(max(1, number), _BATCHES_AT_ONCE)
            while not self.has(end - 1):
                end -= 1
            yield from self.batches(np.arange(number, end))
            number = end

    @final
    def batches(self, numbers: Any) -> list[Any]:
        """Returns several batches, each as `plan[k]`; together they cost less.

        Args:
            numbers: of the batches: a list or an array of integers.

        Raises:
            ArgumentTypeError: a number is not an integer.
            OutOfDatasetError: there is no such batch.
        """
        return self._samples_of(numbers).batches()

    @final
    def positions(self, number: int) -> Ids:
        """Returns the draws of a batch's samples, on which `draw_rng` depends; int64 of shape (samples,).

        In packs, parts of one sample have the same draw.

        Raises:
            ArgumentTypeError: the number is not an integer.
            OutOfDatasetError: there is no such batch.
        """
        return self._samples_of(integer("index", number)).positions

    @final
    def shape(self, number: int, *, of_bucket: bool = False) -> tuple[Any, ...]:
        """Returns the shape of a batch: the number of samples, and the length to which they are padded.

        Pairs have two lengths, batches by keys have the key; without lengths it is the number alone. For
        packs it is their number and `seq_len`.

        Args:
            number: of the batch.
            of_bucket: samples are padded to the upper end of their bucket, so that few shapes occur, and not
                to the longest one.

        Raises:
            ArgumentTypeError: the number is not an integer.
            OutOfDatasetError: there is no such batch.
        """
        samples = self._samples_of(integer("index", number))
        return self.shape_of(samples.ids, samples.segments, of_bucket=of_bucket)

    @final
    def shape_of(self, ids: Ids, segments: Segments | None, *, of_bucket: bool = False) -> tuple[Any, ...]:
        """Returns the shape of a batch of some samples, or of parts of them; as `shape`."""
        if segments is not None:
            return (int(segments.rows[-1]) + 1, self.measure.pack)
        return self.measure.shape(ids, of_bucket=of_bucket)

    @final
    def tokens(self, numbers: Any) -> Ids:
        """Returns the number of tokens in each of some batches, without padding; int64 of shape (b,).

        Without lengths, it is the number of samples. Arguments and errors are those of `batches`.
        """
        return self.tokens_in(self._samples_of(numbers))

    @final
    def padded_tokens(self, numbers: Any) -> Ids:
        """Returns the number of tokens in each of some batches, with padding; int64 of shape (b,)."""
        return self.padded_tokens_in(self._samples_of(numbers))

    @final
    def tokens_in(self, found: BatchSamples) -> Ids:
        """Returns the number of tokens in each of some batches, from their samples."""
        lengths = self.measure.tokens(found.ids) if found.segments is None else found.segments.lengths
        return np.add.reduceat(lengths, found.edges[:-1])  # no batch is empty

    @final
    def padded_tokens_in(self, found: BatchSamples) -> Ids:
        """Returns the number of padded tokens in each of some batches, from their samples."""
        if found.segments is None:
            return self.measure.padded_tokens(found.ids, found.edges)
        return (found.segments.rows[found.edges[1:] - 1] + 1) * (self.measure.pack or 0)

    @overload
    def batch_of(self, ids: int) -> Ids: ...
    @overload
    def batch_of(self, ids: list[int] | np.ndarray[Any, Any]) -> Located: ...
    @final
    def batch_of(self, ids: Any) -> Ids | Located:
        """Finds the batches in which samples are: the inverse of indexing.

        Args:
            ids: one id, or an array of m ids.

        Returns:
            For one id, the numbers of its batches in ascending order, none if it does not occur. For an
            array, the pair (which, numbers): ids[which[i]] is in batch numbers[i], sorted by `which`,
            then by number.

        Raises:
            ArgumentTypeError: an id is not an integer.
        """
        return lookup(ids, self.locate)

    @final
    def efficiency(self) -> float:
        """Returns the share of tokens in the padded tokens, at most 1.

        In a plan of more than 16,384 batches it is estimated from that many, at even distances.
        """
        count = len(self)
        real = padded = 0
        numbers = np.unique(np.linspace(0, count - 1, min(count, _BATCHES_MEASURED)).astype(np.int64))
        for start in range(0, numbers.size, _BATCHES_AT_ONCE):
            samples = self.samples(numbers[start : start + _BATCHES_AT_ONCE])
            real += int(self.tokens_in(samples).sum())
            padded += int(self.padded_tokens_in(samples).sum())
        return real / padded if padded else 1.0

    def _samples_of(self, numbers: Any) -> BatchSamples:
        """Returns the samples of batches by a user's numbers; negative ones count from the end."""
        array = integers("index", numbers).reshape(-1)
        low, high = int(array.min(initial=0)), int(array.max()) if array.size else -1
        if low < 0 or (array.size and not self.has(high)):
            count = len(self)
            if low < -count or high >= count:
                wrong = low if low < -count else high
                raise OutOfDatasetError("index", f"outside of a plan of {count} batches", wrong)
            array = np.where(array < 0, array + count, array)
        return self.samples(array.astype(np.int64))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.measure}, abreast={self.abreast})"
