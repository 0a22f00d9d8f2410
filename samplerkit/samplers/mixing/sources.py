"""The sources of a mixture: parts of a tree, or files; their passes and lengths; the checks of arguments."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, CompositionError, DatasetError
from samplerkit.order import arguments
from samplerkit.order.caching import Latest
from samplerkit.order.dataset_protocol import find_column
from samplerkit.order.keys import ALGORITHM, Key
from samplerkit.order.layout import Layout
from samplerkit.order.mixing.streams import Passes
from samplerkit.order.modes import Shuffle
from samplerkit.order.order import Order
from samplerkit.order.sequences import Permuted
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler, plain
from samplerkit.samplers.chain import RunConstants
from samplerkit.samplers.repeat import RepeatSampler
from samplerkit.samplers.shuffled import RandomSampler
from samplerkit.samplers.subset import SequentialSampler, SubsetRandomSampler

_CHUNK = 1 << 20
_MAX_SOURCES = 1024


def parts_of(dataset: Any) -> dict[str, Any]:
    """Returns the parts of a tree by name: datasets where these are known, else their layouts."""
    layouts, parts = Layout.of(dataset).parts, getattr(dataset, "parts", None)
    datasets = parts if isinstance(parts, Mapping) else {}
    return {name: datasets.get(name, part) for name, part in layouts.items()}


def mixed_parts(sources: Mapping[str, Any] | None, layout: Layout, dataset: Any) -> dict[str, Any]:
    """Returns the sources by name, in the order of ids: the parts of a tree, or files.

    Raises:
        DatasetError: there are no parts, or not the given ones.
    """
    if sources is None:
        if not layout.has_files:
            raise DatasetError("dataset", "has no parts to mix", layout, hint="give a ConcatDataset")
        return {str(number): Layout(size) for number, size in enumerate(layout.sizes.tolist())}
    parts = parts_of(dataset) if layout.parts else {}
    if not parts:
        hint = "give a TreeDataset, or Layout.tree({name: ...})"
        raise DatasetError("dataset", "has no parts with names", layout, hint=hint)
    require_known("sources", sources, parts, "name no part of the dataset", DatasetError)
    return parts


@dataclass(frozen=True, eq=False)
class EpochOrders:
    """The orders of a sampler, epoch after epoch: the passes over a source.

    Args:
        sampler: the outermost link of its chain.
        dataset: what it reads.
        constants: the lanes, and its place in a tree of mixtures.
        first: the epoch of pass 0.
        step: how many epochs later each further pass is.
    """

    sampler: Sampler
    dataset: Any
    constants: RunConstants
    first: int = 0
    step: int = 1

    def __call__(self, number: int) -> Order:
        epoch = self.first + number * self.step
        return self.sampler.undealt_order(self.dataset, epoch, constants=self.constants)

    @property
    def woven(self) -> int:
        """Into how many lanes each order is woven."""
        return self.sampler.chain.woven_lanes(self.dataset, self.constants)

    @property
    def is_of_fixed_set(self) -> bool:
        """Whether each pass has the same samples, equally often."""
        inner_size, is_listed = len(Layout.of(self.dataset)), True
        for link in self.sampler._links()[::-1]:
            size = len(link.undealt_order(self.dataset))
            is_of_list = is_listed and (link.is_fixed or isinstance(link, SubsetRandomSampler))
            if not is_of_list and not reads_all(link, inner_size, size):
                return False
            inner_size, is_listed = size, is_listed and link.is_fixed
        return True

    @property
    def _identity(self) -> tuple[object, ...]:
        return self.constants, self.first, self.step

    @property
    def _contents(self) -> object:
        """The chain, and the data of the dataset that it uses.

        A user's class may hold more than its arguments, so that it is equal to itself only.
        """
        if any(link.is_foreign for link in self.sampler._tree()):
            return id(self.sampler), id(self.dataset)
        data = [link.looks_at(self.dataset) for link in self.sampler._links()]
        return Layout.of(self.dataset), plain([self.sampler, data], "source")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EpochOrders) or self._identity != other._identity:
            return False
        # Of the same objects, long lists of ids need not be compared.
        is_same = self.sampler is other.sampler and self.dataset is other.dataset
        return is_same or self._contents == other._contents

    def __hash__(self) -> int:
        return hash(self._identity)


@dataclass(frozen=True)
class ShuffledPart:
    """The orders of a source without a sampler: all samples of the part, shuffled again in each pass.

    Args:
        size: of the part.
        seed: of the orders.
        first: the epoch of pass 0.
        step: how many epochs later each further pass is.
    """

    size: int
    seed: int
    first: int
    step: int
    woven: ClassVar[int] = 1

    def __call__(self, number: int) -> Order:
        epoch = arguments.epoch(self.first + number * self.step)
        return Permuted(self.size, Key(self.seed, epoch, 0, Shuffle.GLOBAL.value))


class PartLengths:
    """The lengths of the samples of the parts of a dataset, in tokens.

    Args:
        dataset: with `lengths` or `length`, an attribute or a column, where its parts have none; it is kept,
            so that no other object gets its id().
        parts: datasets or layouts by name, in the order of ids.

    Attributes:
        totals: the tokens of each part, -1 where there are no lengths.

    Raises:
        DatasetError: they are not one whole number for each sample, or negative.
    """

    def __init__(self, dataset: Any, parts: Mapping[str, Any]) -> None:
        self.dataset: Final = dataset
        self._lengths: Final = dict[str, Ids | None]()
        self._means: Final = Latest[float](_MAX_SOURCES)
        is_tree, begin = isinstance(getattr(dataset, "parts", None), Mapping), 0
        column = None if is_tree else find_column(dataset, "lengths", "length")
        for name, part in parts.items():
            end, own = begin + len(Layout.of(part)), find_column(part, "lengths", "length")
            given = own[1] if own else column and column[1][begin:end]
            self._lengths[name] = None if given is None else _checked_lengths(name, given, end - begin)
            begin = end
        self.totals: Final = {
            name: -1 if arr is None else int(arr.sum(dtype=np.int64)) for name, arr in self._lengths.items()
        }

    def mean(self, name: str, passes: Passes) -> float | None:
        """Returns the mean number of tokens of the samples of a source; None of a part without lengths.

        Args:
            name: of the source.
            passes: over it, without edits; the first one counts.
        """
        lengths = self._lengths[name]
        if lengths is None:
            return None
        sampler = getattr(passes.orders, "sampler", None)
        if sampler is None or (sampler._child is None and reads_all(sampler, lengths.size, passes.length)):
            return self.totals[name] / max(1, lengths.size)
        return self._means.get((name, passes.orders), partial(_mean, lengths, passes))

    def mean_of_draws(self, name: str, passes: Passes) -> float:
        """Returns the mean number of tokens of the samples of a source that has a share of them.

        Raises:
            DatasetError: the part has no lengths, or no tokens.
        """
        mean = self.mean(name, passes)
        if mean is None:
            hint = "give the dataset lengths, or divide each weight by the mean tokens of a sample"
            problem = "are shares of tokens, but a source has no lengths"
            raise DatasetError("weights", problem, name, hint=hint)
        if not mean:
            raise DatasetError("weights", "give a share of the tokens to a source without any", name)
        return mean


def _mean(lengths: Ids, passes: Passes) -> float:
    total = sum(int(lengths[ids].sum(dtype=np.int64)) for ids in passes.order(0).chunks(_CHUNK))
    return total / max(1, passes.length)


def reads_all(link: Sampler, size: int, length: int) -> bool:
    """Returns whether a sampler reads all of `size` samples equally often, in an order of some length."""
    if not isinstance(link, RandomSampler | RepeatSampler | SequentialSampler):
        return False
    return length == size * getattr(link, "repeats", 1) and not getattr(link, "replacement", False)


def _checked_lengths(name: str, given: Any, size: int) -> Ids:
    lengths = np.asarray(given)
    if lengths.shape != (size,) or lengths.dtype.kind not in "iu":
        problem = f"must be {size} whole numbers, one for each sample"
        raise DatasetError(f"lengths of {name}", problem, (lengths.shape, str(lengths.dtype)))
    if size and not 0 <= int(lengths.min()) <= int(lengths.max()) < arguments.LARGEST // size:
        problem = f"must be in [0, {arguments.LARGEST // size})"
        raise DatasetError(f"lengths of {name}", problem, (int(lengths.min()), int(lengths.max())))
    return lengths


def require_undealt(
    place: str, sampler: Sampler, reader: str, hint: str = "put it above, or leave it out"
) -> None:
    """Refuses a distributed sampler below a sampler that reads the order of all ranks.

    Raises:
        CompositionError: a distributed sampler is in the chain.
    """
    if sampler.chain.deal is not None:
        problem = f"holds a distributed sampler, but {reader} reads for all ranks together"
        raise CompositionError(place, problem, sampler, hint=f"{hint}: a loader deals to the ranks")


def require_source(place: str, sampler: Any) -> None:
    """Refuses a sampler that cannot be a source of a mixture; None means all samples of a part.

    Raises:
        ArgumentTypeError: it is not a sampler.
        CompositionError: it is distributed, a ledger, or of another algorithm.
    """
    if sampler is None:
        return
    if not isinstance(sampler, Sampler):
        raise ArgumentTypeError(place, "must be a sampler or None", sampler)
    require_undealt(place, sampler, "a mixture")
    if any(link.reads_a_stream for link in sampler._tree()):
        hint = "put a ledger above the whole mixture"
        raise CompositionError(place, "is a ledger, and that is the outermost sampler", sampler, hint=hint)
    if sampler.chain.algorithm != ALGORITHM:
        problem = f"has another algorithm than a mixture, {ALGORITHM}"
        raise CompositionError(place, problem, sampler.chain.algorithm)


def require_known(place: str, given: Any, known: Any, problem: str, error: Any = ArgumentValueError) -> None:
    """Refuses names that are not among the known ones."""
    for name in given:
        if name not in known:
            raise error(place, problem, name, hint=f"known: {', '.join(known)}")


def require_shares(place: str, shares: Collection[str], sources: Collection[str]) -> None:
    """Refuses weights that are not those of the sources.

    Raises:
        ArgumentValueError: they name no source, or lack one.
    """
    require_known(place, shares, sources, "name no source of the mixture")
    for name in sources:
        if name not in shares:
            raise ArgumentValueError(place, "lack a source", name, hint="use 0 to leave it out")


def checked_sources(place: str, given: Mapping[str, Any]) -> dict[str, Sampler | None]:
    """Validates sources by name, at least one, and returns a copy."""
    if not given:
        raise ArgumentValueError(place, "must not be empty", given)
    for name, sampler in given.items():
        require_source(f"{place}.{arguments.text(place, name)}", sampler)
    return dict(given)


def named_weights(place: str, given: Mapping[str, Any]) -> dict[str, float]:
    """Validates weights by name, and returns them as floats."""
    return dict(zip(given, arguments.weights(place, list(given.values())).tolist(), strict=True))


def checked_weights(sources: Any, given: Any) -> Any:
    """Validates weights: by name if the sources have names, else an array."""
    if given is None:
        return None
    if sources is None and isinstance(given, Mapping):
        hint = "name the sources too, as in sources={name: None}"
        raise ArgumentTypeError("weights", "have names, but the sources have none", given, hint=hint)
    if sources is None:
        return arguments.weights("weights", given)
    if not isinstance(given, Mapping):
        raise ArgumentTypeError("weights", "must be a mapping of names, as sources are", given)
    require_shares("weights", given, sources)
    return named_weights("weights", given)


def checked_caps(given: Any, mixture: Any) -> dict[str, int] | None:
    """Validates the most passes over each source, by name or number of a file; returns them by name.

    Args:
        given: None for none.
        mixture: whose other arguments are checked.

    Raises:
        ArgumentTypeError: no mapping of names, or of numbers of files, to integers.
        ArgumentValueError: a name of no source; or no run counts passes, or an epoch's length would depend on
            them.
        ArgumentRangeError: below 1.
        CompositionError: a source is a mixture.
    """
    if not isinstance(given, Mapping | None):
        raise ArgumentTypeError("max_passes", "must be numbers of passes by the names of sources", given)
    if not given:
        return None
    caps = dict[str, int]()
    for source, passes in given.items():
        name = source if isinstance(source, str) else str(arguments.integer("max_passes", source))
        caps[name] = arguments.positive(f"max_passes.{name}", passes)
    if mixture.sources or mixture.weights is not None:
        known = mixture.sources or [*map(str, range(len(mixture.weights)))]
        require_known("max_passes", caps, known, "names no source of the mixture")
    for name, branch in mixture.branches().items():
        if name in caps and any(hasattr(link, "max_passes") for link in branch._links()):
            problem = "is for a mixture, whose own sources count passes"
            raise CompositionError(f"max_passes.{name}", problem, hint="cap its sources")
    if mixture.passes == "restart":
        hint = "use passes='run_on'"
        raise ArgumentValueError("max_passes", "has no meaning where epochs restart", hint=hint)
    if mixture.stop == "once" or (mixture.stop == "all" and not mixture.num_samples):
        problem = "cannot be combined with caps on passes"
        raise ArgumentValueError("stop", problem, mixture.stop, hint="use num_samples, and stop='first'")
    return caps
