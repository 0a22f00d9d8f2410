"""The run as it is now: what a reader hands out of it, compares with other ranks, saves and edits."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, Final, final

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError, CompositionError
from samplerkit.loading.cursor import Cursor, Iteration
from samplerkit.loading.job.agreement import agree
from samplerkit.loading.run.delivery import Reading, Tail
from samplerkit.loading.run.run import Run
from samplerkit.loading.run.units import StepSamples
from samplerkit.loading.state.edits import require_divided
from samplerkit.loading.state.past import EpochsRead, Past
from samplerkit.loading.state.state import Place, State
from samplerkit.order.caching import Latest
from samplerkit.samplers.mixing.edit import Edit, lines_of
from samplerkit.samplers.mixing.ledger import Ledger
from samplerkit.storage.atomic import atomic


@final
class CurrentRun:
    """A run that edits and loaded states replace, for one reader: the arithmetic of its cursor.

    Requests may be made in a background thread, while the loop edits. So whoever makes one, and whoever
    edits, holds the lock.

    Args:
        run: the run at its beginning.
        batch_size: units a rank and step.
        tail: what becomes of the last units, which do not fill a step of all ranks.
        seconds: how long ranks wait for one another when an iteration begins.

    Attributes:
        run: the run.
        lock: of requests and edits.
        edits: all edits of the run, if it was edited here.
    """

    def __init__(self, run: Run, batch_size: int, tail: Tail, seconds: float) -> None:
        self.run = run
        self.tail: Final[Tail] = tail
        self.lock = Lock()
        self.edits: tuple[Edit, ...] = ()
        self._batch_size = batch_size
        self._seconds = seconds
        self._requested = 0
        self._agreed = run
        self._readings = Latest[Reading]()

    def reading(self, epoch: int, start: int) -> Reading:
        """Returns what this process reads from a position of an epoch on."""
        run = self.run
        return self._readings.get(
            (run, epoch, start), lambda: run.reading(epoch, start, self._batch_size, self.tail)
        )

    def reading_of(self, iteration: Iteration) -> Reading:
        """Returns what an iteration reads."""
        reading = self.reading(iteration.epoch, iteration.start)
        return replace(reading, is_spent=True) if iteration.is_spent else reading

    def reached(self, epoch: int, start: int, steps: int) -> tuple[int, bool]:
        """Returns the position after some steps of all ranks, and whether nothing is left to any of them."""
        delivery = self.reading(epoch, start).delivery
        return delivery.position_after(steps), delivery.is_over_after(steps)

    def stretch(self, epoch: int, start: int, steps: int) -> EpochsRead:
        """Returns the stretch of an epoch that all ranks have read in some steps."""
        delivery = self.reading(epoch, start).delivery
        end = delivery.position_after(steps)
        if delivery.is_over_after(steps) and not (self.tail == "drop" and delivery.ramp):
            end = -delivery.global_batch if self.tail == "drop" else -1
        return EpochsRead(epoch, 1, start, end)

    def state(self, cursor: Cursor, steps: int | None = None) -> dict[str, Any]:
        """Returns the state after some steps, as JSON values; None for those handed out."""
        return self.run.state(cursor.place(steps), self.tail, cursor.past(steps)).to_dict()

    def restore(self, saved: Any, cursor: Cursor, allow: Collection[str] | None = None) -> None:
        """Replaces the run by that of a saved state, and goes to its place; see `Run.restored`.

        Raises:
            StateError: the state is damaged or of another run, and all is as it was.
        """
        self.run, state = self._restored(saved, allow)
        past = Past.of(state)
        # An edit must not change what was read before the run went back to an earlier epoch.
        later = [one for one in past.stretches if one.epoch + one.epochs > state.epoch + 1]
        self._requested = max((self.run.position(one.epoch + one.epochs, 0) for one in later), default=0)
        cursor.load(state.place, past)

    def read_until(self, saved: Any) -> tuple[Run, Past]:
        """Returns the run of a saved state and what was read up to it; this one stays as it is.

        Raises:
            StateError: the state is damaged or of another run.
        """
        run, state = self._restored(saved, None)
        return run, Past.of(state)

    def _restored(self, saved: Any, allow: Collection[str] | None) -> tuple[Run, State]:
        samples_a_step = self.run.world.num_shards * self._batch_size
        return self.run.restored(saved, self.tail, samples_a_step, allow)

    def require_agreement(self, iteration: Iteration) -> None:
        """Compares what the ranks of the job begin to read.

        Raises:
            DisagreementError: another rank begins something else, or no rank reads some shard.
            WorldError: the process group says other numbers than were taken.
        """
        run = self.run
        run.require_same_world()
        place = Place(iteration.epoch, iteration.start, iteration.epoch if iteration.is_spent else None)

        def identity() -> dict[str, Any]:
            state = run.state(place, self.tail)
            ids, values = run.given_ids(iteration.epoch), state.to_dict()
            del values["checksum"]
            return {**values, "order": state.fingerprint, "batch_size": self._batch_size, "ids": ids}

        agree(run.world, self._seconds, identity)
        self._agreed = run

    def steps(self, reading: Reading, about: Sequence[str] = ()) -> Iterator[tuple[int, StepSamples]]:
        """Iterates over the steps of a reading, each by the edits that were made before it is requested.

        Args:
            reading: where it begins.
            about: what is asked about each sample beside its id, as for `Reading.samples`.
        """
        following, run = 0, None
        while run is not self.run:
            run = self.run
            reading = self.reading(reading.epoch, reading.start)
            for step, samples in reading.samples(following, about=about):
                with self.lock:
                    if run is not self.run:
                        break
                    if isinstance(run.recipe, Ledger):
                        end = run.position(reading.epoch, reading.delivery.position_after(step + 1))
                        self._requested = max(self._requested, end)
                following = step + 1
                yield step, samples

    def editable_from(self, iteration: Iteration) -> int:
        """Returns the first position of the run that may be edited: all before it was requested."""
        return max(self._requested, self.run.position(iteration.epoch, iteration.start))

    def make_edit(self, edit: Edit | None, said: Mapping[str, Any], iteration: Iteration) -> int:
        """Edits the run while an iteration reads it, and returns the position: see `Loader.edit`."""
        if edit is not None and (said or not isinstance(edit, Edit)):
            raise ArgumentTypeError("edit", "must be an Edit, or the arguments of one", edit)
        ledger = self._required_ledger()
        with self.lock:
            run, first = self.run, self.editable_from(iteration)
            edit = Edit(**{"at": first, **said}) if edit is None else edit
            if edit.at < first:
                problem = f"is before position {first}, up to which samples were requested"
                raise ArgumentRangeError("at", problem, edit.at, hint="say that position, or a later one")
            edit = run.epoch(0).applied(edit)
            edited = ledger.edited(edit)
            edited.undealt_order(run.dataset, constants=run.constants)
            if edit.global_batch is not None:
                require_divided(edited, edit.at, run.world.num_shards)
            if run.world.shard_id == 0 and edited.edits_file is not None:
                _write(edited.edits, edited.edits_file)
            self._edit(edited)
            return edit.at

    def _required_ledger(self) -> Ledger:
        run = self.run
        if isinstance(run.recipe, Ledger):
            return run.recipe
        hint = "wrap it in Ledger(sampler), which also loads the states of the sampler alone"
        if run.edits.are_below:
            hint = "save a state, and start with a ledger below the BlockSampler that has one more edit"
        raise CompositionError("sampler", "is no ledger, and cannot be edited", run.recipe, hint=hint)

    def _edit(self, ledger: Ledger) -> None:
        self.run = self.run.edited(ledger)
        self.edits = ledger.edits

    def follow(self, edits: tuple[Edit, ...]) -> None:
        """Makes the edits that were made in another process: a worker has a run of its own."""
        while len(made := self.run.edits.ledger.edits) < len(edits):
            self._edit(self.run.edits.ledger.edited(edits[len(made)]))

    def comes(self, reading: Reading, step: int) -> bool:
        """Whether a step comes; the ranks compare their edits before the first step that one changes.

        Args:
            reading: as the iteration began it.
            step: what is handed out next.

        Raises:
            DisagreementError: another rank has other edits, or did not come in time.
        """
        if not self.edits:
            return reading.has(step)
        reading = self.reading(reading.epoch, reading.start)
        if not reading.has(step):
            return False
        agreed = self._agreed.edits.ledger.edits
        if len(self.edits) > len(agreed):
            end = self.run.position(reading.epoch, reading.delivery.position_after(step + 1))
            if end > self.edits[len(agreed)].at:
                self._agree_on_edits()
        return True

    def _agree_on_edits(self) -> None:
        run = self.run
        dataset, sampler = run.described
        identity = {
            "dataset": dataset,
            "sampler": sampler,
            "edits": f"{len(self.edits)}, of digest {run.edits.digests[-1]}",
            "last": repr(self.edits[-1]),
        }
        agree(run.world, self._seconds, lambda: identity, alone=False)
        self._agreed = run

    def __getstate__(self) -> dict[str, Any]:
        """A worker has a lock of its own, and makes readings again: an order can be large to send."""
        return {**self.__dict__, "lock": None}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved, lock=Lock())


def _write(edits: Sequence[Edit], path: str | os.PathLike[str]) -> None:
    try:
        with atomic(Path(path)) as file:
            file.write(lines_of(edits).encode())
    except OSError as error:
        problem = f"cannot be written ({error.strerror})"
        raise ArgumentValueError("edits_file", problem, os.fspath(path)) from None
