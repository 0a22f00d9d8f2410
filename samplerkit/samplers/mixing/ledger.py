"""The ledger: a run whose order is edited from a position on, while all before stays as it was."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import ArgumentValueError, CompositionError, NotSupportedError
from samplerkit.order.caching import Latest, cached_property
from samplerkit.order.layout import Layout
from samplerkit.order.mixing.removed_positions import RemovedPositions
from samplerkit.order.mixing.stream_algebra import Change, Mix, RunStream, WithoutRows, edited
from samplerkit.order.mixing.streams import DrawnPositions, Part, Passes
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import Context, RunConstants
from samplerkit.samplers.mixing.edit import Edit, chained, checked_edits, edit_from_fields, read_edits
from samplerkit.samplers.mixing.mixture import Blend, MixtureSampler
from samplerkit.samplers.mixing.sources import EpochOrders, require_known, require_shares, require_undealt

_DEALER_HINT = "use RandomSampler with the same arguments, which reads the same order"
"""The hint for a distributed sampler: a ledger must be outermost, and the loader deals."""


@final
class Ledger(Sampler):
    """Reads by another sampler, whose order can be edited after the samples that were read.

    An edit changes the order from a position on: see `Edit`. The run stays exactly-once, on any number of
    ranks: removed samples are never read, and all others once. A ledger without edits reads what its sampler
    reads, and loads the states of its sampler.

    Args:
        sampler: the chain of samplers that is read; or it is added as a child.
        edits: in the order of their positions.
        edits_file: a file that keeps all edits, one a line, also those that `loader.edit` makes. An existing
            file is read; `edits` must then be the first edits in it, or begin with all of them.

    Raises:
        ArgumentTypeError: `sampler` is not a sampler, or `edits` is not a list of edits.
        ArgumentValueError: an edit is before the previous one, or two say weights, or a global batch, at one
            position; or `edits_file` cannot be read, or holds other edits.
        CompositionError: the chain holds a distributed sampler, or a ledger.

    Example:
        >>> import samplerkit as sk
        >>> ledger = sk.Ledger(sk.SequentialSampler(), edits=[sk.Edit(at=3, skip=2)])
        >>> list(ledger.order(8)), list(ledger.order(8, epoch=1))
        ([0, 1, 2, 5, 6, 7, 0, 1], [2, 3, 4, 5, 6, 7, 0, 1])
    """

    reads_below = True
    reads_a_stream = True

    def __init__(
        self,
        sampler: Sampler | None = None,
        edits: Sequence[Edit] = (),
        edits_file: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        self.edits_file: Final = edits_file
        self.edits: tuple[Edit, ...] = checked_edits(edits)
        if edits_file is not None:
            self.edits = _join_edits(self.edits, read_edits(edits_file), edits_file)
        self._streams: Final = Latest[tuple[RunStream, int, Any]]()
        self.add_child(sampler)
        if sampler is not None:
            require_undealt("Ledger", sampler, "it", _DEALER_HINT)

    def arguments(self) -> dict[str, Any]:
        """Returns the constructor's arguments by name; the sampler is the child."""
        return {"edits": list(self.edits), "edits_file": self.edits_file}

    def edited(self, edit: Edit) -> Ledger:
        """Returns the ledger with one more edit; this one and the file do not change.

        Raises:
            ArgumentTypeError: no edit.
            ArgumentValueError: it is before the last one, or says again what that says at its position; or
                `edits_file` cannot keep a sampler in it.
        """
        ledger = Ledger(self.get_child())
        edits = checked_edits((*self.edits, edit))
        if self.edits_file is not None:
            edit_from_fields(edit.fields)  # a file keeps only edits that can be read again
        ledger.__dict__.update(edits=edits, edits_file=self.edits_file)
        return ledger

    @cached_property
    def digests(self) -> list[str]:
        """The chained digests of the first 0, 1, 2 ... edits."""
        return chained(self.edits)

    def past(self, position: int) -> int:
        """Returns how many edits are before a position of the run."""
        return bisect.bisect_left(self.edits, position, key=lambda edit: edit.at)

    @cached_property
    def ramp(self) -> tuple[tuple[int, int], ...]:
        """The positions of the run from which a step has another number of samples, and that number."""
        return tuple((edit.at, edit.global_batch) for edit in self.edits if edit.global_batch is not None)

    @cached_property
    def new_sources(self) -> dict[str, Sampler | None]:
        """The parts that edits add to the mixture, and the sampler of each."""
        return {name: sampler for edit in self.edits for name, sampler in edit.new_sources.items()}

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders an epoch of the run, by the dataset's layout: the child is read beyond one epoch."""
        # The dataset is kept with its stream, so that no other object gets its id().
        key = (id(context.dataset), context.lanes)
        stream, length, _ = self._streams.get(key, lambda: (*self._stream(context), context.dataset))
        return stream.epoch(context.epoch * length, length)

    def _stream(self, context: Context) -> tuple[RunStream, int]:
        """Returns the samples of the run with edits, epoch after epoch, and the length of an epoch."""
        child = self.get_child()
        if child is None:
            raise CompositionError("Ledger", "has no child", hint="give it one")
        require_undealt("Ledger", self, "it", _DEALER_HINT)
        orders = EpochOrders(child, context.dataset, RunConstants(context.lanes))
        length = len(orders(0))
        if not length:
            raise ArgumentValueError("dataset", "holds no samples to read", length)
        blend = Blend.of(child, replace(context, epoch=0, depth=0, child=None), added=self.new_sources)
        source = Passes(orders, orders.woven, "sampler") if blend is None else blend
        changes = _changes(self.edits, child, source, len(Layout.of(context.dataset)))
        if isinstance(source, Passes):
            return edited(source, [*changes]), length
        return edited(source.mix, [*changes], source.caps, source.weights), length


def _join_edits(
    given: tuple[Edit, ...], saved: tuple[Edit, ...], path: str | os.PathLike[str]
) -> tuple[Edit, ...]:
    """Joins the edits that are given to those that a file keeps: one begins with all of the other."""
    shorter, longer = sorted((given, saved), key=len)
    if longer[: len(shorter)] != shorter:
        number = next(n for n, (one, other) in enumerate(zip(given, saved, strict=False)) if one != other)
        problem = f"differs from the one in the file {os.fspath(path)}, which is {saved[number]}"
        hint = "leave the edits out: the file has all of them"
        raise ArgumentValueError(f"edits[{number}]", problem, given[number], hint=hint)
    return longer


def _changes(edits: Sequence[Edit], sampler: Sampler, source: Passes | Blend, size: int) -> Iterator[Change]:
    """Yields edits with weights of all parts of the dataset, in the order of ids.

    Args:
        edits: all of them.
        sampler: the chain that reads the dataset.
        source: what it reads.
        size: of the dataset.

    Raises:
        NotSupportedError: the sampler mixes no parts with names, or reads other samples in each pass.
        ArgumentValueError: an edit names no source of the sampler, or lacks one; it adds a source that is
            there, or is not a part of the dataset; or it removes an id that does not exist.
    """
    sources = dict(getattr(sampler, "sources", None) or {})
    for edit in edits:
        place, weights = f"edit at {edit.at}", None
        if edit.weights is not None:
            if not sources:
                raise NotSupportedError(place, "changes weights, but there are no named sources", sampler)
            weights = _shares(place, edit, sources, source)
            sources |= edit.new_sources
        if edit.without is not None:
            ids = np.asarray(edit.without)
            if ids[-1] >= size:
                problem = f"removes an id that is not in a dataset of {size}"
                raise ArgumentValueError(place, problem, int(ids[-1]))
            _require_fixed_set(place, source, ids)
        yield Change(edit.at, weights, edit.skip, edit.without)


def _shares(place: str, edit: Edit, sources: Mapping[str, Any], source: Passes | Blend) -> list[float]:
    """Returns the weights of an edit, one for each part of a tree."""
    if isinstance(source, Passes):
        problem = "changes weights, but the passes of this mixture begin again in each epoch"
        raise NotSupportedError(place, problem, hint="use passes='run_on'")
    for name in edit.new_sources:
        if name in sources:
            raise ArgumentValueError(place, "adds a source that exists", name)
    require_known(place, edit.new_sources, source.sources, "adds a source that is not a part of the dataset")
    given = edit.weights or {}
    require_shares(f"{place}: weights", given, {**sources, **edit.new_sources})
    return source.shares_of_draws([given.get(name, 0.0) for name in source.sources], f"{place}: weights")


def _require_fixed_set(place: str, source: Passes | Blend, ids: Ids) -> None:
    """Refuses to remove ids of a source that reads other samples in each pass."""
    if isinstance(source, Blend):
        for name, inner, own_ids in source.split(ids):
            if isinstance(inner, Blend) and inner.caps:
                # Its passes would become shorter, but the positions of its caps would not move.
                problem = "removes ids from a nested mixture with caps on its passes"
                raise NotSupportedError(f"{place}, source {name}", problem, inner.mixture.max_passes)
            _require_fixed_set(f"{place}, source {name}", inner, own_ids)
    elif isinstance(source.orders, EpochOrders) and not source.orders.is_of_fixed_set:
        sampler = source.orders.sampler
        problem = "removes ids, but this source reads other samples in each pass"
        hint = "ids can be removed from sources that read all of a fixed set in each pass"
        if isinstance(sampler, MixtureSampler) and sampler.get_child() is None:
            problem = "removes ids, but the passes of this mixture begin again in each epoch"
            hint = "use passes='run_on'"
        raise NotSupportedError(place, problem, sampler, hint=hint)


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
    if not isinstance(order, Part) or not order.runs_on:
        return {}
    stream: Any = order.stream
    removed = RemovedPositions(stream.lanes)
    if isinstance(stream, WithoutRows):
        stream, removed = stream.source, stream.removed
    context, added = Context(0, lanes=stream.lanes, dataset=dataset), getattr(sampler, "new_sources", {})
    blend = Blend.of(sampler._links()[-1], context, added=added)
    if blend is None or not isinstance(stream, Mix):
        return {}
    at = np.array([order.begin + position])
    rows = np.concatenate([removed.drawn_before(at, lane) for lane in range(stream.lanes)])
    return dict(_reads(blend, stream, DrawnPositions.of_lanes(rows)))


def _reads(blend: Blend, mix: Any, drawn: DrawnPositions) -> Iterator[tuple[str, SourceRead]]:
    """Counts what was drawn of each source of a mixture."""
    reads = mix.reads_in(drawn).tolist()
    for number, ((name, source), samples) in enumerate(zip(blend.sources.items(), reads, strict=True)):
        stream = mix.streams[number]  # with edits; `source` is as it was before them
        if isinstance(source, Blend):
            nested = _reads(source, stream, mix.drawn_of(number, drawn))
            yield from ((f"{name}/{path}", read) for path, read in nested)
        elif samples:
            mean = blend.lengths.mean(name, source)
            tokens = None if mean is None else round(samples * mean)
            yield name, SourceRead(samples, stream.passes_in(samples), tokens)
