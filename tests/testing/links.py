"""Hypothesis strategies: one sampler of a chain with arguments that are legal at its place."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from hypothesis import strategies as st

from samplerkit.order.layout import Layout
from samplerkit.order.modes import Shuffle
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.block import BlockSampler
from samplerkit.samplers.chain import Context
from samplerkit.samplers.groups import FoldSampler, PKSampler
from samplerkit.samplers.mixing.mixture import MixtureSampler
from samplerkit.samplers.repeat import RepeatFactorSampler, RepeatSampler
from samplerkit.samplers.shuffled import DistributedSampler, RandomSampler, WeightedRandomSampler
from samplerkit.samplers.subset import (
    IterSampler,
    SequentialSampler,
    SubsetRandomSampler,
    SubsetSampler,
    WindowSampler,
)


class EvenOdd(Sampler):
    """A user's sampler with `draw`."""

    def draw(self, layout: Layout, context: Context) -> Ids:
        """Returns the even samples, then the odd ones."""
        ids = np.arange(len(layout))
        return np.concatenate([ids[::2], ids[1::2]])[: self.num_samples or None]


class Rotated(Sampler):
    """A user's sampler with `draw` and randomness from a key: a random rotation, as a list."""

    def draw(self, layout: Layout, context: Context) -> list[int]:
        """Returns the samples from a random one on, wrapping around."""
        start = int(context.key(seed=3, role="rotated").words(1)[0]) % max(1, len(layout))
        ids = list(range(len(layout)))
        return ids[start:] + ids[:start]


class Backwards(Sampler):
    """A user's sampler, written as for MindSpore."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.dataset_size - 1, -1, -1))


class Turning:
    """An iterable with `set_epoch` and without a length, as torch's samplers have it."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch, by which the ids turn."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        turn = self.epoch % len(self.ids)
        return iter(self.ids[turn:] + self.ids[:turn])


MAX_SHARDS = 4
MAX_SAMPLES = 24

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
Calls = st.SearchStrategy[SamplerCall]


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
counts = st.none() | st.integers(0, MAX_SAMPLES + 3)


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
        "adaptive_threshold": st.integers(0, MAX_SAMPLES),
        "lanes": st.none() | st.integers(1, 6),
    }


def _call(make: Callable[..., Sampler], **arguments: st.SearchStrategy[Any]) -> Calls:
    """Calls of a class, each argument drawn by itself."""
    return st.fixed_dictionaries(arguments).map(partial(SamplerCall, make))


def distributed_link(modes: list[Shuffle]) -> Calls:
    """A `DistributedSampler` in one of some modes."""
    return st.integers(1, MAX_SHARDS).flatmap(
        lambda num_shards: _call(
            DistributedSampler,
            num_shards=st.just(num_shards),
            shard_id=st.integers(0, num_shards - 1),
            offset=st.integers(-1, num_shards),
            num_samples=counts,
            **_mode_arguments(modes),
        )
    )


def random_link(modes: list[Shuffle]) -> Calls:
    """A `RandomSampler` in one of some modes."""
    fitting: dict[bool, list[Shuffle]] = {
        False: [mode for mode in modes if mode is not Shuffle.FALSE],
        True: [mode for mode in modes if mode in {Shuffle.GLOBAL, Shuffle.ADAPTIVE}],
    }
    return st.booleans().flatmap(
        lambda replacement: _call(
            RandomSampler,
            replacement=st.just(replacement),
            num_samples=counts,
            **_mode_arguments(fitting[replacement]),
        )
    )


def sequential_link(size: int) -> Calls:
    """A `SequentialSampler` over so many samples."""
    start = st.none() | st.integers(0, max(0, size - 1))
    return _call(SequentialSampler, start_index=start, num_samples=counts)


def _ids(size: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, size - 1), min_size=1, max_size=MAX_SAMPLES)


def subset_link(size: int) -> Calls:
    """A `SubsetSampler` over so many samples."""
    return _call(SubsetSampler, indices=_ids(size), num_samples=counts)


def subset_random_link(size: int) -> Calls:
    """A `SubsetRandomSampler` over so many samples."""
    return _call(SubsetRandomSampler, indices=_ids(size), num_samples=counts, seed=seeds)


def weighted_link(size: int) -> Calls:
    """A `WeightedRandomSampler` over so many samples."""

    def of(weights: list[float], *, replacement: bool) -> Calls:
        most = counts if replacement else st.integers(1, sum(entry > 0 for entry in weights))
        given, again = st.just(weights), st.just(replacement)
        return _call(WeightedRandomSampler, weights=given, num_samples=most, replacement=again, seed=seeds)

    weight = st.sampled_from([0.0, 1e-9, 0.5, 1.0, 3.0, 1e9])
    weights = st.lists(weight, min_size=1, max_size=size).filter(any)
    return weights.flatmap(lambda drawn: of(drawn, replacement=True) | of(drawn, replacement=False))


def pk_link(dataset_size: int) -> Calls:
    """A `PKSampler` with a label for each sample of the dataset."""
    kinds = (st.integers(0, 3), st.sampled_from(["cat", "dog", "owl"]))
    labels = (st.lists(kind, min_size=dataset_size, max_size=dataset_size) for kind in kinds)
    return _call(
        PKSampler,
        num_val=st.integers(1, 4),
        shuffle=st.booleans(),
        num_samples=counts,
        seed=seeds,
        labels=st.one_of(*labels),
    )


def iter_link(size: int) -> Calls:
    """An `IterSampler` over so many samples."""
    return _call(IterSampler, sampler=_ids(size) | _ids(size).map(Turning), num_samples=counts)


def mixture_link(sizes: Sequence[int]) -> Calls:
    """A `MixtureSampler` over sources of these sizes."""
    # Only sources with samples have a share.
    shares = st.tuples(*(st.integers(0, 4) if size else st.just(0) for size in sizes)).filter(any)
    return _call(
        MixtureSampler,
        weights=st.none() | shares.map(list),
        num_samples=counts,
        shuffle=st.booleans(),
        stop=st.sampled_from(["first", "all"]),
        lanes=st.integers(1, 3),  # by default, its length would depend on the number of shards
        seed=seeds,
    )


def user_link() -> Calls:
    """A sampler as a user writes one."""
    return st.sampled_from([EvenOdd, Rotated, Backwards]).flatmap(partial(_call, num_samples=counts))


def repeat_link() -> Calls:
    """A `RepeatSampler`."""
    return _call(RepeatSampler, repeats=st.integers(1, 4), num_samples=counts)


def repeat_factor_link(size: int) -> Calls:
    """A `RepeatFactorSampler` with a factor for each of so many samples."""
    factors = st.lists(st.sampled_from([0.0, 1e-9, 0.5, 1.0, 1.3, 3.7]), min_size=size, max_size=size)
    return _call(RepeatFactorSampler, factors=factors.filter(any), num_samples=counts, seed=seeds)


def window_link(longest: int) -> Calls:
    """A `WindowSampler` over files of which the longest holds so many samples."""
    sizes, strides = st.integers(1, longest), st.integers(1, 4)
    return _call(WindowSampler, size=sizes, stride=strides, num_samples=st.none() | counts)


def block_link(sizes: Sequence[int]) -> Calls:
    """A `BlockSampler` that reads files of these sizes, which are whole blocks."""
    common = math.gcd(*sizes) or 1
    pieces = [number for number in range(1, common + 1) if common % number == 0]
    return _call(BlockSampler, pool=st.integers(1, 5), seed=seeds, windows_per_block=st.sampled_from(pieces))


def fold_link(layout: Layout, dataset_size: int) -> Calls:
    """A `FoldSampler` over what a fixed chain yields, at least two samples."""
    labels = st.lists(st.integers(0, 3), min_size=dataset_size, max_size=dataset_size)
    # As many groups as samples: any of them is enough for as many folds.
    groups = st.permutations(range(dataset_size))
    options: list[dict[str, st.SearchStrategy[Any]]] = [{}, {"labels": labels}, {"groups": groups}]
    options += [{"by_files": st.just(True)}] * 2 * (layout.num_files > 1)

    def of(option: dict[str, st.SearchStrategy[Any]], num_folds: int) -> Calls:
        fold, number = st.integers(0, num_folds - 1), st.just(num_folds)
        common = {"held_out": st.booleans(), "num_samples": st.none() | counts, "seed": seeds}
        return _call(FoldSampler, num_folds=number, fold=fold, **option, **common)

    def folds(option: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[int]:
        return st.integers(2, min(5, layout.num_files if "by_files" in option else len(layout)))

    return st.sampled_from(options).flatmap(lambda option: folds(option).flatmap(partial(of, option)))
