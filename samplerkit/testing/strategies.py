"""Hypothesis strategies: layouts, and every legal chain of samplers over them.

This module needs Hypothesis, which comes with the extra `test`. `chains()` draws a `Case`, which builds its
sampler anew for each shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.order.shuffle import Shuffle
from samplerkit.order.world import World
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.context import RunConstants
from samplerkit.samplers.distributed import DistributedSampler
from samplerkit.samplers.iterable import IterSampler
from samplerkit.samplers.mixture import MixtureSampler
from samplerkit.samplers.pk import PKSampler
from samplerkit.samplers.random import RandomSampler
from samplerkit.samplers.sequential import SequentialSampler
from samplerkit.samplers.subset import SubsetRandomSampler, SubsetSampler
from samplerkit.samplers.weighted import WeightedRandomSampler
from samplerkit.testing.user_samplers import Backwards, EvenOdd, Rotated, Turning

MOST_SHARDS = 4
MOST_SAMPLES = 24
DEEPEST = 4

Arguments = dict[str, Any]


@dataclass(frozen=True)
class SamplerCall:
    """One sampler of a chain: its class and its arguments."""

    make: Callable[..., Sampler]
    arguments: Arguments

    @property
    def is_distributed(self) -> bool:
        """Whether it is a distributed sampler."""
        return self.make is DistributedSampler

    def build(self, **changed: Any) -> Sampler:
        """Builds the sampler, some of its arguments changed."""
        return self.make(**{**self.arguments, **changed})


@dataclass(frozen=True)
class Case:
    """A chain over a dataset in an epoch.

    Args:
        links: the samplers, the one that reads the dataset first.
        dataset: a layout or a number of samples.
        epoch: the epoch.
        num_shards: of the deal: what the outermost distributed sampler says, or the world that is given.
        by_world: whether the order is asked for with the world of the job.
    """

    links: tuple[SamplerCall, ...]
    dataset: Any
    epoch: int
    num_shards: int = 1
    by_world: bool = False

    @property
    def layout(self) -> Layout:
        """The layout of the dataset."""
        return Layout.of(self.dataset)

    @property
    def dealer(self) -> int | None:
        """The depth of the outermost distributed sampler."""
        return max((depth for depth, link in enumerate(self.links) if link.is_distributed), default=None)

    @property
    def deals_at_the_root(self) -> bool:
        """Whether no distributed sampler deals below the root."""
        return self.dealer in {None, len(self.links) - 1}

    @property
    def offset(self) -> int:
        """The offset of the deal."""
        return -1 if self.dealer is None else self.links[self.dealer].arguments["offset"]

    @property
    def shards(self) -> range:
        """All shards."""
        return range(self.num_shards)

    def sampler(self, shard: int = 0) -> Sampler:
        """Builds the chain anew, for one shard."""
        root: Any = None
        for depth, link in enumerate(self.links):
            says = link.arguments.get("shard_id") is not None
            parent = link.build(shard_id=shard) if depth == self.dealer and says else link.build()
            parent.add_child(root)
            root = parent
        sampler: Sampler = root
        return sampler

    def world(self, shard: int) -> World | None:
        """Gives the world in which a shard asks for its order."""
        return World(self.num_shards, shard) if self.by_world else None

    def order(self, shard: int = 0) -> Order:
        """Gives the order of a shard."""
        return self.sampler(shard).order(self.dataset, self.epoch, world=self.world(shard))

    def constants(self, shard: int = 0) -> RunConstants:
        """Gives what the first start fixes, as a shard sees it."""
        return self.sampler(shard).run_constants(self.world(shard))

    def undealt(self, shard: int = 0) -> Order:
        """Gives the order of all shards, as a shard sees it."""
        sampler = self.sampler(shard)
        return sampler.undealt_order(self.dataset, self.epoch, constants=self.constants(shard))

    def lengths(self) -> list[int]:
        """Gives the lengths of the shards."""
        return [len(self.order(shard)) for shard in self.shards]


seeds = st.integers(0, 3)
counts = st.none() | st.integers(0, MOST_SAMPLES + 3)
epochs = st.integers(0, 5)


def layouts() -> st.SearchStrategy[Layout]:
    """Layouts of files, empty ones and none at all included."""
    sizes = st.sampled_from([3, 0, 1, 2, 5, 7])
    few, many = st.lists(sizes, max_size=2), st.lists(sizes, min_size=3, max_size=6)
    return (few | many).map(Layout)


def datasets() -> st.SearchStrategy[Any]:
    """Numbers of samples and layouts of files."""
    return st.sampled_from(range(MOST_SAMPLES + 1)) | layouts()


def _modes(*, of_files: bool, is_leaf: bool, is_root: bool) -> list[Shuffle]:
    """The shuffle modes that are legal at a place in the chain."""
    modes = [Shuffle.FALSE, Shuffle.GLOBAL]
    if is_leaf:
        modes += [Shuffle.ADAPTIVE]
        # Often, as they are legal in few places.
        modes += 3 * [Shuffle.FILES, Shuffle.INFILE] if of_files else []
        modes += 6 * [Shuffle.PARTIAL] if is_root else []
    return modes


def _mode_arguments(modes: Sequence[Shuffle]) -> dict[str, st.SearchStrategy[Any]]:
    return {
        "shuffle": st.sampled_from(modes),
        "seed": seeds,
        "partial_size": st.integers(1, 9),
        "pools": st.integers(1, 2),
        "adaptive_threshold": st.integers(0, MOST_SAMPLES),
        "lanes": st.none() | st.integers(1, 6),
    }


@st.composite
def _distributed(draw: st.DrawFn, modes: list[Shuffle]) -> SamplerCall:
    num_shards = draw(st.integers(1, MOST_SHARDS))
    arguments = {
        "num_shards": num_shards,
        "shard_id": draw(st.integers(0, num_shards - 1)),
        "offset": draw(st.integers(-1, num_shards)),
        "num_samples": draw(counts),
        **{name: draw(values) for name, values in _mode_arguments(modes).items()},
    }
    return SamplerCall(DistributedSampler, arguments)


@st.composite
def _random(draw: st.DrawFn, modes: list[Shuffle]) -> SamplerCall:
    replacement = draw(st.booleans())
    fitting = [mode for mode in modes if mode is not Shuffle.FALSE]
    if replacement:
        fitting = [mode for mode in fitting if mode in {Shuffle.GLOBAL, Shuffle.ADAPTIVE}]
    arguments = {name: draw(values) for name, values in _mode_arguments(fitting).items()}
    return SamplerCall(RandomSampler, {"replacement": replacement, "num_samples": draw(counts), **arguments})


@st.composite
def _sequential(draw: st.DrawFn, size: int) -> SamplerCall:
    start = draw(st.none() | st.integers(0, max(0, size - 1)))
    return SamplerCall(SequentialSampler, {"start_index": start, "num_samples": draw(counts)})


def _ids(size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, size - 1), min_size=1, max_size=MOST_SAMPLES)


@st.composite
def _subset(draw: st.DrawFn, size: int) -> SamplerCall:
    return SamplerCall(SubsetSampler, {"indices": draw(_ids(size)), "num_samples": draw(counts)})


@st.composite
def _subset_random(draw: st.DrawFn, size: int) -> SamplerCall:
    arguments = {"indices": draw(_ids(size)), "num_samples": draw(counts), "seed": draw(seeds)}
    return SamplerCall(SubsetRandomSampler, arguments)


@st.composite
def _weighted(draw: st.DrawFn, size: int) -> SamplerCall:
    weight = st.sampled_from([0.0, 1e-9, 0.5, 1.0, 3.0, 1e9])
    weights = draw(st.lists(weight, min_size=1, max_size=size).filter(any))
    replacement = draw(st.booleans())
    positive = sum(entry > 0 for entry in weights)
    num_samples = draw(counts if replacement else st.integers(1, positive))
    return SamplerCall(
        WeightedRandomSampler,
        {"weights": weights, "num_samples": num_samples, "replacement": replacement, "seed": draw(seeds)},
    )


@st.composite
def _pk(draw: st.DrawFn, dataset_size: int) -> SamplerCall:
    one = st.integers(0, 3) if draw(st.booleans()) else st.sampled_from(["cat", "dog", "owl"])
    labels = draw(st.lists(one, min_size=dataset_size, max_size=dataset_size))
    arguments = {
        "num_val": draw(st.integers(1, 4)),
        "shuffle": draw(st.booleans()),
        "num_samples": draw(counts),
        "seed": draw(seeds),
        "labels": labels,
    }
    return SamplerCall(PKSampler, arguments)


@st.composite
def _iter(draw: st.DrawFn, size: int) -> SamplerCall:
    ids = draw(_ids(size))
    sampler = draw(st.sampled_from([ids, Turning(ids)]))
    return SamplerCall(IterSampler, {"sampler": sampler, "num_samples": draw(counts)})


@st.composite
def _mixture(draw: st.DrawFn, sizes: Sequence[int]) -> SamplerCall:
    # Only what holds samples has a share.
    shares = st.tuples(*(st.integers(0, 4) if size else st.just(0) for size in sizes)).filter(any)
    arguments = {
        "weights": draw(st.none() | shares.map(list)),
        "num_samples": draw(counts),
        "shuffle": draw(st.booleans()),
        "stop": draw(st.sampled_from(["first", "all"])),
        "seed": draw(seeds),
    }
    return SamplerCall(MixtureSampler, arguments)


@st.composite
def _of_the_user(draw: st.DrawFn) -> SamplerCall:
    return SamplerCall(draw(st.sampled_from([EvenOdd, Rotated, Backwards])), {"num_samples": draw(counts)})


def _links(case: Case, smallest: int, *, is_leaf: bool, is_root: bool) -> st.SearchStrategy[SamplerCall]:
    """The samplers that may stand above a chain whose shards yield at least `smallest` samples."""
    modes = _modes(of_files=case.layout.has_files, is_leaf=is_leaf, is_root=is_root)
    choices = [_distributed(modes), _random(modes)] * (3 if is_leaf else 1)
    choices += [_distributed(modes), _sequential(smallest), _of_the_user()]
    if smallest > 0:
        choices += [_subset(smallest), _subset_random(smallest), _weighted(smallest), _iter(smallest)]
    if len(case.layout) > 0:
        choices += [_pk(len(case.layout))]
        choices += [_mixture(case.layout.sizes.tolist())] if is_leaf and case.layout.has_files else []
    return st.one_of(choices)


@st.composite
def chains(draw: st.DrawFn) -> Case:
    """Every legal chain of samplers, of every class with every argument, over a small dataset."""
    case = Case((), draw(datasets()), draw(epochs))
    depth = draw(st.integers(1, DEEPEST))
    for level in range(depth):
        is_leaf, is_root = level == 0, level == depth - 1
        smallest = len(case.layout) if is_leaf else min(case.lengths())
        link = draw(_links(case, smallest, is_leaf=is_leaf, is_root=is_root))
        num_shards = link.arguments["num_shards"] if link.is_distributed else case.num_shards
        case = replace(case, links=(*case.links, link), num_shards=num_shards)
    return _in_a_world(draw, case)


def _in_a_world(draw: st.DrawFn, case: Case) -> Case:
    """Lets a distributed sampler leave its numbers to the job, or deals a chain that has none."""
    if not draw(st.booleans()):
        return case
    if case.dealer is None:
        return replace(case, num_shards=draw(st.integers(1, MOST_SHARDS)), by_world=True)
    left_out = draw(st.sampled_from([(), ("num_shards",), ("shard_id",), ("num_shards", "shard_id")]))
    dealer = case.links[case.dealer]
    dealer = replace(dealer, arguments={**dealer.arguments, **dict.fromkeys(left_out)})
    links = (*case.links[: case.dealer], dealer, *case.links[case.dealer + 1 :])
    return replace(case, links=links, by_world=True)
