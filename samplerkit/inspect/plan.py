"""The plan of a run: figures of an epoch for the command, the pictures and the checks."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, final

import numpy as np

from samplerkit.inspect import costs
from samplerkit.inspect.batches import (
    BatchFigures,
    TokenFigures,
    batch_figures,
    new_companions,
    token_figures,
)
from samplerkit.inspect.costs import Downloads, downloads_of_parts
from samplerkit.inspect.quality.figure import Figure
from samplerkit.inspect.quality.mixing import MIN_SAMPLES, Observation
from samplerkit.inspect.view import RunView, require_counted
from samplerkit.loading.run.delivery import Delivery
from samplerkit.order.caching import cached_property
from samplerkit.order.modes import Shuffle
from samplerkit.samplers.mixing.ledger import SourceRead, source_reads


@final
@dataclass(frozen=True)
class SourceFigures:
    """How much an epoch reads of a source of a mixture.

    Args:
        share: the share of the epoch's samples.
        share_of_tokens: the share of the epoch's tokens; None if the dataset has no `lengths`.
        passes: passes over the source from the first epoch to the end of this one.
        tokens: tokens read from the source from the first epoch to the end of this one; None if the dataset
            has no `lengths`.
    """

    share: float
    share_of_tokens: float | None
    passes: float
    tokens: int | None


@final
@dataclass(frozen=True, eq=False)
class RunFigures:
    """Figures of an epoch of a run; each is computed when it is first used.

    Args:
        view: the run.
        epoch: the epoch.
        ranks_per_machine: the number of ranks that share a cache of remote files; None for all ranks.
    """

    view: RunView
    epoch: int
    ranks_per_machine: int | None = None

    @cached_property
    def delivery(self) -> Delivery:
        """How the epoch is dealt to ranks."""
        return self.view.reading(self.epoch).delivery

    @cached_property
    def units(self) -> int:
        """The number of samples, or batches of a plan, that all ranks read, without pads."""
        delivery = self.delivery
        return delivery.position_after(delivery.job_steps)

    @cached_property
    def samples(self) -> int:
        """The number of samples that all ranks read, without pads."""
        return self.units if self.batches is None else round(self.units * self.batches.mean)

    @cached_property
    def steps(self) -> tuple[int, int]:
        """The fewest and the most steps of a rank."""
        # The rank that is dealt to first has the most steps, and the rank that is dealt to last the fewest.
        ranks = (self.delivery.rotation, self.delivery.rotation - 1)
        readings = [self.view.reading(self.epoch, rank % self.view.num_ranks) for rank in ranks]
        steps = [self.view.steps(reading) for reading in readings]
        return min(steps), max(steps)

    @property
    def pads(self) -> int:
        """The number of samples, or batches of a plan, that are read twice to fill the last batches."""
        delivery = self.delivery
        return (delivery.start - delivery.size) % self.view.num_ranks if delivery.tail == "pad" else 0

    @property
    def most_pads_of_a_rank(self) -> int:
        """The most pads that one rank reads."""
        if not self.pads:
            return 0
        delivery = self.delivery
        # Pads are dealt last.
        last = (delivery.rotation - 1) % self.view.num_ranks
        positions = np.asarray(delivery.dealt(last, delivery.job_steps - 1))
        return int(np.count_nonzero(positions >= delivery.size))

    @cached_property
    def batches(self) -> BatchFigures | None:
        """Figures of the batches of a plan, without mixing; None for batches of one size."""
        return batch_figures(self.view, self.epoch)

    @cached_property
    def tokens(self) -> TokenFigures | None:
        """Figures of the windows of tokens; None for other datasets."""
        return token_figures(self.view, self.epoch, self.samples)

    @cached_property
    def sources(self) -> dict[str, SourceFigures]:
        """How much the epoch reads of each source of a mixture, by name; empty for other chains."""
        run, order = self.view.run, self.view.run.epoch(self.epoch).order
        before, after = (source_reads(run.sampler, run.dataset, order, at) for at in (0, len(order)))
        none = SourceRead(0, 0.0, 0)
        samples = {name: read.samples - before.get(name, none).samples for name, read in after.items()}
        tokens = {
            name: read.tokens - (before.get(name, none).tokens or 0)
            for name, read in after.items()
            if read.tokens is not None
        }
        total = sum(tokens.values()) if len(tokens) == len(samples) else 0
        return {
            name: SourceFigures(
                count / max(1, sum(samples.values())),
                tokens[name] / total if total else None,
                after[name].passes,
                after[name].tokens,
            )
            for name, count in samples.items()
        }

    @cached_property
    def downloads(self) -> dict[str, Downloads]:
        """Requests and bytes of the epoch, by the path of a dataset in a tree."""
        return downloads_of_parts(self.view, self.epoch, self.ranks_per_machine)

    @cached_property
    def mixing(self) -> Figure | None:
        """The mixing of the order; None for batches of a plan, or if there are too few samples."""
        return None if self._observation is None else self._observation.mixing()

    @cached_property
    def effective_batch(self) -> Figure | None:
        """The effective batch size if all samples of a file are alike; None without files or a mixing."""
        observation = self._observation
        return None if observation is None or not observation.has_files else observation.effective_batch()

    @cached_property
    def _observation(self) -> Observation | None:
        view, batch = self.view, self.delivery.global_batch
        if view.recipe is not None or batch > view.layout.num_samples:
            return None
        source = view.order_source
        return None if source.length < MIN_SAMPLES else Observation.on(source, batch)

    @property
    def files_of_a_shuffled_batch(self) -> float:
        """The expected number of files in a batch of a full shuffle."""
        share = self.view.layout.sizes / max(1, self.view.layout.num_samples)
        return float((1 - (1 - share) ** self.view.samples_a_batch).sum())


@final
@dataclass(frozen=True)
class Plan:
    """What a run will read in an epoch, and what that costs.

    Args:
        fingerprint: the fingerprint of the run's orders.
        chain: a description of the chain of samplers.
        mode: the shuffle mode of the sampler that reads the dataset, ADAPTIVE resolved; None if it has none.
        reason: why it has this mode, a sentence.
        num_samples: samples in the dataset.
        num_files: files in the dataset; 0 without files.
        epoch_samples: samples that all ranks read in an epoch, without pads.
        num_ranks: ranks of the job.
        batch_size: samples per rank and step; for batches of samples of different lengths, the mean.
        global_batch: samples per step.
        tail: how the last samples are handled.
        lanes: the number of lanes of the order.
        steps: batches per rank; the largest number, if ranks differ.
        fewest_steps: batches per rank; the smallest number.
        pads: samples, or whole batches of a plan, that are read twice to fill the last batches, of all ranks.
        most_pads_of_a_rank: the most pads that one rank reads.
        dropped: samples, or batches of a plan, that the tail leaves out.
        files_of_a_rank: the most files that a rank reads in an epoch; None without files.
        files_of_a_worker: files that the first worker of rank 0 reads; None without files or workers.
        files_of_a_batch: the mean number of files in a rank's batch; None without files.
        is_counted: whether the whole epoch was examined for these; otherwise they are lower bounds.
        start_seconds: seconds until the first batch of ids, measured here.
        order_bytes: the peak memory of that, measured here.
        list_bytes: the memory that a list of all ids would take on each rank.
        mixing: how close the order is to a full shuffle; None if there are too few samples, or for batches
            of samples of different lengths.
        effective_batch: the size of a random batch with as much information as one of this order, if all
            samples of a file were alike; None without files or without `mixing`.
        transfers: requests and bytes of an epoch, for remote files and for tar shards that are read sample by
            sample; None for other datasets, and for trees.
        transfers_of_parts: the same for the datasets in a tree, by their paths.
        tokens: figures of windows of tokens; None for other datasets.
        sources: for a mixture, by source: how much the epoch reads of it, and how often the run has read it
            by the end of the epoch; empty for other chains.
        batches: figures of batches of samples of different lengths, with a `mixing` of their own; None for
            batches of one size.
    """

    fingerprint: str
    chain: str
    mode: str | None
    reason: str
    num_samples: int
    num_files: int
    epoch_samples: int
    num_ranks: int
    batch_size: int
    global_batch: int
    tail: str
    lanes: int
    steps: int
    fewest_steps: int
    pads: int
    most_pads_of_a_rank: int
    dropped: int
    files_of_a_rank: int | None
    files_of_a_worker: int | None
    files_of_a_batch: float | None
    is_counted: bool
    start_seconds: float
    order_bytes: int
    list_bytes: int
    mixing: Figure | None
    effective_batch: Figure | None
    transfers: Downloads | None
    transfers_of_parts: Mapping[str, Downloads] = field(default_factory=dict)
    tokens: TokenFigures | None = None
    sources: Mapping[str, SourceFigures] = field(default_factory=dict)
    batches: BatchFigures | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, for JSON."""
        return asdict(self)


def plan(
    source: Any, *, epoch: int = 0, world: int | None = None, ranks_per_machine: int | None = None
) -> Plan:
    """Returns what each rank will read in an epoch, and what that costs.

    Args:
        source: a `Loader`, a `Config` with a dataset, or a torch DataLoader with a `TorchSampler`.
        epoch: the epoch in which files are counted; the numbers of samples are the same in all epochs.
        world: the number of ranks on which a config is started; None takes it from the sampler, then from
            the running job.
        ranks_per_machine: the number of ranks that share a cache of remote files; None for all ranks.

    Raises:
        ArgumentTypeError: `source` is something else.
        ShuffleModeError: the mode needs files, and the dataset has none.
        DatasetError: the number of samples is not known, and files would have to be fetched to count them.

    Example:
        >>> import samplerkit as sk
        >>> sampler = sk.RandomSampler(shuffle="adaptive", seed=7)
        >>> planned = plan(sk.Loader(range(10**9 + 1), sampler, batch_size=256, world=sk.World(8, 0)))
        >>> planned.mode, planned.steps, planned.pads
        ('partial', 488282, 7)
    """
    view = RunView.of(source, world)
    require_counted(view.run.dataset)
    start_seconds, order_bytes = costs.cost_of_a_start(view, epoch)
    figures = RunFigures(view, epoch, ranks_per_machine)
    delivery, layout = figures.delivery, view.layout
    fewest_steps, steps = figures.steps
    batches = figures.batches and replace(figures.batches, mixing=new_companions(view, epoch))
    mean = batches and batches.mean
    files_of_a_rank, is_counted = costs.files_of_a_rank(view, epoch)
    downloads = dict(figures.downloads)
    return Plan(
        fingerprint=view.fingerprint,
        chain=repr(view.run.sampler),
        mode=view.shuffle and view.shuffle.value,
        reason=_reason(view),
        num_samples=layout.num_samples,
        num_files=layout.num_files,
        epoch_samples=figures.samples,
        num_ranks=view.num_ranks,
        batch_size=view.samples_a_batch if mean is None else round(mean),
        global_batch=delivery.global_batch if mean is None else round(view.num_ranks * mean),
        tail=delivery.tail,
        lanes=view.lanes,
        steps=steps,
        fewest_steps=fewest_steps,
        pads=figures.pads,
        most_pads_of_a_rank=figures.most_pads_of_a_rank,
        dropped=delivery.size - figures.units,
        files_of_a_rank=files_of_a_rank,
        files_of_a_worker=costs.files_of_a_worker(view, epoch),
        files_of_a_batch=costs.files_of_a_batch(view, epoch),
        is_counted=is_counted,
        start_seconds=start_seconds,
        order_bytes=order_bytes,
        list_bytes=costs.LISTED_BYTES * layout.num_samples,
        mixing=figures.mixing,
        effective_batch=figures.effective_batch,
        transfers=downloads.pop("", None),
        transfers_of_parts=downloads,
        tokens=figures.tokens,
        sources=figures.sources,
        batches=batches,
    )


def _reason(view: RunView) -> str:
    if view.mode is None:
        return "the sampler has no shuffle mode"
    if view.mode.shuffle is not Shuffle.ADAPTIVE:
        return "set by the sampler"
    size, threshold = view.layout.num_samples, view.mode.adaptive_threshold
    side = "at most" if size <= threshold else "more than"
    return f"adaptive, and {size:,} samples are {side} adaptive_threshold, {threshold:,}"
