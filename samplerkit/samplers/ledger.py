"""The ledger: a run whose order is edited from a position on, while all before stays as it was."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import ArgumentValueError, CompositionError
from samplerkit.order.layout import Layout
from samplerkit.order.once import once
from samplerkit.order.order import Order
from samplerkit.order.part import Part
from samplerkit.order.streams import Passes, Stream
from samplerkit.samplers.alike import read_alike
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.context import Context, RunConstants
from samplerkit.samplers.edit import Edit, chained, checked_edits, edit_of, edits_in
from samplerkit.samplers.edited import added, edited, require_removable, shares


@final
class Ledger(Sampler):
    """Reads by another sampler, and lets the order be edited behind what was read, epoch after epoch.

    An edit says what becomes different from a position on: see `Edit`. The run stays exactly-once, on any
    number of ranks: what an edit takes out is never read, and all else comes once. A ledger without edits
    reads what its sampler reads, and takes the states of its sampler.

    Args:
        sampler: the chain of samplers that is read; or it is added as a child.
        edits: in the order of their positions.
        edits_file: a file that keeps all edits, one a line, also those that `loader.edit` makes. One that is
            there is read; `edits` must then be the first ones of it, or begin with all of it.

    Raises:
        ArgumentTypeError: `sampler` is no sampler, or `edits` no list of edits.
        ArgumentValueError: an edit lies before the one that stands ahead of it; or `edits_file` cannot be
            read, or holds other edits.
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
            self.edits = _joined(self.edits, edits_in(edits_file), edits_file)
        self._streams: tuple[Any, int, tuple[Stream, int]] | None = None
        self.add_child(sampler)
        if sampler is not None:
            self._require_undealt()

    def arguments(self) -> dict[str, Any]:
        """Gives the constructor's arguments by name; the sampler is the child."""
        return {"edits": list(self.edits), "edits_file": self.edits_file}

    def edited(self, edit: Edit) -> Ledger:
        """Gives the ledger with one more edit; this one stays as it is, and so does the file.

        Raises:
            ArgumentTypeError: no edit.
            ArgumentValueError: it lies before the last one, or `edits_file` cannot keep a sampler in it.
        """
        made = Ledger(self.get_child())
        edits = checked_edits((*self.edits, edit))
        if self.edits_file is not None:
            edit_of(edit.said)  # a file keeps only what can be read again
        made.__dict__.update(edits=edits, edits_file=self.edits_file)
        return made

    @once
    def digests(self) -> list[str]:
        """The chained digests of the first 0, 1, 2 ... edits."""
        return chained(self.edits)

    def past(self, position: int) -> int:
        """Tells how many edits lie before a position of the run."""
        return int(np.searchsorted(self._ats, position, side="left"))

    @once
    def ramp(self) -> tuple[tuple[int, int], ...]:
        """The positions of the run from which a step has another number of samples, and that number."""
        return tuple((edit.at, edit.global_batch) for edit in self.edits if edit.global_batch is not None)

    @once
    def new_sources(self) -> dict[str, Sampler | None]:
        """The parts that edits add to the mixture, and the sampler of each."""
        return added(self.edits)

    def draw(self, layout: Layout, context: Context) -> Order:
        """Orders an epoch of the run, by the dataset's layout: the child is read beyond one epoch."""
        stream, length = self._stream(context)
        return Part(stream, context.epoch * length, length)

    def _stream(self, context: Context) -> tuple[Stream, int]:
        """The edited stream, and the positions of an epoch; the last one made is kept."""
        made = self._streams
        if made is None or made[0] is not context.dataset or made[1] != context.lanes:
            made = (context.dataset, context.lanes, self._made(context.dataset, context.lanes))
            self._streams = made
        return made[2]

    def _made(self, dataset: Any, run_lanes: int) -> tuple[Stream, int]:
        child = self.get_child()
        if child is None:
            raise CompositionError("Ledger", "has no sampler to read by", mend="give it one")
        self._require_undealt()
        constants = RunConstants(run_lanes)

        order_at = _Epochs(child, dataset, constants)
        length = len(order_at(0))
        if not length:
            raise ArgumentValueError("dataset", "holds no samples to read", length)
        require_removable(self.edits, child, dataset)
        layout, stream = Layout.of(dataset), None
        if child.get_child() is None:
            stream = child.stream(layout, Context(0, 0, run_lanes, dataset), self.new_sources)
        if stream is None:
            stream = Passes(order_at, child.woven_lanes(dataset, constants), "sampler")
        return edited(stream, self.edits, shares(self.edits, child, layout)), length

    def _require_undealt(self) -> None:
        if self.is_distributed:
            raise CompositionError(
                "Ledger",
                "reads what all ranks read together, and the chain holds a distributed sampler",
                mend="leave it out: a loader deals to the ranks by itself",
            )

    @once
    def _ats(self) -> np.ndarray[Any, Any]:
        return np.array([edit.at for edit in self.edits], dtype=np.int64)

    def __getstate__(self) -> dict[str, Any]:
        """A stream is made again where it is wanted."""
        return {**self.__dict__, "_streams": None}


@dataclass(frozen=True, eq=False)
class _Epochs:
    """Gives the order of each epoch of a chain."""

    sampler: Sampler
    dataset: Any
    constants: RunConstants

    def __call__(self, epoch: int) -> Order:
        return self.sampler.undealt_order(self.dataset, epoch, constants=self.constants)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Epochs) or self.constants != other.constants:
            return False
        return read_alike(self.sampler, self.dataset, other.sampler, other.dataset)

    def __hash__(self) -> int:
        return hash(self.constants)


def _joined(
    given: tuple[Edit, ...], kept: tuple[Edit, ...], path: str | os.PathLike[str]
) -> tuple[Edit, ...]:
    """Joins the edits that are given to those that a file keeps: one begins with all of the other."""
    shorter, longer = sorted((given, kept), key=len)
    if longer[: len(shorter)] != shorter:
        number = next(n for n, (one, other) in enumerate(zip(given, kept, strict=False)) if one != other)
        raise ArgumentValueError(
            f"edits[{number}]",
            f"is another one in the file {os.fspath(path)}, which says {kept[number]}",
            given[number],
            mend="leave the edits out: the file has all of them",
        )
    return longer
