"""Where batches come from: the torch DataLoader underneath a loader, and one iteration over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, final

import torch
import torch.utils.data

from samplerkit.batches.chosen import seed_of
from samplerkit.errors import ArgumentValueError
from samplerkit.loading.answer import AnswerCollate, batch_of
from samplerkit.loading.device.kinds import MakeStage
from samplerkit.loading.generators import kept_generators
from samplerkit.loading.pack_collate import PackCollate
from samplerkit.loading.pad_collate import PadCollate
from samplerkit.loading.reading import Reading
from samplerkit.loading.readings import Readings
from samplerkit.loading.request import (
    BadSamples,
    RequestedDataset,
    reports_stats,
)
from samplerkit.loading.requesting import Asked, Requests
from samplerkit.loading.run import Run
from samplerkit.loading.watch import Watched
from samplerkit.loading.worker import end_with_parent, prepare_for_workers
from samplerkit.storage.batch_readers import present_reader, wanted

_STAGE_SECONDS = 1.0
"""How long a stage may take to end by itself before the workers that it waits for are ended."""


@final
class Source:
    """The torch DataLoader that answers requests; it is made at first use, and its workers started then.

    Args:
        run: the recipe over the dataset.
        readings: what this process reads of it.
        num_workers: worker processes.
        bad_samples: what becomes of a sample that cannot be read.
        options: of the DataLoader, from `checked_options`.
        seed_draws: whether the process-wide generators are seeded for each draw.
    """

    def __init__(
        self,
        run: Run,
        readings: Readings,
        num_workers: int,
        bad_samples: BadSamples,
        options: dict[str, Any],
        *,
        seed_draws: bool = False,
    ) -> None:
        self._run = run
        self._num_workers = num_workers
        self._readings = readings
        self._bad_samples = bad_samples
        self._options = options
        self._seed_draws = seed_draws
        self._requests = Requests()
        self._dataloader: torch.utils.data.DataLoader[Any] | None = None
        self._open: OpenSource | None = None

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [] if self._open is None else self._open.pids

    def open(self, reading: Reading, make_stage: MakeStage | None, *, run_ahead: bool) -> OpenSource:
        """Begins to answer the requests of a reading, or goes on where a source that ran ahead is already.

        Args:
            reading: what is wanted.
            make_stage: puts a stage behind the batches.
            run_ahead: whether the epochs after this one follow.

        Raises:
            ArgumentValueError: generators are to be seeded in a thread beside the loop.
        """
        seeds_here = self._seed_draws and not self._num_workers
        if seeds_here and make_stage is not None:
            raise ArgumentValueError(
                "seed_draws",
                "would seed the generators of this process in a thread beside the training loop",
                True,
                mend="say num_workers=1 or more, or draw from samplerkit.draw_rng() and leave it out",
            )
        opened = self._open
        if opened is not None and run_ahead and opened.runs_ahead_to(reading, make_stage):
            opened.next_epoch = None
            return opened
        if opened is not None:
            self.release(opened)
        if self._dataloader is None:
            self._dataloader = self._torch_loader(reading.epoch)
            if self._num_workers:
                prepare_for_workers()
        asked = Asked(
            self._readings,
            edits=None if self._run.ledger is None else self._run.requested,
            run_position=self._run.run_position,
            run_ahead=run_ahead,
            tells=wanted(self._run.dataset),
        )
        self._requests.make = partial(asked.requests, reading)
        keeps_workers = bool(self._options.get("persistent_workers"))
        self._open = OpenSource(
            Watched(iter(self._dataloader)),
            make_stage,
            keeps_workers=keeps_workers,
            keeps_generators=seeds_here,
        )
        return self._open

    def release(self, opened: OpenSource) -> None:
        """Ends an iteration; its workers live on if the options say so."""
        if not opened.end():
            # Workers that were killed cannot be used again.
            self._dataloader = None

    def close(self) -> None:
        """Ends everything; the next `open` begins anew."""
        opened, self._open, self._dataloader = self._open, None, None
        if opened is not None:
            opened.close()

    def _torch_loader(self, epoch: int) -> torch.utils.data.DataLoader[Any]:
        options = dict(self._options)
        dataset = self._run.dataset
        reports = self._num_workers > 0 and reports_stats(dataset)
        plan = self._run.plan(epoch)
        is_packed = plan is not None and plan.measure.pack is not None
        collate: Any = options.get("collate_fn") or (PackCollate() if is_packed else batch_of)
        is_measured = isinstance(collate, PadCollate | PackCollate)
        if is_measured and plan is not None:
            collate = collate.measured_by(plan.measure)
        has_answers = is_measured or self._bad_samples == "skip" or reports
        has_answers = has_answers or present_reader(dataset) is not None
        options["collate_fn"] = AnswerCollate(collate) if has_answers else collate
        wants_to_know = callable(getattr(dataset, "expect", None))
        requested = RequestedDataset(
            dataset,
            seed_of(self._run.recipe),
            self._run.world.shard_id,
            self._bad_samples,
            self._readings if wants_to_know else None,
            reports=reports,
            tells_ids=is_measured,
            seed_draws=self._seed_draws,
        )
        return torch.utils.data.DataLoader(
            requested,
            batch_sampler=self._requests,
            num_workers=self._num_workers,
            worker_init_fn=_WorkerStart(options.pop("worker_init_fn", None)),
            # Without one, torch draws the workers' base seed from the process-wide generator.
            generator=options.pop("generator", None) or torch.Generator(),
            **options,
        )


@final
class OpenSource:
    """One iteration over a source, through a stage if there is one.

    Attributes:
        next_epoch: the epoch to which it ran ahead when the one before was finished; None before.

    Args:
        watched: the batches of the DataLoader.
        make_stage: puts a stage behind them.
        keeps_workers: whether `close` leaves the workers alive.
        keeps_generators: whether the generators of this process are as before after each batch.
    """

    def __init__(
        self,
        watched: Watched,
        make_stage: MakeStage | None,
        *,
        keeps_workers: bool,
        keeps_generators: bool = False,
    ) -> None:
        self.next_epoch: int | None = None
        self._watched = watched
        self._make_stage = make_stage
        # A stage closes its source, but these workers may live on: so it gets a source without them.
        self._stage = None if make_stage is None else make_stage(batch for batch in watched)
        self._batches: Iterator[Any] = watched if self._stage is None else iter(self._stage)
        self._keeps_workers = keeps_workers
        self._keeps_generators = keeps_generators
        self._is_open = True

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return self._watched.pids

    def runs_ahead_to(self, reading: Reading, make_stage: MakeStage | None) -> bool:
        """Tells whether its next batches are those of a reading."""
        wanted = (reading.epoch, reading.start, make_stage)
        return self._is_open and (self.next_epoch, 0, self._make_stage) == wanted

    def next(self) -> Any:
        """Gives the next batch; raises what was raised while it was made."""
        with kept_generators() if self._keeps_generators else nullcontext():
            return next(self._batches)

    def end(self) -> bool:
        """Ends the iteration; tells whether its workers live on, and can be used for another one."""
        if not self._is_open:
            return self._keeps_workers
        self._is_open = False
        has_ended = self._stage is None or self._stage.close(_STAGE_SECONDS)
        self._keeps_workers = self._keeps_workers and has_ended and self._watched.can_go_on
        if self._keeps_workers:
            self._watched.end()
        else:
            self._watched.close()
        return self._keeps_workers

    def close(self) -> None:
        """Ends the iteration and the workers."""
        if self.end():
            self._keeps_workers = False
            self._watched.close()


class _WorkerStart:
    """What a worker process does first: ours, then the user's `worker_init_fn`."""

    def __init__(self, then: Callable[[int], None] | None) -> None:
        self._then = then

    def __call__(self, worker: int) -> None:
        end_with_parent()
        if self._then is not None:
            self._then(worker)
