"""Whether a chain reads the same samples in each pass: only then ids can leave it, and lengths stay known."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from samplerkit.errors import NotSupportedError
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.mixed_parts import mixed_parts
from samplerkit.samplers.mixture import MixtureSampler
from samplerkit.samplers.random import RandomSampler
from samplerkit.samplers.repeat import RepeatSampler
from samplerkit.samplers.sequential import SequentialSampler
from samplerkit.samplers.subset import SubsetRandomSampler


def require_one_set(
    place: str,
    sampler: Sampler | None,
    dataset: Any,
    ids: Ids,
    added: Mapping[str, Sampler | None] = MappingProxyType({}),
) -> None:
    """Refuses to take ids out of what reads other samples in each pass.

    Args:
        place: for the error.
        sampler: the chain that reads the dataset; None for all of it.
        dataset: a dataset, a layout or a number.
        ids: those that leave.
        added: the sources that edits add to the mixture.

    Raises:
        NotSupportedError: it does, or one of its sources that holds some of the ids.
    """
    if sampler is None or not ids.size:
        return
    if isinstance(sampler, MixtureSampler) and sampler.is_by_dice and sampler.get_child() is None:
        if sampler.stop == "once" or sampler.passes == "restart":
            problem = "says without, and the passes of this mixture begin anew in each epoch"
            raise NotSupportedError(place, problem, sampler, mend="say passes='run_on'")
        start, sources = 0, {**(sampler.sources or {}), **added}
        for name, part in mixed_parts(sampler.sources, Layout.of(dataset), dataset).items():
            end = start + len(Layout.of(part))
            inside = ids[(ids >= start) & (ids < end)] - start
            require_one_set(f"{place}, source {name}", sources.get(name), part, inside)
            start = end
    elif not _reads_one_set(sampler, dataset):
        problem = "says without, and this reads other samples in each pass"
        mend = "ids can leave what reads all of a fixed set in each pass"
        raise NotSupportedError(place, problem, sampler, mend=mend)


def _reads_one_set(sampler: Sampler, dataset: Any) -> bool:
    """Tells whether each epoch of a chain has the same samples, each as often."""
    below, is_listed = len(Layout.of(dataset)), True
    for link in sampler._links()[::-1]:
        size = len(link.undealt_order(dataset))
        if isinstance(link, RandomSampler):
            if link.replacement or size != below:
                return False
            is_listed = False
        elif isinstance(link, SubsetRandomSampler):
            if not is_listed:
                return False
            is_listed = False
        elif isinstance(link, RepeatSampler) and not is_listed:
            if size != below * link.repeats:
                return False
        elif not link.is_fixed or not (is_listed or (isinstance(link, SequentialSampler) and size == below)):
            return False
        below = size
    return True
