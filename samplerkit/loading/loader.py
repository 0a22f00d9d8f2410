"""The loader: a torch DataLoader with exactly-once state on top."""

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import count, takewhile
from typing import Any, Final, Literal, final, get_args

import torch
import torch.utils.data

from samplerkit.batches.plan import BatchPlan
from samplerkit.batches.recipe import BatchRecipe
from samplerkit.closing import Closing
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, OutOfDatasetError
from samplerkit.loading.background import ended_iteration, require_not_reading_for
from samplerkit.loading.device.stage import DeviceStage, MakeStage
from samplerkit.loading.device.streams import checked_device
from samplerkit.loading.run.delivery import Tail
from samplerkit.loading.run.run import Run, checked_tail
from samplerkit.loading.run.run_cursor import RunCursor
from samplerkit.loading.state.state import Place
from samplerkit.loading.stats import LoaderStats, Received
from samplerkit.loading.steps import MetricsMixin
from samplerkit.loading.workers.loader_workers import LoaderWorkers, checked_options, checked_workers
from samplerkit.loading.workers.protocol import BadSamples, SkippedSample, WorkerKind
from samplerkit.order import arguments
from samplerkit.order.deal import World
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.mixing.edit import Edit

AfterBreak = Literal["restart", "continue"]
"""Where an iteration begins after one that was left early."""


@final
class Loader(MetricsMixin, Closing):
    """Reads a dataset in the order of a sampler, with an exact state: which samples it has handed out.

    The loader deals the sampler's undealt order to the ranks of the job, whether a distributed sampler is in
    the chain or not. A batch counts as consumed when it is handed to the loop, not when it is prefetched.

    Iterating reads the rest of the current epoch, then moves on to the next one. After an early break, the
    next iteration begins the epoch again, or resumes where it stopped: see `after_break`.

    Args:
        dataset: a map-style dataset. If it has `__getitems__`, it gets the ids of a batch as an int64 array,
            and returns a list with a sample for each, an array with a row for each, or columns.
        sampler: the recipe; None for the default order of the dataset: that of `.shuffle` on a tar dataset,
            or storage order.
        batch_size: samples a rank and step; or else:
        batches: a recipe for batches of samples of different lengths, one a rank and step: see `plan`.
        num_workers: workers that read in the background, 4,096 at most.
        workers: `processes`, or `threads`, which share the dataset, unless it has `copy_for_thread`.
        file_affinity: let each file be read by one worker process, not by all. Batches do not change; one
            whose samples are in files of several workers is collated in the loop. Without workers, and with
            threads, each file is read once anyway.
        tail: how the last samples, which do not fill a global batch, are handled. `pad`: repeat the first
            ones of the order, so that all ranks get the same number of samples. `drop`: leave them out.
            `ragged`: hand out each once, so that ranks differ by at most one sample. With `batches` the same
            applies to batches, and `split` divides the last ones into as many smaller batches as there are
            ranks.
        world: which rank of how many this process is; None asks the running job at first use. For every
            process to read everything, pass World(1, 0).
        after_break: `restart` begins the epoch again when iteration is left early, as torch does; `continue`
            resumes it with the samples that were not handed out.
        bad_samples: `raise`: exceptions of the dataset are raised in the loop. `skip`: a sample that cannot
            be read is left out of its batch, logged and listed in `skipped`; the number of steps does not
            change.
        run_ahead: begin to read the next epoch while the loop is at the end of this one, so that an epoch
            does not begin with a wait. The workers then stay alive.
        seed_draws: seed the generators of torch (of the CPU), numpy and Python before each sample, from the
            seed, the epoch and the position in its order. So ordinary random transforms repeat exactly after
            a resume, and on other ranks and workers. A dataset is then read sample by sample, except those of
            samplerkit. Without workers, the generators are restored after each batch.
        device: hand out batches on this device, loaded and copied while the previous step trains; None leaves
            them on the host. `DeviceLoader(loader, ...)` does the same with more options.
        agreement_seconds: how long the ranks of a job wait for one another, when an iteration begins, to
            check that they read the same order.
        dataloader_options: options of `torch.utils.data.DataLoader`; `drop_last=True` means `tail="drop"`.

    Raises:
        ArgumentTypeError: an argument has the wrong type, or the dataset is iterable-style.
        ArgumentValueError: `shuffle`, `batch_sampler` or `in_order` is given, a choice is not known, or
            `num_workers` is negative; `seed_draws` with threads or, when an iteration begins, without workers
            or with `file_affinity` and with a device.
        ArgumentRangeError: `batch_size` is not positive.

    Example:
        >>> import samplerkit as sk
        >>> dataset = list(range(100, 107))
        >>> loader = sk.Loader(dataset, sk.RandomSampler(seed=7), batch_size=3)
        >>> first = next(iter(loader)).tolist()
        >>> state = loader.state_dict()
        >>> resumed = sk.Loader(dataset, sk.RandomSampler(seed=7), batch_size=2)
        >>> resumed.load_state_dict(state)
        >>> rest = [id for batch in resumed for id in batch.tolist()]
        >>> sorted(first + rest) == dataset
        True
    """

    _cursor: RunCursor

    def __init__(
        self,
        dataset: Any,
        sampler: Sampler | None = None,
        *,
        batch_size: int | None = None,
        batches: BatchRecipe | None = None,
        num_workers: int = 0,
        workers: WorkerKind = "processes",
        file_affinity: bool = False,
        tail: Tail = "pad",
        world: World | None = None,
        after_break: AfterBreak = "restart",
        bad_samples: BadSamples = "raise",
        run_ahead: bool = False,
        seed_draws: bool = False,
        device: torch.device | str | None = None,
        agreement_seconds: float = 10.0,
        **dataloader_options: Any,
    ) -> None:
        if isinstance(dataset, torch.utils.data.IterableDataset):
            raise ArgumentTypeError("dataset", "must be map-style, with __getitem__", dataset)
        drops = arguments.boolean("drop_last", dataloader_options.pop("drop_last", False))
        self.dataset: Final = dataset
        self.batches: Final = batches
        self.batch_size: Final = None if batch_size is None else arguments.positive("batch_size", batch_size)
        self.num_workers: Final = arguments.integer("num_workers", num_workers)
        seeds = arguments.boolean("seed_draws", seed_draws)
        self.workers: Final = checked_workers(workers, num_workers, dataloader_options, seed_draws=seeds)
        self.file_affinity: Final = arguments.boolean("file_affinity", file_affinity)
        self.tail: Final = checked_tail(tail, batch_size, batches, drop_last=drops)
        self.run_ahead: Final = arguments.boolean("run_ahead", run_ahead)
        resumes = arguments.choice("after_break", after_break, get_args(AfterBreak)) == "continue"
        skips = arguments.choice("bad_samples", bad_samples, get_args(BadSamples)) == "skip"
        self._make_stage = None if device is None else partial(DeviceStage, device=checked_device(device))
        run = Run.of(sampler, dataset, world, batches, batch_size=self.batch_size or 1, tail=self.tail)
        self._cursor = RunCursor(run, agreement_seconds, waits=True, resumes=resumes)
        self._workers: Final = LoaderWorkers(
            self._cursor,
            self.num_workers,
            self.workers,
            checked_options(dataloader_options, self.num_workers, self.workers),
            skips=skips,
            seeds_draws=seeds,
            file_affinity=self.file_affinity,
        )
        self._received = Received()

    def __setattr__(self, name: str, value: Any) -> None:
        # As torch's DataLoader: the value would be shown, and not be read by.
        if "_received" in self.__dict__ and name in Loader.__init__.__annotations__:
            hint = "make another loader, and load the state of this one"
            raise ArgumentValueError(name, "cannot be set once the loader is made", value, hint=hint)
        super().__setattr__(name, value)

    @property
    def sampler(self) -> Sampler:
        """The recipe, with all edits if it is a ledger."""
        return self._cursor.run.sampler

    @property
    def editable_from(self) -> int:
        """The first position of the run that may be edited: all samples before it were requested.

        These are samples that were handed out, or prefetched by workers, a device or `run_ahead`.
        """
        return self._cursor.editable_from

    def edit(self, edit: Edit | None = None, /, **fields: Any) -> int:
        """Edits the run from a position on, and returns that position. The loader must read by a `Ledger`.

        Every rank makes the same edit, at any time before the step at its position; there the ranks compare
        all their edits. The first rank writes it into the `edits_file` of the ledger.

        Args:
            edit: the edit; or:
            **fields: its arguments, by name; without `at`, it applies at `editable_from`.

        Returns:
            The position: that of the edit; with `batches`, the next border of a window, at or after it.

        Raises:
            ArgumentTypeError: no edit, or an argument of it has the wrong type.
            NotSupportedError: the run, or its batches, cannot be edited so.
            ArgumentValueError: the edit is before another one, or has a `global_batch` that the ranks do not
                divide.
            ArgumentRangeError: it is before `editable_from`, or a number of it is out of range.
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
        return self._cursor.make_edit(edit, fields)

    @property
    def plan(self) -> BatchPlan | None:
        """The batches of the current epoch of all ranks; None with `batch_size`."""
        return self._cursor.run.epoch(self.epoch).plan

    @property
    def fingerprint(self) -> str:
        """The short name of the orders of all epochs, as `samplerkit plan` and `samplerkit state` show it."""
        return self._cursor.run.state(Place(0, 0)).fingerprint

    @property
    def skipped(self) -> tuple[SkippedSample, ...]:
        """The samples that could not be read and were left out of the batches handed out so far.

        The latest 10,000 are kept; `stats.skipped` counts all.
        """
        return tuple(self._received.skipped)

    @property
    def stats(self) -> LoaderStats:
        """Figures of the iteration under way, or of the last one, for a training log."""
        dataset = None if self._workers.has_processes else self.dataset
        return self._received.stats(getattr(dataset, "stats", None))

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the workers that read for this loader now; threads have none."""
        return self._workers.pids

    def __iter__(self) -> Iterator[Any]:
        return self.iterate_on(self._make_stage, run_ahead=self.run_ahead)

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """Returns the state after the batches handed out: JSON values, under 4 KB, on every rank the same.

        After the last step it is the beginning of the next epoch, or of the one that `set_epoch` set, and
        `ended` is the epoch that was read: in a job that loads it, `set_epoch` of that epoch reads nothing of
        it again. A rank that with `ragged` has one batch less than others is there when its loop has called
        `next` once more.

        Args:
            step: return the state after this many steps instead of after the batches handed out; counted from
                where this loader began the epoch, up to the last step of any rank.

        Raises:
            OutOfDatasetError: there is no such step.

        Example:
            >>> import samplerkit as sk
            >>> loader = sk.Loader(range(10), sk.SequentialSampler(), batch_size=2)
            >>> loader.state_dict(step=3)["position"]
            6
        """
        if step is not None:
            step, reading = arguments.integer("step", step), self._reading
            if step and (reading.is_spent or not reading.delivery.job_has(step - 1)):
                steps = 0 if reading.is_spent else reading.delivery.job_steps
                raise OutOfDatasetError("step", f"must be in [0, {steps}]", step)
        return self._cursor.state(step)

    def load_state_dict(self, state: Mapping[str, Any], allow: Collection[str] = ()) -> None:
        """Makes the next iteration begin at the place of a saved state, on any number of ranks and workers.

        Args:
            state: from `state_dict`.
            allow: names of fields that may differ: "dataset", "sampler", "seed", "algorithm", "tail",
                "num_shards".

        Raises:
            StateError: it is damaged, of a newer schema, or of another run; or an iteration is under way.
        """
        self._cursor.restore(state, allow)
        self.close()  # persistent workers have the previous constants

    def close(self) -> None:
        """Ends the iteration and the workers. The loader can be used again; it then starts new ones."""
        self._cursor.end(self._cursor.current)
        self._workers.close()

    def iterate_on(self, make_stage: MakeStage | None, *, run_ahead: bool = False) -> Iterator[Any]:
        """Iterates like `iter(loader)`, with a stage behind the batches; the state counts what leaves it.

        Args:
            make_stage: puts a stage, such as a `DeviceStage`, behind an iterator of batches.
            run_ahead: as for the loader.
        """
        require_not_reading_for(self._cursor)
        iteration = self._cursor.begin()
        is_at_its_end = False
        opened = None
        try:
            reading = self._reading
            self._received.begin(iteration, self._workers.pids)
            self._cursor.require_agreement(iteration)
            if reading.has(0):  # else nothing is started, and nothing can run ahead
                opened = self._workers.open(reading, make_stage, run_ahead=run_ahead)
                for step in takewhile(partial(self._cursor.has_step, reading), count()):
                    self._received.begin_wait()
                    batch = self._received.take(step, opened.next())
                    # The loop's batch and the number change together: nothing is called between these two
                    # lines, so neither a signal handler nor Ctrl-C can come between them.
                    iteration.taken = step + 1
                    yield batch
                    # A batch may be large, and the loop is done with it.
                    del batch
                    if not iteration.is_open:
                        raise ended_iteration()
            is_at_its_end = True
        finally:
            # Reached by a break, an error of the dataset, of a worker or of the loop, a handler that raised,
            # and the end. The state comes first: the rest may wait for workers, and be interrupted.
            self._cursor.end(iteration, at_its_end=is_at_its_end)
            if opened is not None and is_at_its_end and run_ahead:
                opened.next_epoch = reading.epoch + 1
            elif opened is not None:
                opened.end()
