"""Several datasets mixed by weights, or in proportion to their sizes: a recipe, and its place in a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import (
    ArgumentRangeError,
    ArgumentValueError,
    CompositionError,
    DatasetError,
    NotSupportedError,
)
from samplerkit.order import arguments
from samplerkit.order.algebra import compose, limited
from samplerkit.order.caching import Latest, cached_property
from samplerkit.order.keys import ALGORITHM, Key, path_number
from samplerkit.order.layout import Layout
from samplerkit.order.mixing.source_counts import SourceCounts
from samplerkit.order.mixing.source_draws import SourceDraws
from samplerkit.order.mixing.source_ends import OnceEach, first_length
from samplerkit.order.mixing.stream_algebra import Mix, RunStream, edited
from samplerkit.order.mixing.streams import Passes
from samplerkit.order.mixing.weights import thresholds
from samplerkit.order.order import PASS_BITS, Order
from samplerkit.order.sequences import Range
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import Context, RunConstants, check_algorithm
from samplerkit.samplers.mixing.sources import (
    EpochOrders,
    PartLengths,
    ShuffledPart,
    checked_caps,
    checked_sources,
    checked_weights,
    mixed_parts,
    parts_of,
    require_known,
    require_source,
)
from samplerkit.samplers.subset import SequentialSampler

_EPOCHS = 1 << PASS_BITS
"""Where passes restart, pass t of epoch e is the source's epoch e + t * 2^40, which no other pass is."""


@final
class MixtureSampler(Sampler):
    """Mixes several datasets by weights: the parts of a tree, each read by its own sampler.

    Each position draws its source at random by the weights: any ranks and any batches read a source at least
    as evenly as by independent draws, and each lane always stays within a few samples of its share. A source
    that was read to its end begins again, in another order. In place of `sources`, a list of weights mixes
    the files of a layout.

    Args:
        sources: a sampler for each part, by name, mixtures among them; None for all of its samples. Parts
            that are not named are not read. Or a list, tuple or array of weights, one for each file.
        num_samples: how many samples an epoch has; None and 0 mean until `stop`.
        weights: the share of each source, by name; any real numbers. None means in proportion to the sizes.
        by: what weights are shares of: `samples`, or `tokens`, by the `lengths` of the dataset: a source
            is drawn by its weight over the mean length of its samples, in its first pass.
        shuffle: whether sources given as None are read in a random order.
        passes: `run_on`: sources continue where the previous epoch left them; `restart`: each epoch begins
            them again, so that the last samples of a fixed order may never be read.
        stop: `first` ends before a source would begin again; `all` once each was read to its end, in the
            first epoch, whose length the others have. `once` reads each sample once an epoch, in proportion
            to the sizes.
        max_passes: how often the run may read a source, by name, or by number of a file: then the others
            share its weight. The source stops in all lanes when the first one has read its part of the last
            pass, so the others may leave a few samples unread.
        lanes: into how many lanes the mixture is woven, and the sources with it; None for the number of
            shards at the first start, so that each reads its own files.
        seed: the seed of the order, in [0, 2^64).
        algorithm: the id of the algorithm.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: `num_samples` or `seed` is negative; `by`, `passes`, `stop` or `algorithm` is not
            known; weights are not those of the sources, or do not go with `stop`; or caps are of no source,
            or do not go with `passes` and `stop`.
        ArgumentRangeError: `weights` is empty, all zero, or holds a negative, NaN or infinite one; a cap is
            below 1; or, when the order is made, the mixture is longer than 2^62, or an epoch continues after
            all sources have reached their caps.
        CompositionError: a source is distributed, a ledger, or of an algorithm that replays another package;
            or a cap is of a mixture.
        DatasetError: when the order is made: the dataset has no such parts, others than weights, an
            empty one of positive weight, a source whose passes differ in length, or no lengths by which
            to weigh tokens.

    Example:
        >>> corpus = Layout.tree({"web": Layout([5000, 7000]), "code": 3000})
        >>> mix = MixtureSampler({"web": None, "code": None}, weights={"web": 0.75, "code": 0.25}, seed=7)
        >>> ids = mix.order(corpus)[:4096]
        >>> (ids < 12000).mean()
        np.float64(0.75)
        >>> layout = Layout([6000, 6000])
        >>> np.bincount(layout.file_of(MixtureSampler([0.75, 0.25]).order(layout)[:4096]))
        array([3072, 1024])
    """

    def __init__(
        self,
        sources: Mapping[str, Sampler | None] | Sequence[float] | np.ndarray[Any, Any] | None = None,
        num_samples: int | None = None,
        *,
        weights: Mapping[str, float] | Sequence[float] | np.ndarray[Any, Any] | None = None,
        by: str = "samples",
        shuffle: bool = True,
        passes: str = "run_on",
        stop: str = "first",
        max_passes: Mapping[str, int] | Mapping[int, int] | None = None,
        lanes: int | None = None,
        seed: int = 0,
        algorithm: str = ALGORITHM,
    ) -> None:
        super().__init__(num_samples)
        self.sources: Final = checked_sources("sources", sources) if isinstance(sources, Mapping) else None
        listed = sources if self.sources is None else None
        if listed is not None and weights is not None:
            raise ArgumentValueError("weights", "are given twice", weights, hint="give them once")
        self.weights: Final = checked_weights(self.sources, weights if listed is None else listed)
        self.by: Final = arguments.choice("by", by, ("samples", "tokens"))
        self.shuffle: Final = arguments.boolean("shuffle", shuffle)
        self.passes: Final = arguments.choice("passes", passes, ("run_on", "restart"))
        self.stop: Final = arguments.choice("stop", stop, ("first", "all", "once"))
        self.lanes: Final = arguments.lanes("lanes", lanes)
        self.seed: Final = arguments.seed("seed", seed)
        self.algorithm: Final = algorithm
        check_algorithm(self)
        if self.algorithm != ALGORITHM:
            problem = "does not support mixtures"
            raise NotSupportedError("algorithm", problem, algorithm, hint=f"use {ALGORITHM}")
        if self.stop == "once" and self.weights is not None:
            hint = "leave weights out: the sizes are the weights"
            problem = "reads each sample once, whatever the weights are"
            raise ArgumentValueError("stop", problem, "once", hint=hint)
        self._lengths: Final = Latest[PartLengths]()
        self.max_passes: Final = checked_caps(max_passes, self)

    def branches(self) -> dict[str, Sampler]:
        """Returns the samplers of the sources, by name and sorted."""
        given = self.sources or {}
        return {name: sampler for name in sorted(given) if (sampler := given[name]) is not None}

    def arguments(self) -> dict[str, Any]:
        """Returns the constructor's arguments by name, as they were understood."""
        defaults = {"sources": None, "max_passes": None, "by": "samples"}
        given = super().arguments().items()
        return {name: value for name, value in given if name not in defaults or value != defaults[name]}

    def lane_count(self, layout: Layout, run_lanes: int) -> int:
        return run_lanes if self.lanes is None else self.lanes

    def looks_at(self, dataset: Any) -> dict[str, Any]:
        """Returns the data that samplers of sources use in their parts, and the tokens of the parts."""
        data: dict[str, Any] = {}
        parts = parts_of(dataset)
        if self.by == "tokens":
            blend = Blend(self, Layout.of(dataset), Context(0, dataset=dataset))
            data["tokens"] = np.array([*blend.lengths.totals.values()])
        return data | {
            f"{name}/{key}": value
            for name, branch in self.branches().items()
            if name in parts  # of another dataset, whose description differs
            for link in branch._links()
            for key, value in link.looks_at(parts[name]).items()
        }

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders the samples of a layout."""
        return Blend(self, layout, context).order()


@dataclass(eq=False)
class Blend:
    """A mixture at its place in a tree, in one epoch.

    Args:
        mixture: the sampler.
        layout: what it mixes: the parts of a tree, or, where sources have no names, the files.
        context: its place and the epoch.
        restarts: whether a mixture above it, or its own arguments, begin it again in each epoch.
        added: further parts, of weight 0, and the sampler of each.

    Attributes:
        sources: by the names of all parts, in the order of ids.

    Raises:
        DatasetError: there are no parts, or no such ones, or no samples.
    """

    mixture: MixtureSampler
    layout: Layout
    context: Context
    restarts: bool = False
    added: Mapping[str, Sampler | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        mixture, context = self.mixture, self.context
        self.restarts = self.restarts or mixture.passes == "restart" or mixture.stop == "once"
        self.lanes = mixture.lane_count(self.layout, context.lanes)
        # A source that reads each sample once has no further passes: they would be those of other epochs.
        if self.restarts and mixture.stop != "once" and context.epoch >= _EPOCHS:
            problem = "must be below 2^40 where sources begin again in each epoch"
            raise ArgumentRangeError("epoch", problem, context.epoch)
        self._epoch = context.epoch if self.restarts else 0
        self._key = Key(mixture.seed, self._epoch, context.depth, "dice")
        if mixture.by == "tokens" and context.child is not None:
            problem = 'must be "samples" if the mixture has a child sampler'
            raise CompositionError("by", problem, context.child, hint="give that sampler to the sources")
        self._parts = parts = mixed_parts(mixture.sources, self.layout, context.dataset)
        samplers = {**(mixture.sources or {}), **self.added}
        self.sources = {name: self._source(name, part, samplers.get(name)) for name, part in parts.items()}
        self._starts: Ids = np.cumsum([0, *(len(Layout.of(part)) for part in parts.values())], dtype=np.int64)

    @classmethod
    def of(cls, sampler: Sampler, context: Context, restarts: bool = False, **added: Any) -> Blend | None:
        """Returns the mixture that a chain continues from pass to pass; None for any other chain."""
        if not isinstance(sampler, MixtureSampler) or sampler.get_child() is not None:
            return None
        if sampler.stop == "once" or (sampler.passes == "restart" and not restarts):
            return None
        return cls(sampler, Layout.of(context.dataset), context, restarts, **added)

    def _source(self, name: str, part: Any, sampler: Sampler | None) -> Passes | Blend:
        """Returns a source: a mixture that continues from pass to pass, or passes."""
        path, step = (*self.context.path, name), _EPOCHS if self.restarts else 1
        place = f"source {'.'.join(path)}"
        if sampler is None and self.mixture.shuffle:
            # Its seed follows from its place.
            seed = int(Key(self.mixture.seed, 0, 0, "source").words(1, path_number(path))[0])
            return Passes(ShuffledPart(len(Layout.of(part)), seed, self._epoch, step), self.lanes, place)
        sampler = SequentialSampler() if sampler is None else sampler
        require_source(place, sampler)
        if self.restarts and isinstance(sampler, MixtureSampler) and sampler.max_passes:
            problem = "caps passes, and a mixture above it begins it again in each epoch"
            raise CompositionError(place, problem, sampler.max_passes)
        context = Context(self._epoch, 0, self.lanes, part, path=path)
        nested = None if self.mixture.stop == "once" else Blend.of(sampler, context, restarts=self.restarts)
        if nested is not None:
            return nested
        orders = EpochOrders(sampler, part, RunConstants(self.lanes, path=path), self._epoch, step)
        return Passes(orders, self.lanes, place)

    def split(self, ids: Ids) -> Iterator[tuple[str, Passes | Blend, Ids]]:
        """Yields the sources that have some of the ids, and the numbers of these ids within each."""
        for (name, source), (start, end) in zip(self.sources.items(), pairwise(self._starts), strict=True):
            inside = (ids >= start) & (ids < end)
            if inside.any():
                yield name, source, ids[inside] - start

    def shares_of_draws(self, weights: Sequence[float], place: str = "weights") -> list[float]:
        """Returns weights as shares of draws: shares of tokens are divided by the mean length of a draw.

        Raises:
            DatasetError: a source that is empty has a share.
        """
        shares, of_tokens = list[float](), self.mixture.by == "tokens"
        for name, weight in zip(self.sources, weights, strict=True):
            if weight and not self.sources[name].length:
                raise DatasetError(place, "give a share to an empty source", name)
            shares.append(weight / self._mean_length_of(name) if weight and of_tokens else weight)
        return shares

    def _mean_length_of(self, name: str) -> float:
        """Returns the mean number of tokens of a draw of a source."""
        source = self.sources[name]
        return source.mean_length if isinstance(source, Blend) else self.lengths.mean_of_draws(name, source)

    @property
    def lengths(self) -> PartLengths:
        """The lengths of the samples of all parts."""
        # Those of the last dataset are kept: they are checked and added up once.
        dataset, parts = self.context.dataset, self._parts
        return self.mixture._lengths.get((id(dataset), *parts), lambda: PartLengths(dataset, parts))

    @cached_property
    def mean_length(self) -> float:
        """The mean number of tokens of a draw, by the weights at the beginning."""
        pairs = zip(self.sources, self.weights, strict=True)
        tokens = sum(weight * self._mean_length_of(name) for name, weight in pairs if weight)
        return tokens / sum(self.weights)

    @cached_property
    def sizes(self) -> list[int]:
        """How many samples a pass over each part has; 0 for a part that is not read."""
        read = self.mixture.sources or self.sources
        return [source.length if name in read else 0 for name, source in self.sources.items()]

    @cached_property
    def weights(self) -> list[float]:
        """The share of the draws of each part, in the order of ids; 0 for a part that is not a source."""
        given = self.mixture.weights
        if given is None:
            weights = list[float](self.sizes)
        elif isinstance(given, Mapping):
            weights = [given.get(name, 0) for name in self.sources]
        elif given.size == len(self.sources):
            weights = given.tolist()
        else:
            problem = f"must be one for each of the {len(self.sources)} sources"
            raise DatasetError("weights", problem, given.size)
        if not any(weights):
            raise DatasetError("dataset", "holds no samples to mix", self.layout)
        # In proportion to the sizes, each source has its share of the tokens too.
        return weights if given is None else self.shares_of_draws(weights)

    @cached_property
    def caps(self) -> dict[int, int]:
        """The caps on passes by the numbers of sources."""
        given, names = self.mixture.max_passes or {}, list(self.sources)
        require_known("max_passes", given, names, "names no source of the mixture", DatasetError)
        return {names.index(name): passes for name, passes in given.items()}

    @cached_property
    def stream(self) -> RunStream:
        """The samples that the mixture reads, with its caps."""
        return edited(self.mix, caps=self.caps, first=self.weights)

    @cached_property
    def mix(self) -> Mix:
        """The stream of the mixture, without caps."""
        draws = SourceDraws(self._key, path_number(self.context.path))
        counts = SourceCounts(draws, thresholds(self.weights)[None])
        sources = self.sources.values()
        streams = [source.endless if isinstance(source, Blend) else source for source in sources]
        return Mix(counts, self.lanes, streams, self._starts)

    @property
    def endless(self) -> Passes | Mix:
        """The stream, as a source of another one."""
        if (end := self.stream.end) < arguments.LARGEST:
            hint = "leave a source of it without a cap"
            problem = "is a nested mixture that ends: all of its sources have caps"
            raise DatasetError(f"source {'.'.join(self.context.path)}", problem, end, hint=hint)
        return self.stream.source

    @cached_property
    def length(self) -> int:
        """The number of positions of an epoch: the given one, or the one that `stop` gives for epoch 0."""
        if self.mixture.num_samples:
            return self.mixture.num_samples
        if self.restarts and self.context.epoch:
            return Blend(self.mixture, self.layout, replace(self.context, epoch=0), restarts=True).length
        # A nested mixture may be longer than any order.
        sizes = tuple(min(source.length, arguments.LARGEST) for source in self.sources.values())
        counts, is_first = self.mix.counts, self.mixture.stop == "first"
        ends = tuple(counts.ends[0].tolist())
        return first_length(counts.draws.recipe, self.lanes, sizes, ends, is_first=is_first)

    def order(self) -> Order:
        """Returns the order of the epoch."""
        if self.mixture.stop == "once":
            return limited(self._each_once(), self.mixture.num_samples or None)
        if self.length > arguments.LARGEST:
            problem = f"is left out, and an epoch with stop={self.mixture.stop!r} would end beyond 2^62"
            hint = "use num_samples, or give the source of a tiny weight more"
            raise ArgumentRangeError("num_samples", problem, self.mixture.num_samples, hint=hint)
        begin = 0 if self.restarts else self.context.epoch * self.length
        if begin + self.length > arguments.LARGEST:
            problem = "ends beyond position 2^62 of the run, which is the last"
            raise ArgumentRangeError("epoch", problem, self.context.epoch)
        return self.stream.epoch(begin, self.length, runs_on=not self.restarts)

    def _each_once(self) -> Order:
        """Returns the order that reads each sample once: then all sources are passes."""
        parts = zip(self.sources.values(), self.sizes, pairwise(self._starts.tolist()), strict=True)
        orders = [
            compose(limited(source.order(0), size), Range(start, end - start))
            for source, size, (start, end) in parts
            if isinstance(source, Passes)
        ]
        key = replace(self._key, role="dice-left")
        return OnceEach(self.mix.counts, self.lanes, orders, self._starts, key)
