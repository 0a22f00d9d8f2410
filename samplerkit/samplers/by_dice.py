"""A mixture by dice at its place in a tree: its sources, how long its epochs are, and the order of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol, final

import numpy as np

from samplerkit.errors import ArgumentRangeError, CompositionError, DatasetError
from samplerkit.order.arguments import LARGEST
from samplerkit.order.deal import limited
from samplerkit.order.dice import Dice
from samplerkit.order.keys import Key, path_number
from samplerkit.order.layout import Layout
from samplerkit.order.once import once
from samplerkit.order.once_each import OnceEach
from samplerkit.order.order import PASS_BITS, Order
from samplerkit.order.part import Part
from samplerkit.order.sequences import Permuted, Range
from samplerkit.order.streams import Mix, Passes, Stream
from samplerkit.order.turns import Turns
from samplerkit.order.typing import Ids
from samplerkit.order.weights import thresholds
from samplerkit.samplers.alike import read_alike
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.context import Context, RunConstants
from samplerkit.samplers.mixed_parts import mixed_parts

_EPOCHS = 1 << PASS_BITS
"""Where passes restart, pass t of epoch e is the source's epoch e + t * 2^40, which no other pass is."""


class Mixture(Protocol):
    """What is asked of a mixture sampler."""

    @property
    def sources(self) -> Mapping[str, Sampler | None] | None:
        """The samplers by name; None where the files are mixed."""

    @property
    def weights(self) -> Any:
        """By name, or one for each file; None for the sizes."""

    @property
    def shuffle(self) -> bool:
        """Whether sources without a sampler are shuffled."""

    @property
    def passes(self) -> str:
        """What becomes of sources at the end of an epoch."""

    @property
    def stop(self) -> str:
        """When an epoch ends."""

    @property
    def seed(self) -> int:
        """Of the dice."""

    num_samples: int | None

    def lane_count(self, layout: Layout, run_lanes: int) -> int:
        """Tells into how many lanes the sampler weaves its order."""


@final
@dataclass(frozen=True, eq=False)
class MixedSource:
    """One source of a mixture, at its place in the tree.

    Args:
        given: its sampler; None for all samples, by the mixture's seed and the source's path.
        mixture: what reads it.
        context: where it is read: the part's dataset, the path, and the lanes of the mixture.
        restarts: whether it begins anew in each epoch of the run, which is the context's.
    """

    given: Sampler | None
    mixture: Mixture
    context: Context
    restarts: bool

    @property
    def place(self) -> str:
        """Where it stands, for errors."""
        return f"source {'.'.join(self.context.path)}"

    @once
    def nested(self) -> Blend | None:
        """The mixture that it is, if that goes on from pass to pass as a stream of its own."""
        sampler: Any = self.given
        if not getattr(sampler, "is_by_dice", False) or sampler.get_child() is not None:
            return None
        if sampler.stop == "once" or (sampler.passes == "restart" and not self.restarts):
            return None
        return Blend(sampler, Layout.of(self.context.dataset), self.context, restarts=self.restarts)

    @once
    def stream(self) -> Stream:
        """What the mixture reads."""
        if self.nested is not None:
            return self.nested.mix
        return Passes(self, self.context.lanes, self.place, woven=self._woven)

    @property
    def _woven(self) -> int:
        """Into how many lanes the order of a pass is woven."""
        if self.given is None:
            return 1
        return self.given.woven_lanes(self.context.dataset, RunConstants(self.context.lanes))

    @property
    def size(self) -> int:
        """How many samples a pass has."""
        if self.nested is not None:
            return self.nested.length
        return self.stream.length if isinstance(self.stream, Passes) else 0

    @once
    def _seed(self) -> int:
        """By which a RandomSampler would read the same, where no sampler is given."""
        key = Key(self.mixture.seed, 0, 0, "source")
        return int(key.words(1, path_number(self.context.path))[0])

    def __call__(self, number: int) -> Order:
        """Gives the order of a pass."""
        epoch = self.context.epoch + number * _EPOCHS if self.restarts else number
        if self.given is None:
            size = len(Layout.of(self.context.dataset))
            if self.mixture.shuffle:
                return Permuted(size, Key(self._seed, epoch, 0, "global"))
            return Range(0, size)
        require_source(self.place, self.given)
        constants = RunConstants(self.context.lanes, path=self.context.path)
        return self.given.undealt_order(self.context.dataset, epoch, constants=constants)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MixedSource):
            return NotImplemented
        if (self.restarts, self._said) != (other.restarts, other._said):
            return False
        return read_alike(self.given, self.context.dataset, other.given, other.context.dataset)

    @property
    def _said(self) -> tuple[object, ...]:
        return replace(self.context, dataset=None), self.mixture.seed, self.mixture.shuffle

    def __hash__(self) -> int:
        return hash(self.context.path)


@final
class Blend:
    """A mixture by dice, at its place in the tree.

    Args:
        mixture: the sampler.
        layout: what it mixes: the parts of a tree, or, where sources have no names, the files.
        context: its place and the epoch.
        restarts: whether a mixture above it begins it anew in each epoch.
        added: further parts, of weight 0, and the sampler of each.

    Raises:
        DatasetError: there are no parts, or no such ones, or no samples.
    """

    def __init__(
        self,
        mixture: Mixture,
        layout: Layout,
        context: Context,
        *,
        restarts: bool = False,
        added: Mapping[str, Sampler | None] = MappingProxyType({}),
    ) -> None:
        self._mixture = mixture
        self._layout = layout
        self._context = context
        self._given_restarts = restarts
        self.restarts = restarts or mixture.passes == "restart" or mixture.stop == "once"
        self.lanes = mixture.lane_count(layout, context.lanes)
        # What reads each sample once has no further passes, which would be those of other epochs.
        if self.restarts and mixture.stop != "once" and context.epoch >= _EPOCHS:
            problem = "must be below 2^40 where sources begin anew in each epoch"
            raise ArgumentRangeError("epoch", problem, context.epoch)
        epoch = context.epoch if self.restarts else 0
        self._key = Key(mixture.seed, epoch, context.depth, "dice")
        parts = mixed_parts(mixture.sources, layout, context.dataset)
        given = mixture.sources
        samplers = {**(given or {}), **added}
        self.sources = [
            MixedSource(
                samplers.get(name),
                mixture,
                Context(epoch, 0, self.lanes, part, path=(*context.path, name)),
                self.restarts,
            )
            for name, part in parts.items()
        ]
        self._is_read = [given is None or name in given for name in parts]
        self._names = list(parts)
        self._starts: Ids = np.cumsum([0, *(len(Layout.of(part)) for part in parts.values())], dtype=np.int64)

    @once
    def weights(self) -> list[float]:
        """The weight of each part, in the order of ids; 0 for one that is no source."""
        given = self._mixture.weights
        if isinstance(given, Mapping):
            weights = [given.get(name, 0) for name in self._names]
        elif given is None:
            pairs = zip(self.sources, self._is_read, strict=True)
            weights = [source.size if is_read else 0 for source, is_read in pairs]
        elif given.size != len(self._names):
            problem = f"must be one for each of the {len(self._names)} sources"
            raise DatasetError("weights", problem, given.size)
        else:
            weights = given.tolist()
        if not any(weights):
            raise DatasetError("dataset", "holds no samples to mix", self._layout)
        for name, weight, source in zip(self._names, weights, self.sources, strict=True):
            if weight and not source.size:
                raise DatasetError("weights", "give a share to an empty source", name)
        return weights

    @once
    def mix(self) -> Mix:
        """The stream of the mixture."""
        turns = Turns(self._dice, thresholds(self.weights)[None])
        return Mix(turns, self.lanes, [source.stream for source in self.sources], self._starts)

    @once
    def length(self) -> int:
        """How many positions an epoch has: what is asked for, or as many as `stop` says of epoch 0."""
        if self._mixture.num_samples:
            return self._mixture.num_samples
        if self.restarts and self._context.epoch:
            context = replace(self._context, epoch=0)
            return Blend(self._mixture, self._layout, context, restarts=self._given_restarts).length
        is_first = self._mixture.stop == "first"
        lanes = np.arange(self.lanes)
        ends: list[int] = []
        for number, weight in enumerate(self.weights):
            if not weight:
                continue
            size = self.sources[number].size
            mine = lanes if is_first else lanes[lanes < size]
            # The turn that begins the source anew, or the last one of its first pass.
            last = size - mine + self.lanes - 1 if is_first else size - 1 - mine
            rows = self.mix.turns.row(number, mine, np.maximum(0, last // self.lanes)).tolist()
            # Python's integers: a large source of a small weight ends beyond 64 bits.
            ends += [row * self.lanes + lane for row, lane in zip(rows, mine.tolist(), strict=True)]
        return min(ends) if is_first else max(ends) + 1

    @property
    def order(self) -> Order:
        """The order of the epoch."""
        if self._mixture.stop != "once":
            if self.length > LARGEST:
                problem = f"is left out, and an epoch with stop={self._mixture.stop!r} would end beyond 2^62"
                mend = "say num_samples, or give the source of a tiny weight more"
                raise ArgumentRangeError("num_samples", problem, self._mixture.num_samples, mend=mend)
            begin = 0 if self.restarts else self._context.epoch * self.length
            if begin + self.length > LARGEST:
                problem = "ends beyond position 2^62 of the run, which is the last"
                raise ArgumentRangeError("epoch", problem, self._context.epoch)
            return Part(self.mix, begin, self.length, runs_on=not self.restarts)
        pairs = zip(self.sources, self._is_read, strict=True)
        orders = [limited(source(0), None if is_read else 0) for source, is_read in pairs]
        sizes = [len(order) for order in orders]
        if not any(sizes):
            raise DatasetError("dataset", "holds no samples to mix", self._layout)
        turns = Turns(self._dice, thresholds(sizes)[None])
        key = replace(self._key, role="dice-left")
        whole = OnceEach(turns, self.lanes, orders, self._starts, key, path_number(self._context.path))
        return limited(whole, self._mixture.num_samples or None)

    @property
    def _dice(self) -> Dice:
        return Dice(self._key, path_number(self._context.path))


def require_source(place: str, sampler: Sampler) -> None:
    """Refuses a source that is dealt by itself, or read by a ledger of its own.

    Raises:
        CompositionError: a distributed sampler or a ledger stands in it.
    """
    if sampler.is_distributed:
        raise CompositionError(
            place,
            "is dealt by a distributed sampler, and the mixture is dealt as a whole",
            sampler,
            mend="put the distributed sampler above the mixture",
        )
    if any(link.reads_a_stream for link in sampler._tree()):
        mend = "put a ledger above the whole mixture"
        raise CompositionError(place, "is a ledger, and that is the outermost sampler", sampler, mend=mend)
