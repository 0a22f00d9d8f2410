"""The cursor of a run: what is read now, from where on, and which edits may still be made."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Final

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError, CompositionError
from samplerkit.loading.agreement import agree
from samplerkit.loading.iteration import Cursor, Iteration
from samplerkit.loading.run.delivery import Reading
from samplerkit.loading.run.run import Run, beginning_of
from samplerkit.loading.run.units import StepSamples
from samplerkit.loading.state.edits import require_divided
from samplerkit.loading.state.state import EpochsRead, Past, Place
from samplerkit.loading.world import require_same_world, world_of
from samplerkit.order import arguments
from samplerkit.samplers.mixing.edit import Edit, to_lines
from samplerkit.samplers.mixing.ledger import Ledger
from samplerkit.storage.atomic import atomic


class RunCursor(Cursor):
    """Where the reader of a run is: the run as it is now, and a place in it.

    A loaded state and an edit replace the run. Requests may be made in a background thread, while the loop
    edits. So readings are made, and edits applied, under the lock.

    Args:
        run: the run; it begins at its `beginning_of`.
        agreement_seconds: how long ranks wait for one another when an iteration begins.
        **choices: as for `Cursor`.

    Attributes:
        lock: of requests and edits.
        edits: all edits of the run, if it was edited here.

    Raises:
        ArgumentTypeError: `agreement_seconds` is not a number.
        ArgumentRangeError: it is negative or not finite.
    """

    def __init__(self, run: Run, agreement_seconds: float, **choices: bool) -> None:
        super().__init__(**choices)
        self.run = run
        self.agreement_seconds: Final = arguments.seconds("agreement_seconds", agreement_seconds)
        self._num_agreed = len(run.edits.ledger.edits)
        self.lock = Lock()
        self.edits: tuple[Edit, ...] = ()
        self._requested = 0
        self.go_to(*beginning_of(run.sampler, run.dataset, run.unit.recipe))

    def reading_of(self, iteration: Iteration) -> Reading:
        """Returns what an iteration reads."""
        reading = self.run.reading(iteration.epoch, iteration.start)
        return replace(reading, is_spent=True) if iteration.is_spent else reading

    def reached(self, epoch: int, start: int, taken: int) -> tuple[int, bool]:
        """Returns the position after some steps of all ranks, and whether nothing is left to any of them."""
        delivery = self.run.reading(epoch, start).delivery
        return delivery.position_after(taken), delivery.is_over_after(taken)

    def stretch(self, epoch: int, start: int, taken: int) -> EpochsRead:
        """Returns the stretch of an epoch that all ranks have read in some steps."""
        delivery = self.run.reading(epoch, start).delivery
        if not delivery.is_over_after(taken):
            end = delivery.position_after(taken)
        elif delivery.tail != "drop":
            end = -1
        else:  # with a ramp, steps have several sizes
            end = delivery.first(delivery.job_steps) if delivery.ramp else -delivery.global_batch
        return EpochsRead(epoch, 1, start, end)

    def state(self, steps: int | None = None) -> dict[str, Any]:
        """Returns the state after some steps, as JSON values; None for those handed out."""
        return self.run.state(self.place(steps), self.past(steps)).to_dict()

    def restore(self, saved: Any, allow: Collection[str] | None = None) -> None:
        """Replaces the run by that of a saved state, and goes to its place; see `Run.restored`.

        Raises:
            StateError: the state is damaged or of another run, or an iteration is under way; and all is as
                it was.
        """
        self.require_closed()
        run, state = self.run.restored(saved, allow)
        past = Past.of(state)  # it may refuse the state too
        self.run = run
        self.load(state.place, past)
        # An edit must not change what was read, wherever the run went or goes back to.
        epoch, position = max([self.place()[:2], *(part.reached for part in past.stretches)])
        self._requested = self.run.epoch(epoch).run_position(position)

    def require_agreement(self, iteration: Iteration) -> None:
        """Compares what the ranks of the job begin to read.

        Raises:
            DisagreementError: another rank begins something else, or no rank reads some shard.
            WorldError: the process group has other numbers than were taken.
        """
        run = self.run
        require_same_world(run.world, partial(world_of, run.sampler, run.given_world))
        place = Place(iteration.epoch, iteration.start, iteration.epoch if iteration.is_spent else None)

        def identity() -> dict[str, Any]:
            others = {"checksum": None, "batch_size": run.batch_size, "ids": run.given_ids(iteration.epoch)}
            return {**run.state(place).to_dict(), **others}

        agree(run.world, self.agreement_seconds, identity)
        self._num_agreed = len(run.edits.ledger.edits)

    def steps(self, reading: Reading, columns: Sequence[str] = ()) -> Iterator[tuple[int, StepSamples]]:
        """Iterates over the steps of a reading, each by the edits that were made before it is requested.

        Args:
            reading: where it begins.
            columns: further values of each sample besides its id, as for `Reading.samples`.
        """
        following, run = 0, None
        while run is not self.run:
            run = self.run
            reading = run.reading(reading.epoch, reading.delivery.start)
            for step, samples in reading.samples(following, columns=columns):
                # Other runs are not edited, and a process forked meanwhile could wait for the lock for ever.
                if isinstance(run.sampler, Ledger):
                    with self.lock:
                        if run is not self.run:
                            break
                        end = reading.units.run_position(reading.delivery.position_after(step + 1))
                        self._requested = max(self._requested, end)
                following = step + 1
                yield step, samples

    @property
    def editable_from(self) -> int:
        """The first position of the run that may be edited: all before it was requested, or is in a state.

        At the end of an epoch a state is after the samples that `tail="drop"` left out, which no worker
        requested.
        """
        epoch, position = max((self.current.epoch, self.current.start), self.place()[:2])
        return max(self._requested, self.run.epoch(epoch).run_position(position))

    def make_edit(self, edit: Edit | None, fields: Mapping[str, Any]) -> int:
        """Edits the run, and returns the position: see `Loader.edit`."""
        if edit is not None and (fields or not isinstance(edit, Edit)):
            raise ArgumentTypeError("edit", "must be an Edit, or the arguments of one", edit)
        with self.lock:
            run, first, ledger = self.run, self.editable_from, self.run.sampler
            if not isinstance(ledger, Ledger):
                problem = "must be a Ledger to be edited"
                hint = "save a state, and start from it with Ledger(sampler), or one below the BlockSampler"
                raise CompositionError("sampler", problem, ledger, hint=hint)
            edit = Edit(**{"at": first, **fields}) if edit is None else edit
            if edit.at < first:
                problem = f"is before position {first}, up to which samples were requested"
                raise ArgumentRangeError("at", problem, edit.at, hint="use that position, or a later one")
            edit = run.epoch(0).applied(edit)
            edited = ledger.edited(edit)
            edited.undealt_order(run.dataset, constants=run.constants)
            require_divided(edited, edit.at, run.world.num_shards)
            if run.world.shard_id == 0 and edited.edits_file is not None:
                _write(edited.edits, edited.edits_file)
            self._edit(edited)
            return edit.at

    def _edit(self, ledger: Ledger) -> None:
        self.run = self.run.edited(ledger)
        self.edits = ledger.edits

    def apply_edits(self, edits: tuple[Edit, ...]) -> None:
        """Makes the edits that were made in another process: a worker has its own run."""
        while len(own := self.run.edits.ledger.edits) < len(edits):
            self._edit(self.run.edits.ledger.edited(edits[len(own)]))

    def has_step(self, reading: Reading, step: int) -> bool:
        """Whether a step comes; the ranks compare their edits before the first step that one changes.

        Args:
            reading: as the iteration began it.
            step: what is handed out next.

        Raises:
            DisagreementError: another rank has other edits, or did not come in time.
        """
        if self.edits:
            reading = self.run.reading(reading.epoch, reading.delivery.start)
        has_step, coming = reading.has(step), self.edits[self._num_agreed :]
        if has_step and coming:
            end = reading.units.run_position(reading.delivery.position_after(step + 1))
            if end > coming[0].at:
                self._agree_on_edits()
        return has_step

    def _agree_on_edits(self) -> None:
        run = self.run
        dataset, sampler = run.described
        identity = {
            "dataset": dataset,
            "sampler": sampler,
            "edits": f"{len(self.edits)}, of digest {run.edits.digests[-1]}",
            "last": repr(self.edits[-1]),
        }
        agree(run.world, self.agreement_seconds, lambda: identity, alone=False)
        self._num_agreed = len(run.edits.ledger.edits)

    def __getstate__(self) -> dict[str, Any]:
        """A worker has its own lock, and makes readings again: an order can be large to send."""
        return {**self.__dict__, "lock": None}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__dict__.update(saved, lock=Lock())


def _write(edits: Sequence[Edit], path: str | os.PathLike[str]) -> None:
    try:
        with atomic(Path(path)) as file:
            file.write(to_lines(edits).encode())
    except OSError as error:
        problem = f"cannot be written ({error.strerror})"
        raise ArgumentValueError("edits_file", problem, os.fspath(path)) from None
