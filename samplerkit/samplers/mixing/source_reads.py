"""How much a run has read of each source of a mixture, by the counts of its draws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.order.layout import Layout
from samplerkit.order.mixing.removed_positions import rows_before
from samplerkit.order.mixing.stream_algebra import Mix, WithoutRows
from samplerkit.order.mixing.streams import DrawnPositions, Part, Passes
from samplerkit.order.order import Order
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.mixing.mixture import MixtureSampler
from samplerkit.samplers.mixing.sources import mixed_parts


@final
@dataclass(frozen=True)
class SourceRead:
    """How much of a source was read since the run began.

    Args:
        samples: how many were drawn, those among them that an edit skipped.
        passes: how often it was read; 2.5 is two passes and half of the third one.
        tokens: samples times their mean length; None where the dataset has no lengths.
    """

    samples: int
    passes: float
    tokens: int | None = None


def source_reads(sampler: Sampler, dataset: Any, order: Order, position: int) -> dict[str, SourceRead]:
    """Counts what was drawn of each source of a mixture; nothing is read for it.

    Args:
        sampler: the outermost one of the chain.
        dataset: what it reads.
        order: that of an epoch.
        position: in that epoch.

    Returns:
        By the names of sources, those of nested mixtures as `outer/inner`. Empty where the chain reads no
        mixture whose sources continue from epoch to epoch.
    """
    mixture = sampler._links()[-1]
    if not isinstance(mixture, MixtureSampler) or not isinstance(order, Part) or not order.runs_on:
        return {}
    stream, lanes = order.stream, np.arange(order.stream.lanes)
    rows = rows_before(order.begin + position, lanes, stream.lanes)
    if isinstance(stream, WithoutRows):
        removed, stream = stream.removed, stream.source
        rows = np.array([removed.of_lane(lane).drawn(read) for lane, read in enumerate(rows)])
    if not isinstance(stream, Mix):
        return {}
    samplers = {**(mixture.sources or {}), **getattr(sampler, "new_sources", {})}
    return dict(_by_source(mixture, samplers, dataset, stream, DrawnPositions.of_lanes(rows)))


def _by_source(
    mixture: MixtureSampler, samplers: Mapping[str, Any], dataset: Any, mix: Mix, drawn: DrawnPositions
) -> Iterator[tuple[str, SourceRead]]:
    parts = mixed_parts(mixture.sources, Layout.of(dataset), dataset)
    lengths = mixture._part_lengths(dataset, parts)
    reads = mix.reads_in(drawn).tolist()
    for number, ((name, part), samples) in enumerate(zip(parts.items(), reads, strict=True)):
        stream, inner = mix.streams[number], samplers.get(name)
        if isinstance(stream, Mix) and isinstance(inner, MixtureSampler):
            nested = _by_source(inner, inner.sources or {}, part, stream, mix.drawn_of(number, drawn))
            yield from ((f"{name}/{path}", source_read) for path, source_read in nested)
        elif isinstance(stream, Passes) and samples:
            mean = lengths.mean(name, Passes(stream.orders, stream.lanes))
            tokens = None if mean is None else round(samples * mean)
            yield name, SourceRead(samples, stream.passes_in(samples), tokens)
