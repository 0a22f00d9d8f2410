"""Several datasets mixed by weights, or in proportion to their sizes: by dice, or by a schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, Literal, final, get_args

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
from samplerkit.order.arguments import LARGEST
from samplerkit.order.keys import ALGORITHM, DICE_ALGORITHM, OURS
from samplerkit.order.layout import Layout
from samplerkit.order.mixture import Mixed, Stop, mixture_length
from samplerkit.order.once import once
from samplerkit.order.order import Order
from samplerkit.order.schedule import LONGEST_PERIOD, Schedule, schedule_of
from samplerkit.order.streams import Stream
from samplerkit.samplers.algorithm import checked_algorithm
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.by_dice import Blend, require_source
from samplerkit.samplers.context import Context
from samplerkit.samplers.mixed_parts import part_of

PassesOver = Literal["run_on", "restart"]
"""What becomes of sources at the end of an epoch: they go on, or begin anew."""

_LARGEST_DENOMINATOR = 10**6
_ROUNDED = 1 << 30


@final
class MixtureSampler(Sampler):
    """Mixes several datasets by weights: the parts of a tree, each read by a sampler of its own.

    Every position throws a die, and the weights say how it is read: any ranks and any batches read a source
    as evenly as independent draws at least, and each lane is within a few samples of its share for ever. A
    source that is read to its end begins anew, in another order. In place of `sources`, a list of weights
    mixes the files of a layout by the schedule of `samplerkit-1`, with exact counts at every prefix.

    Args:
        sources: a sampler for each part, by name, mixtures among them; None for all of its samples. Parts
            that are not named are not read. Or a list, tuple or array of weights.
        num_samples: how many samples an epoch has; None and 0 mean until `stop`.
        weights: the share of each source, by name; any real numbers. None means in proportion to the sizes.
        shuffle: whether sources given as None are read in a random order.
        passes: `run_on`: sources go on where the epoch before left them; `restart`: each epoch begins them
            anew, so that samples which a fixed order has last may never come. Only with `sources`.
        stop: `first` ends before a source would begin anew; `all` once each was read to its end, in the
            first epoch, whose length the others have. `once` reads each sample once an epoch, in proportion
            to the sizes.
        lanes: into how many lanes the mixture is woven, and the sources with it; None for the number of
            shards at the first start, so that each reads its own files. Only with `sources`.
        seed: the seed of the order, in [0, 2^64).
        algorithm: the id of the algorithm; `samplerkit-2` reads a list of weights by dice as well.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: `num_samples` or `seed` is negative; `passes`, `stop` or `algorithm` is not known;
            weights are not those of the sources; or an argument does not go with a list.
        ArgumentRangeError: `weights` is empty, all zero, or holds a negative, NaN or infinite one; or, when
            the order is asked for, the mixture is longer than 2^62.
        CompositionError: a source is distributed, a ledger, or of an algorithm that replays another package.
        DatasetError: when the order is asked for: the dataset has no such parts, others than weights, an
            empty one of positive weight, or a source whose passes differ in length.

    Example:
        >>> corpus = Layout.tree({"web": Layout([5000, 7000]), "code": 3000})
        >>> mix = MixtureSampler({"web": None, "code": None}, weights={"web": 0.75, "code": 0.25}, seed=7)
        >>> ids = mix.order(corpus)[:4096]
        >>> (ids < 12000).mean()
        np.float64(0.75)
        >>> layout = Layout([6000, 6000])
        >>> np.bincount(layout.file_of(MixtureSampler([0.75, 0.25]).order(layout)[:100]))
        array([75, 25])
    """

    def __init__(
        self,
        sources: Mapping[str, Sampler | None] | Sequence[float] | np.ndarray[Any, Any] | None = None,
        num_samples: int | None = None,
        *,
        weights: Mapping[str, float] | Sequence[float] | np.ndarray[Any, Any] | None = None,
        shuffle: bool = True,
        passes: str = "run_on",
        stop: str = "first",
        lanes: int | None = None,
        seed: int = 0,
        algorithm: str = ALGORITHM,
    ) -> None:
        super().__init__(num_samples)
        self.sources: Final = _sources(sources)
        listed = sources if self.sources is None else None
        if listed is not None and weights is not None:
            raise ArgumentValueError("weights", "are given twice", weights, mend="give them once")
        self.weights: Final = _weights(self.sources, weights if listed is None else listed)
        self.shuffle: Final = arguments.boolean("shuffle", shuffle)
        self.passes: Final = arguments.choice("passes", passes, get_args(PassesOver))
        self.stop: Final = arguments.choice("stop", stop, (*get_args(Stop), "once"))
        self.lanes: Final = arguments.lanes(lanes)
        self.seed: Final = arguments.seed(seed)
        checked = checked_algorithm(algorithm, self)
        if checked not in OURS:
            raise NotSupportedError("algorithm", "knows no mixtures", checked, mend=f"use {ALGORITHM}")
        self.algorithm: Final = checked if self.sources is None else DICE_ALGORITHM
        self._check_fits()

    def _check_fits(self) -> None:
        if not self.is_by_dice:
            for name, value, default in (("passes", self.passes, "run_on"), ("lanes", self.lanes, None)):
                if value != default:
                    mend = "give sources by name, or algorithm='samplerkit-2'"
                    raise ArgumentValueError(name, "does not go with a list of weights", value, mend=mend)
            if self.stop == "once":
                mend = "leave stop and weights out: each sample comes once then"
                raise ArgumentValueError("stop", "is for sources by name", self.stop, mend=mend)
        elif self.stop == "once" and self.weights is not None:
            mend = "leave weights out: the sizes are the weights"
            raise ArgumentValueError(
                "stop", "reads each sample once, whatever weights say", "once", mend=mend
            )

    @property
    def is_by_dice(self) -> bool:
        """Whether positions throw dice; else they follow the schedule of `samplerkit-1`."""
        return self.algorithm == DICE_ALGORITHM

    def branches(self) -> dict[str, Sampler]:
        """Gives the samplers of the sources, by name and sorted."""
        given = self.sources or {}
        return {name: sampler for name in sorted(given) if (sampler := given[name]) is not None}

    def arguments(self) -> dict[str, Any]:
        """Gives the constructor's arguments by name, as they were understood."""
        given = super().arguments()
        if self.sources is None:
            del given["sources"]
        if not self.is_by_dice:
            # What a mixture by a schedule has: saved states name these.
            del given["passes"], given["lanes"]
            given = {"weights": given.pop("weights"), **given}
        return given

    def lane_count(self, layout: Layout, run_lanes: int) -> int:
        if not self.is_by_dice:
            return 1
        return run_lanes if self.lanes is None else self.lanes

    def looks_at(self, dataset: Any) -> dict[str, Any]:
        """Gives what samplers of sources look at in their parts."""
        return {
            f"{name}/{looked}": value
            for name, branch in self.branches().items()
            for link in branch._links()
            for looked, value in link.looks_at(part_of(dataset, name)).items()
        }

    def stream(
        self, layout: Layout, context: Context, added: Mapping[str, Sampler | None] = MappingProxyType({})
    ) -> Stream | None:
        """Gives the stream of which the epochs are parts; None where each epoch begins anew."""
        if not self.is_by_dice:
            return None
        blend = Blend(self, layout, context, added=added)
        return None if blend.restarts else blend.mix

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        if self.is_by_dice:
            return Blend(self, layout, context).order
        if not layout.has_files:
            raise DatasetError("dataset", "has no parts to mix", layout, mend="give a ConcatDataset")
        schedule = self._schedule(layout)
        empty = np.flatnonzero((schedule.weights > 0) & (layout.sizes == 0))
        if empty.size:
            raise DatasetError("weights", "give a share to an empty source", int(empty[0]))
        length = self.num_samples or mixture_length(schedule, layout, self.stop)
        if length > LARGEST:
            raise ArgumentRangeError(
                "num_samples", "must be at most 2^62", length, mend="say a smaller one, and more epochs"
            )
        key = context.key(self.seed, "mixture") if self.shuffle else None
        return Mixed(layout, schedule, length, key)

    def _schedule(self, layout: Layout) -> Schedule:
        if not isinstance(self.weights, np.ndarray):
            if not len(layout):
                raise DatasetError("dataset", "holds no samples to mix", layout)
            shares = _smallest(layout.sizes.tolist())
            if sum(shares) > LONGEST_PERIOD:
                raise DatasetError(
                    "dataset",
                    f"has sizes which, without a common divisor, add up to more than {LONGEST_PERIOD}",
                    sum(shares),
                    mend="give weights",
                )
            return schedule_of(shares)
        if self.weights.size != layout.num_files:
            raise DatasetError(
                "weights", f"must be one for each of the {layout.num_files} sources", self.weights.size
            )
        return schedule_of(self._shares)

    @once
    def _shares(self) -> list[int]:
        """The weights as the smallest integers in their ratio."""
        given = self.weights.tolist() if isinstance(self.weights, np.ndarray) else []
        fractions = [Fraction(weight).limit_denominator(_LARGEST_DENOMINATOR) for weight in given]
        common = math.lcm(*(fraction.denominator for fraction in fractions))
        shares = _smallest([int(fraction * common) for fraction in fractions])
        # A weight below a part in the largest denominator would lose its digits there, or all of itself.
        is_coarse = any(0 < weight * _LARGEST_DENOMINATOR < 1 for weight in given)
        if not is_coarse and sum(shares) <= LONGEST_PERIOD:
            return shares
        # Scaled by a power of two, which rounds nothing, so that the sum is a double too.
        _, exponent = math.frexp(max(given))
        scaled = [math.ldexp(weight, -exponent) for weight in given]
        total = math.fsum(scaled)
        rounded = [round(weight / total * _ROUNDED) for weight in scaled]
        pairs = zip(given, rounded, strict=True)
        return _smallest([max(1, share) if weight else 0 for weight, share in pairs])


def _sources(given: Any) -> dict[str, Sampler | None] | None:
    """Takes sources by name; None where there are none, or a list of weights."""
    if not isinstance(given, Mapping):
        return None
    if not given:
        raise ArgumentValueError("sources", "must not be empty", given)
    for name, sampler in given.items():
        if not isinstance(name, str):
            raise ArgumentTypeError("sources", "must have names that are strings", name)
        if sampler is not None and not isinstance(sampler, Sampler):
            raise ArgumentTypeError(f"sources.{name}", "must be a sampler or None", sampler)
        if sampler is not None:
            require_source(f"sources.{name}", sampler)
            if sampler.chain_algorithm not in OURS:
                problem = f"has another algorithm than the mixture, {DICE_ALGORITHM}"
                raise CompositionError(f"sources.{name}", problem, sampler.chain_algorithm)
    return dict(given)


def _weights(sources: Any, given: Any) -> Any:
    """Takes weights: by name for sources by name, else an array."""
    if given is None:
        return None
    if sources is None:
        return arguments.weights(given)
    if not isinstance(given, Mapping):
        raise ArgumentTypeError("weights", "must be a mapping of names, as sources are", given)
    for name in given:
        if name not in sources:
            known = ", ".join(sources)
            raise ArgumentValueError("weights", "name no source", name, mend=f"sources: {known}")
    for name in sources:
        if name not in given:
            raise ArgumentValueError("weights", "lack a source", name, mend="say 0 to leave it out")
    return dict(zip(given, arguments.weights(list(given.values())).tolist(), strict=True))


def _smallest(numbers: list[int]) -> list[int]:
    divisor = math.gcd(*numbers)
    return [number // divisor for number in numbers]
