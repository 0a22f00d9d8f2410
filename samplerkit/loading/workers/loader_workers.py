"""The workers of a loader, and the iterations over their batches.

To add a kind of worker: a subclass of `Workers`, or of `WorkerPool`, in a file of its own; its name in
`WorkerKind` (`protocol.py`), and a line in `LoaderWorkers._make_workers`.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast, get_args

import torch.utils.data

from samplerkit.batches.sample_set import seed_of
from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.loading.collate import PackCollate
from samplerkit.loading.device.stage import DeviceStage, MakeStage
from samplerkit.loading.device.streams import current_device
from samplerkit.loading.generators import preserved_generators
from samplerkit.loading.run.delivery import Reading
from samplerkit.loading.run.run_cursor import RunCursor
from samplerkit.loading.sample_fields import PlannedCollate, batch_of
from samplerkit.loading.workers.batch_maker import BatchMaker, reports_stats
from samplerkit.loading.workers.file_affinity import AffineProcesses
from samplerkit.loading.workers.protocol import Batches, Request, WorkerKind, Workers
from samplerkit.loading.workers.thread_pool import ThreadPool, ThreadSchedule
from samplerkit.loading.workers.worker_processes import WorkerProcesses
from samplerkit.order import arguments
from samplerkit.storage.batch_readers import read_args

REFUSED = {
    "shuffle": "give the sampler a shuffle mode",
    "batch_sampler": "use batch_size; the loader makes the batches",
    "in_order": "batches come in the order of the sampler",
}
"""Options that a loader does not take, and what to do in place of them."""

_STAGE_SECONDS = 0.4
"""How long a stage may take to end before the workers that it waits for are ended: together with
`LAST_BATCH_SECONDS`, which these have then, it is below the two seconds that an end may take."""


@dataclass(eq=False)
class WorkerIteration:
    """One iteration over the batches of workers, through a stage if there is one.

    Args:
        workers: make the batches.
        batches: of the workers.
        make_stage: made the stage; None where there is none.
        keeps_workers: whether `end` leaves the workers alive.
        restores_generators: whether the generators of this process are as before after each batch.

    Attributes:
        next_epoch: the epoch to which it ran ahead when the one before was finished; None before.
        is_open: whether it is under way.
    """

    workers: Workers
    batches: Iterator[Any]
    make_stage: MakeStage | None
    keeps_workers: bool
    restores_generators: bool
    next_epoch: int | None = None
    is_open: bool = True

    def __post_init__(self) -> None:
        self._stage = None if self.make_stage is None else self.make_stage(self.batches)

    def runs_ahead_to(self, reading: Reading, make_stage: MakeStage | None) -> bool:
        """Returns whether its next batches are those of a reading."""
        next_batches = (self.next_epoch, 0, self.make_stage)
        return self.is_open and next_batches == (reading.epoch, reading.delivery.start, make_stage)

    def next(self) -> Any:
        """Returns the next batch, which the loop has counted; raises what was raised while it was made."""
        source = self.batches if self._stage is None else self._stage
        with preserved_generators() if self.restores_generators else nullcontext():
            return next(source)

    def end(self) -> bool:
        """Ends the iteration; returns whether its workers stay alive, and can be used for another one.

        What a signal cut off is done when it is called again.
        """
        if sys.is_finalizing():
            return False
        if self.is_open:
            self.is_open = False
            self.workers.cancel()
            has_ended = self._stage is None or self._stage.close(_STAGE_SECONDS)
            self.keeps_workers = self.keeps_workers and has_ended
        are_kept = self.keeps_workers and self.workers.can_be_reused
        if not are_kept:
            self.workers.close()
        return are_kept


@dataclass(eq=False)
class LoaderWorkers:
    """Chooses the workers of a loader, starts them at first use, and opens iterations over their batches.

    Args:
        cursor: of the run.
        num_workers: worker processes or threads.
        kind: processes or threads.
        options: of the DataLoader, from `checked_options`.
        skips: whether samples that cannot be read are left out.
        seeds_draws: whether the process-wide generators are seeded for each draw.
        file_affinity: whether each file is one worker's.
    """

    cursor: RunCursor
    num_workers: int
    kind: WorkerKind
    options: dict[str, Any]
    skips: bool
    seeds_draws: bool
    file_affinity: bool

    def __post_init__(self) -> None:
        # Threads share their files, and one worker reads all.
        self._is_affine = self.file_affinity and self.num_workers > 1 and self.kind == "processes"
        self._schedule: ThreadSchedule | None = None  # holds for the next epoch too
        self._open: WorkerIteration | None = None

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that read now; threads have none."""
        return [] if self._open is None else self._open.workers.pids

    @property
    def has_processes(self) -> bool:
        """Whether other processes read."""
        return self.num_workers > 0 and self.kind == "processes"

    @property
    def _pins(self) -> bool:
        return bool(self.options.get("pin_memory")) and current_device().type != "cpu"

    def open(self, reading: Reading, make_stage: MakeStage | None, *, run_ahead: bool) -> WorkerIteration:
        """Begins to answer the requests of a reading, or takes the iteration that ran ahead to it.

        Args:
            reading: what is read.
            make_stage: puts a stage behind the batches.
            run_ahead: whether the epochs after this one follow.

        Raises:
            ArgumentValueError: generators are to be seeded in a background thread.
        """
        seeds_locally = self.seeds_draws and (self._is_affine or not self.num_workers)
        if seeds_locally and make_stage is not None:
            problem = "would seed the generators of this process in a background thread"
            hint = "use num_workers=1 or more without file_affinity, or draw from samplerkit.draw_rng() alone"
            raise ArgumentValueError("seed_draws", problem, True, hint=hint)
        if self._pins and self.has_processes and not seeds_locally and make_stage is None:
            make_stage = _prefetch
        opened = self._open
        if opened is not None and run_ahead and opened.runs_ahead_to(reading, make_stage):
            opened.next_epoch = None
            return opened
        reused = opened.workers if opened is not None and opened.end() else None
        workers = reused or self._make_workers(reading.epoch)
        requests = requests_of(self.cursor, read_args(self.cursor.run.dataset), run_ahead, reading)
        batches = workers.open(requests)
        keeps = bool(self.options.get("persistent_workers"))
        self._open = WorkerIteration(workers, batches, make_stage, keeps, restores_generators=seeds_locally)
        return self._open

    def close(self) -> None:
        """Ends everything; the next `open` starts from scratch."""
        opened = self._open
        if opened is not None:
            opened.keeps_workers = False
            opened.end()
            self._open = None  # last: what a signal cuts off before is done by the next call

    def __getstate__(self) -> dict[str, Any]:
        """A copy starts from scratch: workers, and the iteration that they read for, stay with this one."""
        return {**self.__dict__, "_schedule": None, "_open": None}

    def _make_workers(self, epoch: int) -> Workers:
        options, maker = self.options, self._maker(epoch)
        if self.has_processes:
            processes = AffineProcesses if self._is_affine else WorkerProcesses
            return processes(maker, self.num_workers, options)
        if not self.num_workers:
            return Workers(maker)
        self._schedule = self._schedule or ThreadSchedule(self.num_workers)
        return ThreadPool(maker, self.num_workers, options, self._schedule, self, self.cursor)

    def _maker(self, epoch: int) -> BatchMaker:
        """Returns what makes batches of requests."""
        run = self.cursor.run
        dataset, plan = run.dataset, run.epoch(epoch).plan
        if not (hasattr(dataset, "__getitem__") or hasattr(dataset, "__getitems__")):
            raise ArgumentTypeError("dataset", "must be map-style, with __getitem__", dataset)
        is_packed = plan is not None and plan.measure.pack is not None
        collate: Any = self.options.get("collate_fn") or (PackCollate() if is_packed else batch_of)
        if plan is not None and isinstance(collate, PlannedCollate):
            collate = collate.measured_by(plan.measure)
        return BatchMaker(
            dataset,
            seed_of(run.sampler),
            run.world.shard_id,
            skips=self.skips,
            seeds_draws=self.seeds_draws,
            is_packed=is_packed,
            collate=collate,
            pins=self._pins,
            batches_of=partial(batches_of, self.cursor),
            reports=self.has_processes and reports_stats(dataset),
        )


def _prefetch(batches: Iterator[Any]) -> DeviceStage:
    """Hands out what processes have made, as it is, and receives and pins the next ones in a thread."""
    return DeviceStage(batches, current_device(), pins=False, load=lambda batch: batch)


def batches_of(cursor: RunCursor, request: Request) -> Batches:
    """Returns the batches of the reading of a request; a worker edits its own run first."""
    cursor.apply_edits(request.edits)
    return cursor.run.reading(request.epoch, request.start).batches


def requests_of(
    cursor: RunCursor, names: tuple[str, ...], run_ahead: bool, reading: Reading
) -> Iterator[Request]:
    """Iterates over the requests of a reading, and perhaps of the epochs after it.

    It knows no stage: a stage's thread holds it, and must not hold what ends it.

    Args:
        cursor: of the run, which edits may replace meanwhile.
        names: what the dataset wants to know of each sample, `passes` or `epochs`.
        run_ahead: whether the epochs after that of the reading follow.
        reading: the first one.
    """
    while reading.has(0):
        epoch, start = reading.epoch, reading.delivery.start
        for step, (ids, draws, segments, columns) in cursor.steps(reading, names):
            yield Request(epoch, start, step, ids, draws, columns, segments, cursor.edits)
        if not run_ahead:
            return
        reading = cursor.run.reading(reading.epoch + 1, 0)


def checked_options(
    options: Mapping[str, Any], num_workers: int, workers: WorkerKind = "processes"
) -> dict[str, Any]:
    """Checks the options of a DataLoader, with torch's own checks of the first batch.

    Args:
        options: by torch's names; those that a loader refuses may be None.
        num_workers: how many workers.
        workers: what they are; torch warns of more processes than there are processors.

    Raises:
        ArgumentTypeError: an option is unknown to torch, or has the wrong type.
        ArgumentRangeError: `prefetch_factor` is not positive, or `timeout` negative.
        ArgumentValueError: an option is one that the sampler decides, needs workers where there are none, or
            torch refuses it.

    Example:
        >>> checked_options({"timeout": 3, "shuffle": None}, num_workers=1)
        {'timeout': 3}
    """
    for option, hint in REFUSED.items():
        if options.get(option) is not None:
            raise ArgumentValueError(option, "is decided by the sampler", options[option], hint=hint)
    accepted = {name: value for name, value in options.items() if name not in REFUSED}
    _require_plausible(accepted, num_workers)
    empty: Any = ()
    counted = num_workers if workers == "processes" else min(num_workers, 1)
    try:
        torch.utils.data.DataLoader(empty, batch_sampler=empty, num_workers=counted, **accepted)
    except TypeError as error:
        raise ArgumentTypeError("dataloader_options", f"are not torch's ({error})", accepted) from None
    except ValueError as error:
        raise ArgumentValueError("dataloader_options", f"are refused by torch ({error})", accepted) from None
    return accepted


def _require_plausible(options: Mapping[str, Any], num_workers: int) -> None:
    """Checks options that torch would accept, and fail on at the first batch."""
    given = {name: value for name, value in options.items() if value is not None}
    for name in {"collate_fn", "worker_init_fn"} & given.keys():
        arguments.function(name, given[name])
    for name in {"pin_memory", "persistent_workers"} & given.keys():
        arguments.boolean(name, given[name])
    if not isinstance(given.get("generator", torch.default_generator), torch.Generator):
        raise ArgumentTypeError("generator", "must be a torch.Generator", given["generator"])
    if "prefetch_factor" in given:
        arguments.positive("prefetch_factor", given["prefetch_factor"])
    arguments.seconds("timeout", given.get("timeout", 0))
    for name in () if num_workers else ("prefetch_factor", "persistent_workers", "timeout"):
        if value := given.get(name):
            raise ArgumentValueError(name, "needs workers", value, hint="set num_workers, or leave it out")


def checked_workers(
    workers: str, num_workers: int, options: Mapping[str, Any], *, seed_draws: bool
) -> WorkerKind:
    """Validates `workers` against the number of workers, `seed_draws` and the options of the DataLoader.

    Raises:
        ArgumentTypeError: no text.
        ArgumentValueError: another word, or a negative number, or one so large that starting as many would
            leave the machine without processes; or threads, and what only processes can do.
    """
    arguments.below("num_workers", num_workers, 4097, "must be in [0, 4096]")
    checked = cast("WorkerKind", arguments.choice("workers", workers, get_args(WorkerKind)))
    if checked == "threads" and num_workers and seed_draws:
        problem = "would seed generators that all threads of this process share"
        hint = 'draw from samplerkit.draw_rng() and leave it out, or use workers="processes"'
        raise ArgumentValueError("seed_draws", problem, True, hint=hint)
    if checked == "threads" and options.get("multiprocessing_context") is not None:
        value = options["multiprocessing_context"]
        hint = 'leave it out, or use workers="processes"'
        raise ArgumentValueError("multiprocessing_context", "is for processes", value, hint=hint)
    return checked
