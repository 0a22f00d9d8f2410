"""The ledger: a run whose order is edited from a position on, while all before stays as it was."""

from __future__ import annotations

import bisect
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import ArgumentValueError, CompositionError, NotSupportedError
from samplerkit.order.caching import Latest, cached_property
from samplerkit.order.layout import Layout
from samplerkit.order.mixing.stream_algebra import Mix
from samplerkit.order.mixing.streams import Passes
from samplerkit.order.order import Order
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.chain import Context, RunConstants
from samplerkit.samplers.mixing.edit import Edit, chained, checked_edits, edit_from_fields, read_edits
from samplerkit.samplers.mixing.edited_stream import RunStream, edited
from samplerkit.samplers.mixing.mixture import Blend, MixtureSampler
from samplerkit.samplers.mixing.sources import EpochOrders, mixed_parts, require_shares, require_undealt
from samplerkit.samplers.repeat import RepeatSampler
from samplerkit.samplers.shuffled import RandomSampler
from samplerkit.samplers.subset import SequentialSampler, SubsetRandomSampler

_DEALER_HINT = "use RandomSampler with the same arguments, which reads the same order"
"""What becomes of a distributed sampler, since nothing is put above a ledger."""


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
        ArgumentTypeError: `sampler` is no sampler, or `edits` no list of edits.
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
        child, layout = self.get_child(), Layout.of(context.dataset)
        if child is None:
            raise CompositionError("Ledger", "has no sampler to read by", hint="give it one")
        require_undealt("Ledger", self, "it", _DEALER_HINT)
        orders = EpochOrders(child, context.dataset, RunConstants(context.lanes))
        length = len(orders(0))
        if not length:
            raise ArgumentValueError("dataset", "holds no samples to read", length)
        require_removable(self.edits, child, context.dataset, self.new_sources)
        stream: Passes | Mix = Passes(orders, orders.woven, "sampler")
        caps, first, weights = dict[int, int](), list[float](), shares(self.edits, child, layout)
        if isinstance(child, MixtureSampler) and child.get_child() is None:
            begin = replace(context, epoch=0, depth=0, child=None)
            blend = Blend(child, layout, begin, added=self.new_sources)
            if not blend.restarts:
                stream, caps, first = blend.mix, blend.caps, blend.weights
                weights = {
                    at: blend.shares_of_draws(new, f"edit at {at}: weights") for at, new in weights.items()
                }
        return edited(stream, self.edits, weights, caps, first), length


def _join_edits(
    given: tuple[Edit, ...], saved: tuple[Edit, ...], path: str | os.PathLike[str]
) -> tuple[Edit, ...]:
    """Joins the edits that are given to those that a file keeps: one begins with all of the other."""
    shorter, longer = sorted((given, saved), key=len)
    if longer[: len(shorter)] != shorter:
        number = next(n for n, (one, other) in enumerate(zip(given, saved, strict=False)) if one != other)
        problem = f"is another one in the file {os.fspath(path)}, which says {saved[number]}"
        hint = "leave the edits out: the file has all of them"
        raise ArgumentValueError(f"edits[{number}]", problem, given[number], hint=hint)
    return longer


def shares(edits: Sequence[Edit], sampler: Any, layout: Layout) -> dict[int, list[float]]:
    """Returns the weights of edits by their positions, one for each part of a tree in the order of ids.

    Raises:
        NotSupportedError: the sampler mixes no parts with names.
        ArgumentValueError: an edit names no source of the sampler, or lacks one; or it adds a source that
            is there, or is no part of the dataset.
    """
    by_position = {}
    sources, parts = dict.fromkeys(getattr(sampler, "sources", None) or ()), layout.parts
    for edit in edits:
        if edit.weights is None:
            continue
        place = f"edit at {edit.at}"
        if not sources:
            raise NotSupportedError(place, "says weights, and this mixes no sources with names", sampler)
        for name in edit.new_sources:
            if name in sources:
                raise ArgumentValueError(place, "adds a source that is there", name)
            if name not in parts:
                hint = f"parts: {', '.join(parts)}"
                raise ArgumentValueError(place, "adds what is no part of the dataset", name, hint=hint)
            sources[name] = None
        require_shares(f"{place}: weights", edit.weights, sources)
        by_position[edit.at] = [edit.weights.get(name, 0.0) for name in parts]
    return by_position


def require_removable(
    edits: Sequence[Edit], sampler: Sampler, dataset: Any, added: Mapping[str, Sampler | None]
) -> None:
    """Refuses to remove ids that do not exist, or ids of a source that reads other samples in each pass.

    Args:
        edits: all of them.
        sampler: the chain that reads the dataset.
        dataset: a dataset, a layout or a number.
        added: the sources that edits add to a mixture.

    Raises:
        NotSupportedError: the sampler does that.
        ArgumentValueError: the dataset has no such id.
    """
    size = len(Layout.of(dataset))
    for edit in edits:
        if edit.without is None:
            continue
        ids = np.asarray(edit.without)
        if ids.size and ids[-1] >= size:
            problem = f"says without an id that is not in a dataset of {size}"
            raise ArgumentValueError(f"edit at {edit.at}", problem, int(ids[-1]))
        _require_fixed_set(f"edit at {edit.at}", sampler, dataset, ids, added)


def _require_fixed_set(
    place: str, sampler: Sampler | None, dataset: Any, ids: Ids, added: Mapping[str, Sampler | None]
) -> None:
    if sampler is None or not ids.size:
        return
    if isinstance(sampler, MixtureSampler) and sampler.get_child() is None:
        if sampler.stop == "once" or sampler.passes == "restart":
            problem = "says without, and the passes of this mixture begin again in each epoch"
            raise NotSupportedError(place, problem, sampler, hint="use passes='run_on'")
        start, sources = 0, {**(sampler.sources or {}), **added}
        for name, part in mixed_parts(sampler.sources, Layout.of(dataset), dataset).items():
            end = start + len(Layout.of(part))
            inside, source = ids[(ids >= start) & (ids < end)] - start, sources.get(name)
            if inside.size and isinstance(source, MixtureSampler) and source.max_passes:
                # Its passes would become shorter, but the positions of its caps would not move.
                problem = "says without, of what a nested mixture with caps on its passes reads"
                raise NotSupportedError(f"{place}, source {name}", problem, source.max_passes)
            _require_fixed_set(f"{place}, source {name}", source, part, inside, {})
            start = end
    elif not _reads_fixed_set(sampler, dataset):
        problem = "says without, and this reads other samples in each pass"
        hint = "ids can leave what reads all of a fixed set in each pass"
        raise NotSupportedError(place, problem, sampler, hint=hint)


def _reads_fixed_set(sampler: Sampler, dataset: Any) -> bool:
    """Returns whether each epoch of a chain has the same samples, equally often."""
    inner_size, is_listed = len(Layout.of(dataset)), True
    for link in sampler._links()[::-1]:
        size = len(link.undealt_order(dataset))
        may_read_all = isinstance(link, RandomSampler | RepeatSampler | SequentialSampler)
        reads_all = may_read_all and size == inner_size * getattr(link, "repeats", 1)
        if getattr(link, "replacement", False):
            return False
        if not reads_all and not (is_listed and (link.is_fixed or isinstance(link, SubsetRandomSampler))):
            return False
        inner_size, is_listed = size, is_listed and link.is_fixed
    return True
