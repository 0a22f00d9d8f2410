"""The base of all recipes for batches, and the plans that one makes of a chain over a dataset."""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any, ClassVar, Final, final

from samplerkit.batches.chosen import ChosenSet, chosen_set, require_whole, seed_of, shuffles
from samplerkit.batches.halves import halved
from samplerkit.batches.kept import KeptArrays
from samplerkit.batches.lengths import SampleLengths
from samplerkit.batches.measure import Measure
from samplerkit.batches.plan import BatchPlan
from samplerkit.batches.window_cut import CutFunction, WindowContext
from samplerkit.batches.windows import WindowPlan
from samplerkit.batches.words import in_words, is_same, short_digest
from samplerkit.errors import ArgumentTypeError, NotSupportedError, StateError
from samplerkit.order import arguments
from samplerkit.order.keys import Key
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.context import RunConstants
from samplerkit.samplers.links import class_name

RULE: Final = "batches-1"
"""The versioned id of how plans are made. A change of any plan is a new id, and the old one stays."""

DEFAULT_WINDOW: Final = 16_384

MOST_ABREAST = 1 << 20
_BESIDE = frozenset({"lengths", "keys", "labels", "abreast"})

PlanOfKeys = Callable[[tuple[Key, Key]], BatchPlan]
"""Makes the plan of an epoch from two keys: of the members of buckets, and of the groups of batches."""


@final
@dataclass(frozen=True, eq=False)
class Prepared:
    """What a recipe found out of a dataset.

    Args:
        measure: how long samples are.
        cut: cuts windows.
        window: samples in a window.
        whole: makes the plans of a set as one window; None where windows of an order are cut.
        most_of_one: batches that a sample stands in at most.
    """

    measure: Measure
    cut: CutFunction
    window: int = DEFAULT_WINDOW
    whole: PlanOfKeys | None = None
    most_of_one: int = 1


class BatchRecipe(ABC):
    """A recipe for batches: how the samples of a window, or of a whole set, are cut.

    A recipe of one's own writes one method, `cut`. Random access, dealing, resume and states are ours.

    Example:
        >>> import numpy as np
        >>> import samplerkit as sk
        >>> class Halves(sk.BatchRecipe):
        ...     window = 6
        ...     def cut(self, ids, lengths, context):
        ...         return np.array_split(np.argsort(ids), 2)
        >>> plan = Halves().plan(sk.SequentialSampler(), 8)
        >>> [batch.tolist() for batch in plan]
        [[0, 1, 2], [3, 4, 5], [6], [7]]
    """

    lengths: Any = None
    """The lengths of the samples: an array, the path of an `.npy` file, or None."""
    window: int | None = None
    """Samples in a window; None leaves it to the recipe."""
    abreast: int | None = None
    """Batches of one group, which cost alike; None for the number of ranks at the first start."""
    num_batches: int | None = None
    """Batches in an epoch at most; None for all."""
    count_multiple: int = 1
    """The number of samples in a batch stays a multiple of it where batches are halved."""
    can_be_split: ClassVar[bool] = True
    """Whether a part of a batch is a batch: only then a loader takes the tail `split`."""

    @abstractmethod
    def cut(self, ids: Ids, lengths: Ids, context: WindowContext) -> Sequence[Ids]:
        """Cuts a window into batches.

        Args:
            ids: of the samples of the window, in their order; int64 of shape (m,).
            lengths: theirs, int64 of shape (m,), or (m, 2) for pairs; ones where the recipe has no lengths.
            context: the epoch, the window and keys for randomness.

        Returns:
            int64 arrays of places in the window, each in [0, m) and none twice, one array a batch, the costly
            batches first: neighbours are read in one step.
        """

    def prepared(self, dataset: Any, chosen: ChosenSet | None, abreast: int, kept: KeptArrays) -> Prepared:
        """Finds out what is the same in each epoch: how long samples are, and whether they can be cut so.

        Args:
            dataset: what is read.
            chosen: the set that the chain reads; None if it is not known.
            abreast: batches of one group.
            kept: where tables of large sets are kept.
        """
        measure = Measure() if self.lengths is None else Measure(SampleLengths(self.lengths, kept=kept))
        return Prepared(measure, self.cut, self.window or DEFAULT_WINDOW)

    def evened(self, abreast: int, batches: list[Ids], ids: Ids, lengths: Ids, count: int) -> list[Ids]:
        """Brings the batches of a window to a number, a multiple of `abreast`: here by halving the largest.

        Args:
            abreast: batches in a group.
            batches: as they were cut.
            ids: of the samples of the window.
            lengths: theirs.
            count: how many batches there shall be, fewer than `abreast` more than there are.
        """
        return halved(batches, count, self.count_multiple)

    @property
    def needs_loader(self) -> bool:
        """Whether batches are more than ids, so that nothing but a `Loader` can read them."""
        return False

    def arguments(self) -> dict[str, Any]:
        """Gives the arguments that are not as by default; a state has lengths and `abreast` beside them."""
        described: dict[str, Any] = {}
        recipe: Any = self
        for argument in fields(recipe) if is_dataclass(recipe) else ():
            value = getattr(self, argument.name)
            if argument.name not in _BESIDE and not is_same(value, argument.default):
                described[argument.name] = value
        return described

    @final
    @property
    def words(self) -> str:
        """The recipe in words, with the version of its rule and without lengths: what a state says of it."""
        return in_words(f"{RULE}: {class_name(type(self))}", self.arguments())

    @final
    def over(
        self,
        sampler: Sampler,
        dataset: Any,
        *,
        constants: RunConstants | None = None,
        abreast: int | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> Plans:
        """Gives the plans of all epochs of a run.

        Args:
            sampler: the outermost one of the chain.
            dataset: a dataset, a `Layout`, or a number of samples.
            constants: what the first start of the run fixed; left out, this is the first start.
            abreast: of a saved state; left out, what the recipe says, or the ranks at the first start.
            folder: where tables of large sets are kept; None for the user's cache folder.

        Raises:
            ArgumentTypeError: `sampler` is no sampler.
            DatasetError: the lengths do not fit the dataset, or there are none.
            ArgumentRangeError: a sample is above the budget, or `num_samples` would cut a set.
        """
        if not isinstance(sampler, Sampler):
            raise ArgumentTypeError("sampler", "must be a sampler", sampler)
        constants = sampler.run_constants() if constants is None else constants
        width = constants.lanes if self.abreast is None else self.abreast
        width = arguments.positive("abreast", width if abreast is None else abreast, MOST_ABREAST)
        return Plans(self, sampler, dataset, constants, width, KeptArrays(folder))

    @final
    def plan(
        self, sampler: Sampler, dataset: Any, epoch: int = 0, *, constants: RunConstants | None = None
    ) -> BatchPlan:
        """Gives the plan of one epoch: `over(sampler, dataset).plan(epoch)`.

        Args:
            sampler: the outermost one of the chain.
            dataset: a dataset, a `Layout`, or a number of samples.
            epoch: from 0.
            constants: what the first start of the run fixed; left out, this is the first start.

        Raises:
            DatasetError: the lengths do not fit the dataset, or there are none.
            ArgumentRangeError: a sample is above the budget, or `num_samples` would cut a set.
        """
        return self.over(sampler, dataset, constants=constants).plan(epoch)


@final
class Plans:
    """The plans of all epochs of a run: what is the same in each is found out once.

    Args:
        recipe: how batches are cut.
        sampler: the outermost one of the chain.
        dataset: what it reads.
        constants: what the first start of the run fixed.
        abreast: batches of one group.
        kept: where tables of large sets are kept.
    """

    def __init__(
        self,
        recipe: BatchRecipe,
        sampler: Sampler,
        dataset: Any,
        constants: RunConstants,
        abreast: int,
        kept: KeptArrays,
    ) -> None:
        self.recipe: Final = recipe
        self.abreast: Final = abreast
        self._sampler = sampler
        self._dataset = dataset
        self._constants = constants
        self._seed = seed_of(sampler)
        # A ledger reads in windows, and only where what it edits would: a state must fit both.
        below = sampler.get_child() if sampler.reads_a_stream else None
        chosen = chosen_set(below or sampler, dataset)
        self._prepared: Final = recipe.prepared(dataset, chosen, abreast, kept)
        if sampler.reads_a_stream and self._prepared.whole is not None:
            problem = "over a whole set have no windows, at whose borders a ledger is edited"
            raise NotSupportedError("batches", problem, recipe, mend="say window= in the recipe")
        self.measure: Final = self._prepared.measure
        if chosen is not None and self._prepared.whole is not None:
            require_whole(sampler, chosen.size)
        self.window: Final = None if self._prepared.whole else self._prepared.window

    @property
    def digest(self) -> str | None:
        """The digest of the lengths, or of the keys or labels; None for a recipe without them."""
        measure = self.measure
        if measure.labels is not None:
            return short_digest(repr(measure.labels.tolist()).encode())
        if measure.lengths is None:
            return None
        own = measure.lengths.digest
        return own if measure.keys is None else short_digest(f"{own} {measure.keys!r}".encode())

    def plan(self, epoch: int, known: tuple[int, int] = (0, 0)) -> BatchPlan:
        """Gives the plan of an epoch.

        Args:
            epoch: from 0.
            known: a window and how many batches come before it, from a saved state (`BatchPlan.window_of`);
                the plan then passes over no window before it.

        Raises:
            StateError: there is no such window.
        """
        epoch = arguments.epoch(epoch)
        prepared = self._prepared
        if prepared.whole is not None:
            return prepared.whole((self._key(epoch, "batch members"), self._key(epoch, "batch groups")))
        order = self._sampler.undealt_order(self._dataset, epoch, constants=self._constants)
        size = prepared.window
        window, before = known
        most = window * size * prepared.most_of_one
        if not (0 <= window <= -(-len(order) // size) and 0 <= before <= most):
            raise StateError("window", "is none of this epoch", list(known))
        key = self._key(epoch, "batch groups") if shuffles(self._sampler) else None
        context = WindowContext(epoch, 0, self._seed, self.abreast)
        recipe = self.recipe
        even = partial(recipe.evened, self.abreast)
        more = (context, key, self.measure, recipe.num_batches, known)
        return WindowPlan(order, size, prepared.cut, even, *more)

    def read_by(self, sampler: Sampler) -> Plans:
        """Gives the same over another order of the same dataset: that of a ledger with one more edit."""
        made = copy.copy(self)
        made._sampler = sampler
        return made

    def _key(self, epoch: int, role: str) -> Key:
        return Key(self._seed, epoch, 0, role)
