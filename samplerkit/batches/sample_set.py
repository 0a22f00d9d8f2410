"""Facts about a chain of samplers for batches: its seed, whether it shuffles, and the set that it reads."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentRangeError
from samplerkit.order.keys import ALGORITHM
from samplerkit.order.layout import Layout
from samplerkit.order.modes import FILE_AWARE, Shuffle
from samplerkit.order.sequences import Range
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.iteration import checked_ids
from samplerkit.samplers.shuffled import DistributedSampler, RandomSampler
from samplerkit.samplers.subset import SubsetRandomSampler


@dataclass(frozen=True, eq=False)
class SampleSet:
    """A set of samples that a chain reads whole in each epoch.

    Args:
        size: the number of samples.
        ids: of the samples, int64 of shape (size,); None for those in [0, size).
    """

    size: int
    ids: Ids | None = None


def seed_of(sampler: Sampler) -> int:
    """Returns the outermost seed of a chain, or 0: keys of batches and of draws are made from it.

    An attribute `seed` of a user's sampler that is not an integer in [0, 2^64) is ignored.

    Example:
        >>> import samplerkit as sk
        >>> seed_of(sk.RandomSampler(seed=7)), seed_of(sk.SequentialSampler())
        (7, 0)
    """
    seeds = (getattr(link, "seed", None) for link in sampler._links())
    numbers = (seed for seed in seeds if isinstance(seed, int | np.integer))
    return next((int(seed) for seed in numbers if 0 <= seed < 2**64), 0)


def shuffles(sampler: Sampler) -> bool:
    """Returns whether a chain shuffles: only then batches may be read in another order than its own.

    Example:
        >>> import samplerkit as sk
        >>> shuffles(sk.DistributedSampler(2, 0, shuffle=False)), shuffles(sk.RandomSampler())
        (False, True)
    """
    seeded = [link for link in sampler._tree() if hasattr(link, "seed") and not link.is_fixed]
    return any(getattr(link, "shuffle", True) not in (False, Shuffle.FALSE) for link in seeded)


def find_set(sampler: Sampler, dataset: Any) -> SampleSet | None:
    """Finds the set that a chain reads whole and once in each epoch, in a random order over all files.

    Returns:
        The set, its ids ascending. None for every other chain: file-aware, mixed, weighted, of a user's
        sampler, of a list with repeats, with a distributed sampler below the root, or of an algorithm that
        replays another package.
    """
    if sampler.chain.algorithm != ALGORITHM or not shuffles(sampler):
        return None
    # From the dataset outwards: first the samplers that only list samples; the list is the set.
    links = sampler._links()[::-1]
    listed = 0
    while listed < len(links) and links[listed].is_fixed:
        listed += 1
    chosen = (
        _listed(links[listed - 1].undealt_order(dataset)) if listed else SampleSet(len(Layout.of(dataset)))
    )
    for depth, link in enumerate(links[listed:], listed):
        if chosen is None:
            return None
        if isinstance(link, SubsetRandomSampler) and depth == listed:
            # It lists samples as well, and shuffles its list: these samples are the set.
            places = checked_ids(link.indices[: link.num_samples or None], chosen.size, type(link).__name__)
            chosen = _listed(places if chosen.ids is None else chosen.ids[places])
        elif not _reads_all(link, dataset if depth == 0 else chosen.size, is_root=depth == len(links) - 1):
            return None
    if chosen is None or chosen.ids is None:
        return chosen
    # Sorted, so that the plan does not depend on the order of the list.
    return SampleSet(chosen.size, np.sort(chosen.ids))


def require_uncut(sampler: Sampler, size: int) -> None:
    """Checks that no `num_samples` cuts the order of a set: a plan of a whole set has no first samples.

    Raises:
        ArgumentRangeError: a random or distributed sampler of the chain cuts it.
    """
    for link in sampler._links():
        if not isinstance(link, RandomSampler | DistributedSampler) or not link.num_samples:
            continue
        if link.num_samples < size or isinstance(link, DistributedSampler):
            problem = "cannot limit batches that are made of a whole set, not along an order"
            hint = "use num_batches of the recipe, or window= for batches along the order"
            raise ArgumentRangeError("num_samples", problem, link.num_samples, hint=hint)


def _reads_all(link: Sampler, dataset: Any, *, is_root: bool) -> bool:
    """Returns whether a sampler reads everything below it once, shuffled over all files, or in its order."""
    if not isinstance(link, RandomSampler | DistributedSampler):
        return False
    if isinstance(link, DistributedSampler) and not is_root:
        return False
    if isinstance(link, RandomSampler) and link.replacement:
        return False
    if link.shuffle in FILE_AWARE:
        return False  # also over a list of samples, where their files are not known
    mode = link.mode.resolve(Layout.of(dataset))
    return mode is Shuffle.GLOBAL or (mode is Shuffle.FALSE and link.get_child() is not None)


def _listed(ids: Any) -> SampleSet | None:
    """Returns the listed samples as a set, in the order of the list; None if one occurs twice."""
    if isinstance(ids, Range) and ids.start == 0:
        return SampleSet(len(ids))
    array = np.asarray(ids)
    return None if np.unique(array).size < array.size else SampleSet(array.size, array)
