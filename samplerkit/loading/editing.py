"""Editing a run under way: when that is legal, and how the ranks agree on it."""

from __future__ import annotations

import os
from abc import ABC
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError, CompositionError
from samplerkit.loading.agreement import job_agreement
from samplerkit.loading.cursor import Cursor
from samplerkit.loading.reading import Reading
from samplerkit.loading.readings import Readings
from samplerkit.loading.run import Run
from samplerkit.loading.run_edits import require_divided
from samplerkit.loading.run_tokens import ledger_below
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.edit import Edit, lines_of
from samplerkit.samplers.ledger import Ledger
from samplerkit.storage.atomic import atomic


class Editable(ABC):
    """What a loader that reads by a ledger can be told while it reads."""

    _run: Run
    _cursor: Cursor
    _readings: Readings
    _agreement_seconds: float

    @property
    def sampler(self) -> Sampler:
        """The recipe, with all edits if it is a ledger."""
        return self._run.recipe

    @property
    def editable_from(self) -> int:
        """The first position of the run that may be edited: all samples before it were asked for.

        That is what was handed out, and what workers, a device or `run_ahead` fetch before it is wanted.
        """
        at = self._cursor.at
        return max(self._run.requested.position, self._run.run_position(at.epoch, at.start))

    def edit(self, edit: Edit | None = None, /, **said: Any) -> int:
        """Edits the run from a position on, and gives that position. The loader must read by a `Ledger`.

        Every rank makes the same edit, at any time before the step at its position; there the ranks compare
        all their edits. The first rank writes it into the `edits_file` of the ledger.

        Args:
            edit: the edit; or:
            **said: its arguments, by name; without `at`, it applies at `editable_from`.

        Returns:
            The position: that of the edit; with `batches`, the next border of a window, at or behind it.

        Raises:
            ArgumentTypeError: no edit, or an argument of it has the wrong type.
            NotSupportedError: the run, or its batches, cannot be edited so.
            ArgumentValueError: the edit lies before another one, or says a `global_batch` that the ranks do
                not divide.
            ArgumentRangeError: it lies before `editable_from`, or a number of it is out of range.
            CompositionError: the loader does not read by a ledger.

        Example:
            >>> import samplerkit as sk
            >>> loader = sk.Loader(range(10), sk.Ledger(sk.SequentialSampler()), batch_size=2)
            >>> for batch in loader:
            ...     if loader.step == 2:
            ...         applies_at = loader.edit(skip=4)
            ...     print(batch.tolist())
            [0, 1]
            [2, 3]
            [8, 9]
            [0, 1]
            [2, 3]
        """
        if edit is not None and (said or not isinstance(edit, Edit)):
            raise ArgumentTypeError("edit", "must be an Edit, or the arguments of one", edit)
        run = self._run
        ledger = _ledger_of(run)
        with run.requested.lock:
            first = self.editable_from
            edit = Edit(**{"at": first, **said}) if edit is None else edit
            if edit.at < first:
                problem = f"lies before position {first}, up to which samples were asked for"
                raise ArgumentRangeError("at", problem, edit.at, mend="say that position, or a later one")
            edit = run.at_a_border(edit)
            edited = ledger.edited(edit)
            edited.undealt_order(run.dataset, constants=run.constants)
            if edit.global_batch is not None:
                require_divided(edited, edit.at, run.world.num_shards)
            if run.world.shard_id == 0 and edited.edits_file is not None:
                _write(edited.edits, edited.edits_file)
            run.take_edit(edited)
            return edit.at

    def _comes(self, reading: Reading, step: int) -> bool:
        """Tells whether a step comes; the ranks compare their edits before the first step that one changes.

        Args:
            reading: as the iteration began it.
            step: what is handed out next.

        Raises:
            DisagreementError: another rank has other edits, or did not come in time.
        """
        run = self._run
        ledger, agreed = run.recipe, run.agreed
        if run.requested.edition:
            reading = self._readings(reading.epoch, reading.start)
        if not reading.has(step):
            return False
        if ledger is not agreed and isinstance(ledger, Ledger) and isinstance(agreed, Ledger):
            end = run.run_position(reading.epoch, reading.delivery.position_after(step + 1))
            if end > ledger.edits[len(agreed.edits)].at:
                self._agree_on(ledger)
        return True

    def _agree_on(self, ledger: Ledger) -> None:
        run = self._run
        agreement = job_agreement() if run.world.num_shards > 1 else None
        if agreement is not None:
            dataset, sampler = run.described
            identity = {
                "dataset": dataset,
                "sampler": sampler,
                "edits": f"{len(ledger.edits)}, of digest {ledger.digests[-1]}",
                "last": repr(ledger.edits[-1]),
            }
            agreement.require(identity, self._agreement_seconds, alone=False)
        run.agreed = ledger


def _write(edits: Sequence[Edit], path: str | os.PathLike[str]) -> None:
    try:
        with atomic(Path(path)) as file:
            file.write(lines_of(edits).encode())
    except OSError as error:
        problem = f"cannot be written ({error.strerror})"
        raise ArgumentValueError("edits_file", problem, os.fspath(path)) from None


def _ledger_of(run: Run) -> Ledger:
    if run.ledger is None:
        mend = "read by Ledger(sampler): it takes the states of the sampler alone"
        if ledger_below(run.recipe) is not None:
            mend = "save a state, and start with a ledger below the BlockSampler that has one more edit"
        raise CompositionError("sampler", "is no ledger, and cannot be edited", run.recipe, mend=mend)
    return run.ledger
