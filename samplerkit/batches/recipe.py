"""The base of all recipes for batches, and the plans that a recipe makes of a chain over a dataset."""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any, ClassVar, Final, final

import numpy as np

from samplerkit.batches.cutting import halved
from samplerkit.batches.lengths import find_lengths, short_digest
from samplerkit.batches.plan import BatchPlan, BatchSamples, Measure
from samplerkit.batches.sample_set import SampleSet, find_set, require_uncut, seed_of, shuffles
from samplerkit.batches.table_cache import TableCache
from samplerkit.batches.window_plan import WindowContext, WindowPlan, checked_cut
from samplerkit.errors import ArgumentTypeError, NotSupportedError, StateError
from samplerkit.order import arguments
from samplerkit.order.arguments import LARGEST
from samplerkit.order.caching import cached_property
from samplerkit.order.intervals import edges_of
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import RunConstants, class_name


def require_positive(recipe: Any, **largest: int) -> None:
    """Checks arguments of a frozen recipe: positive integers, or None if that is the default.

    Args:
        recipe: a frozen dataclass, whose arguments are replaced by the checked values.
        largest: the largest value of each argument.
    """
    for name, limit in largest.items():
        value = getattr(recipe, name)
        if value is not None or getattr(type(recipe), name, 0) is not None:
            object.__setattr__(recipe, name, arguments.positive(name, value, limit))


_LONGEST_WORDS = 160


def describe(name: str, given: Mapping[str, Any]) -> str:
    """Returns a recipe as text, with its arguments; a long text is cut, and a digest of it is added."""
    words = f"{name}({', '.join(f'{argument}={_text(value)}' for argument, value in given.items())})"
    return words if len(words) <= _LONGEST_WORDS else f"{words[:120]}... {short_digest(words.encode())}"


def is_default(value: Any, default: Any) -> bool:
    """Returns whether an argument has its default."""
    return type(value) is type(default) and not isinstance(value, np.ndarray) and value == default


def is_plain(value: Any) -> bool:
    """Returns whether a value has the same text in every process: numbers, strings, or sequences of them."""
    if isinstance(value, tuple | list):
        return all(map(is_plain, value))
    return isinstance(value, str | int | float | np.number | np.ndarray)


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"<{value.size} values, {short_digest(value.astype(value.dtype.newbyteorder('<')).tobytes())}>"
    if callable(value):
        return getattr(value, "__qualname__", type(value).__qualname__)
    return repr(value)


RULE: Final = "batches-1"
"""The versioned id of how plans are made. A change of any plan is a new id, and the old one stays."""

DEFAULT_WINDOW: Final = 16_384

MAX_ABREAST = 1 << 20

SHARED_ARGUMENTS: Final = {"window": LARGEST, "abreast": MAX_ABREAST, "num_batches": LARGEST}
"""The largest value of each argument that all recipes have."""

_NOT_ARGUMENTS = frozenset({"lengths", "keys", "labels", "abreast"})
_SHARED_NAMES = ("window", "num_batches", "count_multiple")

PlanFactory = Callable[..., BatchPlan]
"""Makes the plan of an epoch from the first arguments of a `SetPlan`."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """What a recipe computed from a dataset, the same in all epochs.

    Args:
        measure: how long the samples are.
        window: samples in a window, unless the recipe says how many.
        plan: makes the plans of a whole set; None if windows of the order are cut.
        labels: of the samples, for batches by classes; otherwise None.
    """

    measure: Measure
    window: int = DEFAULT_WINDOW
    plan: PlanFactory | None = None
    labels: np.ndarray[Any, Any] | None = None


class BatchRecipe(ABC):
    """A recipe for batches: how the samples of a window, or of a whole set, are cut into batches.

    A subclass defines one method, `cut`. Random access, dealing, resume and states then work.

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
    """Batches of a group, which cost alike; None for the number of ranks at the first start."""
    num_batches: int | None = None
    """Batches in an epoch at most; None for all."""
    count_multiple: int = 1
    """If batches are halved, the number of samples in a batch stays a multiple of it."""
    can_be_split: ClassVar[bool] = True
    """Whether a part of a batch is a batch too: only then the tail `split` of a loader is allowed."""

    @abstractmethod
    def cut(self, ids: Ids, lengths: Ids, context: WindowContext) -> Sequence[Ids]:
        """Cuts a window into batches.

        Args:
            ids: of the samples of the window, in their order; int64 of shape (m,).
            lengths: of these samples, int64 of shape (m,), or (m, 2) for pairs; 1 for each if the recipe has
                no lengths.
            context: the epoch, the window and keys for randomness.

        Returns:
            One int64 array per batch: places in the window, each in [0, m) and none twice. Expensive batches
            come first, since neighbours are read in one step.
        """

    def prepared(self, dataset: Any, chosen: SampleSet | None, abreast: int, kept: TableCache) -> Prepared:
        """Computes what is the same in all epochs, and checks the lengths.

        Args:
            dataset: the dataset.
            chosen: the set that the chain reads whole in each epoch; None if it reads none.
            abreast: batches of a group.
            kept: the cache of tables of large sets.
        """
        measure = Measure() if self.lengths is None else Measure(find_lengths(self.lengths, dataset, kept))
        return Prepared(measure)

    def evened(self, abreast: int, batches: list[Ids], ids: Ids, lengths: Ids, count: int) -> list[Ids]:
        """Makes more batches of a window, so that their number is a multiple of `abreast`.

        The base halves the largest ones.

        Args:
            abreast: batches of a group.
            batches: from `cut`.
            ids: of the samples of the window, int64 of shape (m,).
            lengths: of these samples.
            count: the number of batches to make, fewer than `abreast` more than there are.
        """
        return halved(batches, count, self.count_multiple)

    def _cut_window(
        self, measure: Measure, ids: Ids, context: WindowContext, in_whole_groups: bool
    ) -> BatchSamples:
        """Cuts a window by `cut`, and if required its batches by `evened` into whole groups."""
        lengths = measure.counted(ids)
        batches = checked_cut(self.cut(ids, lengths, context), ids.size)
        if in_whole_groups:
            count = -(-len(batches) // context.abreast) * context.abreast
            batches = self.evened(context.abreast, batches, ids, lengths, count)
        places = np.concatenate(batches) if batches else ids[:0]
        return BatchSamples(ids[places], places, edges_of(np.array([*map(len, batches)], dtype=np.int64)))

    @property
    def needs_loader(self) -> bool:
        """Whether batches are more than ids, so that only a `Loader` can read them."""
        return False

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments that differ from their defaults, except lengths, keys, labels and `abreast`.

        For a class that is not a dataclass, arguments are its attributes with numbers, strings or arrays
        whose names do not begin with an underscore.
        """
        recipe: Any = self
        if is_dataclass(recipe):
            defaults = {argument.name: argument.default for argument in fields(recipe)}
        else:
            given = {name: getattr(self, name) for name in (*_SHARED_NAMES, *vars(self)) if name[0] != "_"}
            defaults = {name: getattr(BatchRecipe, name, None) for name in given if is_plain(given[name])}
        values = {name: getattr(self, name) for name in defaults if name not in _NOT_ARGUMENTS}
        return {name: value for name, value in values.items() if not is_default(value, defaults[name])}

    @final
    @property
    def words(self) -> str:
        """The description of the recipe in a state: the id of the rule and the arguments."""
        return describe(f"{RULE}: {class_name(type(self))}", self.arguments())

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
        """Returns the plans of all epochs of a run.

        Args:
            sampler: the outermost one of the chain.
            dataset: a dataset, a `Layout`, or a number of samples.
            constants: that the first start of the run fixed; None if this is the first start.
            abreast: of a saved state; None for that of the recipe, or the number of ranks at the first start.
            folder: for tables of large sets; None for the user's cache folder.

        Raises:
            ArgumentTypeError: `sampler` is not a sampler.
            DatasetError: the lengths do not fit the dataset, or there are none.
            ArgumentRangeError: a sample is above the budget, or `num_samples` would cut a set.
        """
        if not isinstance(sampler, Sampler):
            raise ArgumentTypeError("sampler", "must be a sampler", sampler)
        constants = sampler.chain.constants() if constants is None else constants
        width = constants.lanes if self.abreast is None else self.abreast
        width = arguments.positive("abreast", width if abreast is None else abreast, MAX_ABREAST)
        return Plans(self, sampler, dataset, constants, width, TableCache(folder))

    @final
    def plan(
        self, sampler: Sampler, dataset: Any, epoch: int = 0, *, constants: RunConstants | None = None
    ) -> BatchPlan:
        """Returns the plan of one epoch: `over(sampler, dataset).plan(epoch)`.

        Args:
            sampler: the outermost one of the chain.
            dataset: a dataset, a `Layout`, or a number of samples.
            epoch: from 0.
            constants: that the first start of the run fixed; None if this is the first start.

        Raises:
            DatasetError: the lengths do not fit the dataset, or there are none.
            ArgumentRangeError: a sample is above the budget, or `num_samples` would cut a set.
        """
        return self.over(sampler, dataset, constants=constants).plan(epoch)


@dataclass(eq=False, repr=False)
class Plans:
    """The plans of all epochs of a run. What they have in common is computed once.

    Args:
        recipe: how batches are cut.
        sampler: the outermost one of the chain.
        dataset: the dataset.
        constants: that the first start of the run fixed.
        abreast: batches of a group.
        kept: the cache of tables of large sets.
    """

    recipe: BatchRecipe
    sampler: Sampler
    dataset: Any
    constants: RunConstants
    abreast: int
    kept: TableCache

    def __post_init__(self) -> None:
        sampler = self.sampler
        self._seed = seed_of(sampler)
        # A ledger has the plan of the chain that it edits, so that a state fits both.
        child = sampler.get_child() if sampler.reads_a_stream else None
        chosen = find_set(child or sampler, self.dataset)
        self._prepared = self.recipe.prepared(self.dataset, chosen, self.abreast, self.kept)
        if sampler.reads_a_stream and self._prepared.plan is not None:
            problem = "over a whole set have no windows, but edits are made between windows"
            raise NotSupportedError("batches", problem, self.recipe, hint="use window= in the recipe")
        self.measure = self._prepared.measure
        self._window_size = self.recipe.window or self._prepared.window
        if chosen is not None and self._prepared.plan is not None:
            require_uncut(sampler, chosen.size)
        self.window = None if self._prepared.plan else self._window_size

    @cached_property
    def digest(self) -> str | None:
        """The digest of the lengths, or of the keys or labels; None for a recipe without them."""
        measure, labels = self.measure, self._prepared.labels
        if labels is not None:
            return short_digest(repr(labels.tolist()).encode())
        if measure.keys is not None:
            keys, numbers = measure.keys
            return short_digest(f"{numbers.digest} {keys!r}".encode())
        return None if measure.lengths is None else measure.lengths.digest

    def plan(self, epoch: int, known: tuple[int, int] = (0, 0)) -> BatchPlan:
        """Returns the plan of an epoch.

        Args:
            epoch: from 0.
            known: a window and the number of batches before it, from a saved state (`BatchPlan.window_of`):
                the plan then does not cut the windows before it to count their batches.

        Raises:
            StateError: there is no such window.
        """
        epoch = arguments.epoch(epoch)
        context = WindowContext(epoch, 0, self._seed, self.abreast)
        common = self.measure, self.abreast, self.recipe.num_batches
        groups_key = context.key("batch groups")
        if self._prepared.plan is not None:
            return self._prepared.plan(*common, (context.key("batch members"), groups_key))
        order = self.sampler.undealt_order(self.dataset, epoch, constants=self.constants)
        size = self._window_size
        window, before = known
        limit = window * size * self.measure.max_parts
        if not (0 <= window <= -(-len(order) // size) and 0 <= before <= limit):
            raise StateError("window", "is not in this epoch", list(known))
        key = groups_key if shuffles(self.sampler) else None
        cut = partial(self.recipe._cut_window, self.measure)
        return WindowPlan(*common, order, size, cut, context, key, known)

    def read_by(self, sampler: Sampler) -> Plans:
        """Returns the plans for another sampler of the same dataset: a ledger with one more edit."""
        plans = copy.copy(self)
        plans.sampler = sampler
        return plans
