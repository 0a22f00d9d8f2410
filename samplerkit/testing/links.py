"""Hypothesis strategies: one sampler of a chain with arguments that are legal where it stands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from samplerkit.order.layout import Layout
from samplerkit.order.modes import Shuffle
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.block import BlockSampler
from samplerkit.samplers.fold import FoldSampler
from samplerkit.samplers.iterable import IterSampler
from samplerkit.samplers.mixing.mixture import MixtureSampler
from samplerkit.samplers.pk import PKSampler
from samplerkit.samplers.repeat import RepeatFactorSampler, RepeatSampler
from samplerkit.samplers.shuffled import DistributedSampler, RandomSampler
from samplerkit.samplers.subset import SequentialSampler, SubsetRandomSampler, SubsetSampler
from samplerkit.samplers.weighted import WeightedRandomSampler
from samplerkit.samplers.window import WindowSampler
from samplerkit.testing.user_samplers import Backwards, EvenOdd, Rotated, Turning

MOST_SHARDS = 4
MOST_SAMPLES = 24

Arguments = dict[str, Any]


@dataclass(frozen=True)
class SamplerCall:
    """One sampler of a chain: its class and its arguments; sources by name are chains, or None."""

    make: Callable[..., Sampler]
    arguments: Arguments

    @property
    def is_distributed(self) -> bool:
        """Whether it is a distributed sampler."""
        return self.make is DistributedSampler

    def build(self, **changed: Any) -> Sampler:
        """Builds the sampler, some of its arguments changed."""
        arguments = {**self.arguments, **changed}
        if "sources" in arguments:
            named = arguments["sources"].items()
            arguments["sources"] = {name: None if chain is None else built(chain) for name, chain in named}
        return self.make(**arguments)


Links = tuple[SamplerCall, ...]


def built(chain: Links) -> Sampler:
    """Builds the samplers of a chain, the one that reads the dataset first."""
    first, *more = chain
    root = first.build()
    for link in more:
        parent = link.build()
        parent.add_child(root)
        root = parent
    return root


seeds = st.integers(0, 3)
counts = st.none() | st.integers(0, MOST_SAMPLES + 3)


def legal_modes(*, of_files: bool, is_leaf: bool, is_root: bool) -> list[Shuffle]:
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
def distributed_link(draw: st.DrawFn, modes: list[Shuffle]) -> SamplerCall:
    """A `DistributedSampler` in one of some modes."""
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
def random_link(draw: st.DrawFn, modes: list[Shuffle]) -> SamplerCall:
    """A `RandomSampler` in one of some modes."""
    replacement = draw(st.booleans())
    fitting = [mode for mode in modes if mode is not Shuffle.FALSE]
    if replacement:
        fitting = [mode for mode in fitting if mode in {Shuffle.GLOBAL, Shuffle.ADAPTIVE}]
    arguments = {name: draw(values) for name, values in _mode_arguments(fitting).items()}
    return SamplerCall(RandomSampler, {"replacement": replacement, "num_samples": draw(counts), **arguments})


@st.composite
def sequential_link(draw: st.DrawFn, size: int) -> SamplerCall:
    """A `SequentialSampler` over so many samples."""
    start = draw(st.none() | st.integers(0, max(0, size - 1)))
    return SamplerCall(SequentialSampler, {"start_index": start, "num_samples": draw(counts)})


def _ids(size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, size - 1), min_size=1, max_size=MOST_SAMPLES)


@st.composite
def subset_link(draw: st.DrawFn, size: int) -> SamplerCall:
    """A `SubsetSampler` over so many samples."""
    return SamplerCall(SubsetSampler, {"indices": draw(_ids(size)), "num_samples": draw(counts)})


@st.composite
def subset_random_link(draw: st.DrawFn, size: int) -> SamplerCall:
    """A `SubsetRandomSampler` over so many samples."""
    arguments = {"indices": draw(_ids(size)), "num_samples": draw(counts), "seed": draw(seeds)}
    return SamplerCall(SubsetRandomSampler, arguments)


@st.composite
def weighted_link(draw: st.DrawFn, size: int) -> SamplerCall:
    """A `WeightedRandomSampler` over so many samples."""
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
def pk_link(draw: st.DrawFn, dataset_size: int) -> SamplerCall:
    """A `PKSampler` with a label for each sample of the dataset."""
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
def iter_link(draw: st.DrawFn, size: int) -> SamplerCall:
    """An `IterSampler` over so many samples."""
    ids = draw(_ids(size))
    sampler = draw(st.sampled_from([ids, Turning(ids)]))
    return SamplerCall(IterSampler, {"sampler": sampler, "num_samples": draw(counts)})


@st.composite
def mixture_link(draw: st.DrawFn, sizes: Sequence[int]) -> SamplerCall:
    """A `MixtureSampler` over sources of these sizes."""
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
def of_the_user_link(draw: st.DrawFn) -> SamplerCall:
    """A sampler as a user writes one."""
    return SamplerCall(draw(st.sampled_from([EvenOdd, Rotated, Backwards])), {"num_samples": draw(counts)})


@st.composite
def repeat_link(draw: st.DrawFn) -> SamplerCall:
    """A `RepeatSampler`."""
    return SamplerCall(RepeatSampler, {"repeats": draw(st.integers(1, 4)), "num_samples": draw(counts)})


@st.composite
def repeat_factor_link(draw: st.DrawFn, size: int) -> SamplerCall:
    """A `RepeatFactorSampler` with a factor for each of so many samples."""
    factor = st.sampled_from([0.0, 1e-9, 0.5, 1.0, 1.3, 3.7])
    factors = draw(st.lists(factor, min_size=size, max_size=size).filter(any))
    arguments = {"factors": factors, "num_samples": draw(counts), "seed": draw(seeds)}
    return SamplerCall(RepeatFactorSampler, arguments)


@st.composite
def window_link(draw: st.DrawFn, longest: int) -> SamplerCall:
    """A `WindowSampler` over files of which the longest holds so many samples."""
    arguments = {"size": draw(st.integers(1, longest)), "stride": draw(st.integers(1, 4))}
    return SamplerCall(WindowSampler, {**arguments, "num_samples": draw(st.none() | counts)})


@st.composite
def block_link(draw: st.DrawFn, sizes: Sequence[int]) -> SamplerCall:
    """A `BlockSampler` that reads files of these sizes, which are whole blocks."""
    common = math.gcd(*sizes) or 1
    pieces = draw(st.sampled_from([number for number in range(1, common + 1) if common % number == 0]))
    arguments = {"pool": draw(st.integers(1, 5)), "seed": draw(seeds), "windows_per_block": pieces}
    return SamplerCall(BlockSampler, arguments)


@st.composite
def fold_link(draw: st.DrawFn, layout: Layout, dataset_size: int) -> SamplerCall:
    """A `FoldSampler` over what a fixed chain yields, at least two samples."""
    ways = ["alone", "labels", "groups"] + ["by_files"] * 2 * (layout.num_files > 1)
    way = draw(st.sampled_from(ways))
    most = layout.num_files if way == "by_files" else len(layout)
    arguments: Arguments = {"num_folds": draw(st.integers(2, min(5, most)))}
    if way == "labels":
        arguments["labels"] = draw(st.lists(st.integers(0, 3), min_size=dataset_size, max_size=dataset_size))
    if way == "groups":
        # As many as samples: any of them is enough for as many folds.
        arguments["groups"] = draw(st.permutations(range(dataset_size)))
    arguments["by_files"] = way == "by_files"
    arguments["fold"] = draw(st.integers(0, arguments["num_folds"] - 1))
    arguments["held_out"] = draw(st.booleans())
    return SamplerCall(
        FoldSampler, {**arguments, "num_samples": draw(st.none() | counts), "seed": draw(seeds)}
    )
