"""Where batches come from: torch's DataLoader, or threads, underneath a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, final

import torch
import torch.utils.data

from samplerkit.batches.chosen import seed_of
from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.loading.affine_loader import AffineLoader
from samplerkit.loading.affinity import layout_of_files
from samplerkit.loading.answer import AnswerCollate, batch_of
from samplerkit.loading.crossing import send_small_tensors
from samplerkit.loading.device.kinds import MakeStage
from samplerkit.loading.device.streams import current_device
from samplerkit.loading.open_source import OpenSource
from samplerkit.loading.pack_collate import PackCollate
from samplerkit.loading.pad_collate import PadCollate
from samplerkit.loading.reading import Reading
from samplerkit.loading.readings import Readings
from samplerkit.loading.request import BadSamples, Request
from samplerkit.loading.requested import RequestedDataset, reports_stats
from samplerkit.loading.requesting import Asked, Requests
from samplerkit.loading.run import Run
from samplerkit.loading.thread_turns import ThreadTurns
from samplerkit.loading.threaded_batches import ThreadedBatches
from samplerkit.loading.watch import Watched
from samplerkit.loading.worker import end_with_parent, prepare_for_workers
from samplerkit.loading.worker_threads import WorkerThreads, WorkPlan
from samplerkit.storage.batch_readers import wanted

BATCHES_AHEAD = 2
"""Batches that each thread has ahead of the loop, as torch's processes have."""


@final
class Source:
    """The torch DataLoader, or the threads, that answer requests; made at first use, and started then.

    Args:
        run: the recipe over the dataset.
        readings: what this process reads of it.
        num_workers: worker processes or threads.
        bad_samples: what becomes of a sample that cannot be read.
        options: of the DataLoader, from `checked_options`.
        seed_draws: whether the process-wide generators are seeded for each draw.
        uses_threads: whether the workers are threads.
        file_affinity: whether each file is one worker's.

    Attributes:
        loader: stands for the loader in what threads know, who must not keep the source alive.
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
        uses_threads: bool = False,
        file_affinity: bool = False,
    ) -> None:
        self._run = run
        self._num_workers = num_workers
        self._readings = readings
        self._bad_samples = bad_samples
        self._options = options
        self._seed_draws = seed_draws
        self._requests = Requests()
        self.loader = object()
        self._uses_threads = uses_threads and num_workers > 0
        # Threads share what they read, and one worker reads all.
        self._cuts = file_affinity and num_workers > 1 and not uses_threads
        self._dataloader: torch.utils.data.DataLoader[Any] | None = None
        self._threads: WorkerThreads | None = None
        self._turns = ThreadTurns(num_workers)  # what was found holds for the next epoch too
        self._open: OpenSource | None = None

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [] if self._open is None else [*self._open.workers.pids]

    @property
    def readers(self) -> list[int]:
        """Under which numbers the figures of the workers come."""
        return [] if self._open is None else self._open.workers.readers

    @property
    def has_processes(self) -> bool:
        """Whether other processes read."""
        return self._num_workers > 0 and not self._uses_threads

    def open(self, reading: Reading, make_stage: MakeStage | None, *, run_ahead: bool) -> OpenSource:
        """Begins to answer the requests of a reading, or goes on where a source that ran ahead is already.

        Args:
            reading: what is wanted.
            make_stage: puts a stage behind the batches.
            run_ahead: whether the epochs after this one follow.

        Raises:
            ArgumentValueError: generators are to be seeded in a thread beside the loop.
        """
        seeds_here = self._seed_draws and (self._cuts or not self._num_workers)
        if seeds_here and make_stage is not None:
            raise ArgumentValueError(
                "seed_draws",
                "would seed the generators of this process in a thread beside the training loop",
                True,
                mend="say num_workers=1 or more, without file_affinity, or draw from samplerkit.draw_rng() "
                "and leave it out",
            )
        opened = self._open
        if opened is not None and run_ahead and opened.runs_ahead_to(reading, make_stage):
            opened.next_epoch = None
            return opened
        if opened is not None:
            self.release(opened)
        asked = Asked(
            self._readings,
            edits=None if self._run.ledger is None else self._run.requested,
            run_position=self._run.run_position,
            run_ahead=run_ahead,
            tells=wanted(self._run.dataset),
        )
        requests = partial(asked.requests, reading)
        keeps_workers = bool(self._options.get("persistent_workers"))
        self._open = OpenSource(
            self._by_threads(reading.epoch, requests, loop_helps=make_stage is None)
            if self._uses_threads
            else self._watched(reading.epoch, requests),
            make_stage,
            keeps_workers=keeps_workers,
            keeps_generators=seeds_here,
        )
        return self._open

    def _watched(self, epoch: int, requests: Callable[[], Iterator[Request]]) -> Watched:
        self._requests.make = requests
        if self._dataloader is None:
            self._dataloader = self._torch_loader(epoch)
            if self._num_workers:
                prepare_for_workers()
        return Watched(iter(self._dataloader))

    def _by_threads(
        self, epoch: int, requests: Callable[[], Iterator[Request]], *, loop_helps: bool
    ) -> ThreadedBatches:
        options = self._options
        if self._threads is None or not self._threads.can_be_used:
            requested, collate = self._reader(epoch)
            pins = bool(options.get("pin_memory")) and current_device().type != "cpu"
            plan = WorkPlan(requested, collate, pins, options.get("worker_init_fn"), self.loader, self._turns)
            self._threads = WorkerThreads(plan, self._num_workers)
        ahead = (options.get("prefetch_factor") or BATCHES_AHEAD) * self._num_workers
        timeout = options.get("timeout") or None
        return ThreadedBatches(self._threads, requests(), ahead, timeout, loop_helps=loop_helps)

    def release(self, opened: OpenSource) -> None:
        """Ends an iteration; its workers live on if the options say so."""
        if not opened.end():
            # Workers that were ended cannot be used again.
            self._dataloader = self._threads = None

    def close(self) -> None:
        """Ends everything; the next `open` begins anew."""
        opened, self._open = self._open, None
        self._dataloader = self._threads = None
        if opened is not None:
            opened.close()

    def _reader(self, epoch: int) -> tuple[RequestedDataset, Callable[[Any], Any]]:
        """Gives what makes samples of requests, and what makes batches of these."""
        dataset = self._run.dataset
        if not (hasattr(dataset, "__getitem__") or hasattr(dataset, "__getitems__")):
            raise ArgumentTypeError("dataset", "must be map-style, with __getitem__", dataset)
        reports = self.has_processes and reports_stats(dataset)
        plan = self._run.plan(epoch)
        is_packed = plan is not None and plan.measure.pack is not None
        collate: Any = self._options.get("collate_fn") or (PackCollate() if is_packed else batch_of)
        is_measured = isinstance(collate, PadCollate | PackCollate)
        if is_measured and plan is not None:
            collate = collate.measured_by(plan.measure)
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
        return requested, AnswerCollate(collate)

    def _torch_loader(self, epoch: int) -> torch.utils.data.DataLoader[Any]:
        options = dict(self._options)
        requested, options["collate_fn"] = self._reader(epoch)
        options |= {
            "batch_sampler": self._requests,
            "num_workers": self._num_workers,
            "worker_init_fn": _WorkerStart(options.pop("worker_init_fn", None)),
            # Without one, torch draws the workers' base seed from the process-wide generator.
            "generator": options.pop("generator", None) or torch.Generator(),
        }
        if self._cuts:
            return AffineLoader(requested, layout_of_files(self._run.dataset), **options)
        return torch.utils.data.DataLoader(requested, **options)


class _WorkerStart:
    """What a worker process does first: ours, then the user's `worker_init_fn`."""

    def __init__(self, then: Callable[[int], None] | None) -> None:
        self._then = then

    def __call__(self, worker: int) -> None:
        end_with_parent()
        send_small_tensors()
        if self._then is not None:
            self._then(worker)
