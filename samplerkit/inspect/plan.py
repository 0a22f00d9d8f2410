"""The plan of a run: the figures of an epoch, which the command, the pictures and the doctor share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, final

import numpy as np

from samplerkit.inspect.batches import BatchFigures, batch_figures, new_companions
from samplerkit.inspect.costs import LISTED_BYTES, cost_of_a_start, files_of_a_worker
from samplerkit.inspect.costs import files_of_a_batch as mean_files
from samplerkit.inspect.costs import files_of_a_rank as most_files
from samplerkit.inspect.download_costs import Downloads, downloads_of_parts
from samplerkit.inspect.quality.figure import Figure
from samplerkit.inspect.quality.mixing import LEAST_SAMPLES, Observation
from samplerkit.inspect.tokens import TokenFigures, token_figures, windows_of
from samplerkit.inspect.view import RunView, require_counted
from samplerkit.loading.run.delivery import Delivery
from samplerkit.loading.run.token_windows import TokenWindowUnit
from samplerkit.order.caching import cached_property
from samplerkit.order.modes import Mode, Shuffle
from samplerkit.samplers.mixing.source_reads import SourceRead, source_reads


@final
@dataclass(frozen=True)
class SourceFigures:
    """What an epoch reads of a source of a mixture.

    Args:
        share: of the samples of the epoch.
        share_of_tokens: of its tokens; None where the dataset has no `lengths`.
        passes: how often the source was read from the first epoch to the end of this one.
        tokens: how many of it were read, likewise; None likewise.
    """

    share: float
    share_of_tokens: float | None
    passes: float
    tokens: int | None


@final
@dataclass(frozen=True, eq=False)
class RunFigures:
    """What an epoch of a run reads, in figures; each is computed when it is first asked for.

    Args:
        view: the run.
        epoch: which one.
        ranks_per_machine: how many ranks share a cache of remote files; None for all of them.
    """

    view: RunView
    epoch: int
    ranks_per_machine: int | None = None

    @cached_property
    def delivery(self) -> Delivery:
        """How the epoch is dealt."""
        return self.view.reading(self.epoch).delivery

    @cached_property
    def units(self) -> int:
        """The samples that all ranks read, pads not counted; or the batches of a plan."""
        delivery = self.delivery
        return delivery.position_after(delivery.job_steps) if delivery.tail == "drop" else delivery.size

    @cached_property
    def samples(self) -> int:
        """The samples that all ranks read, pads not counted."""
        return self.units if self.batches is None else round(self.units * self.batches.mean)

    @cached_property
    def steps(self) -> tuple[int, int]:
        """The fewest and the most steps of a rank."""
        # Two neighbouring ranks differ where any do: the first one dealt to, and the last.
        ranks = (self.delivery.rotation, self.delivery.rotation - 1)
        readings = [self.view.reading(self.epoch, rank % self.view.num_ranks) for rank in ranks]
        steps = [self.view.steps(reading) for reading in readings]
        return min(steps), max(steps)

    @property
    def pads(self) -> int:
        """The samples, or batches of a plan, that are read twice to fill the last batches."""
        delivery = self.delivery
        return (delivery.start - delivery.size) % self.view.num_ranks if delivery.tail == "pad" else 0

    @property
    def most_pads_of_a_rank(self) -> int:
        """The most of these that one rank reads."""
        if not self.pads:
            return 0
        delivery = self.delivery
        # Pads are dealt last.
        last = (delivery.rotation - 1) % self.view.num_ranks
        positions = delivery.positions(last, delivery.job_steps - 1)
        return int(np.count_nonzero(positions >= delivery.size))

    @cached_property
    def batches(self) -> BatchFigures | None:
        """The batches of a plan, without their mixing; None where batches are of one size."""
        return batch_figures(self.view, self.epoch)

    @cached_property
    def windows(self) -> TokenWindowUnit | None:
        """How windows of tokens are cut; None of other datasets, and of windows in batches of a plan."""
        return None if self.view.recipe is not None else windows_of(self.view)

    @cached_property
    def tokens(self) -> TokenFigures | None:
        """The windows of tokens; None of other datasets."""
        return token_figures(self.view, self.epoch, self.samples)

    @cached_property
    def sources(self) -> dict[str, SourceFigures]:
        """What the epoch reads of each source of a mixture, by name; empty of other chains."""
        run, order = self.view.run, self.view.run.undealt(self.epoch)
        before, after = (source_reads(run.recipe, run.dataset, order, at) for at in (0, len(order)))
        none = SourceRead(0, 0.0, 0)
        samples = {name: one.samples - before.get(name, none).samples for name, one in after.items()}
        tokens = {
            name: one.tokens - (before.get(name, none).tokens or 0)
            for name, one in after.items()
            if one.tokens is not None
        }
        of_all = sum(tokens.values()) if len(tokens) == len(samples) else 0
        return {
            name: SourceFigures(
                count / max(1, sum(samples.values())),
                tokens[name] / of_all if of_all else None,
                after[name].passes,
                after[name].tokens,
            )
            for name, count in samples.items()
        }

    @cached_property
    def downloads(self) -> dict[str, Downloads]:
        """What the epoch asks of remote storage, by the names of the parts of a tree."""
        return downloads_of_parts(self.view, self.epoch, self.ranks_per_machine)

    @cached_property
    def mixing(self) -> Figure | None:
        """How close the order comes to a full shuffle; None of batches of a plan, or of too few samples."""
        return None if self._observation is None else self._observation.mixing()

    @cached_property
    def effective_batch(self) -> Figure | None:
        """The random batch that one of this order is worth if all samples of a file are alike."""
        look = self._observation
        return None if look is None or not look.has_files else look.effective_batch()

    @cached_property
    def _observation(self) -> Observation | None:
        view, batch = self.view, self.delivery.global_batch
        if view.recipe is not None or batch > view.layout.num_samples:
            return None
        source = view.order_source
        return None if source.length < LEAST_SAMPLES else Observation.on(source, batch)

    @property
    def files_of_a_shuffled_batch(self) -> float:
        """The number of files in a batch that is expected of a full shuffle."""
        share = self.view.layout.sizes / max(1, self.view.layout.num_samples)
        return float((1 - (1 - share) ** self.view.samples_a_batch).sum())


@final
@dataclass(frozen=True)
class Plan:
    """What a run will read in an epoch.

    Args:
        fingerprint: the short name of the run's orders.
        chain: the samplers in words.
        mode: the shuffle mode of the sampler that reads the dataset, ADAPTIVE resolved; None without one.
        reason: why it is that one, a sentence.
        num_samples: samples in the dataset.
        num_files: files in the dataset; 0 without.
        epoch_samples: samples that all ranks read in an epoch, pads not counted.
        num_ranks: of the job.
        batch_size: samples a rank and step; of batches of samples of different lengths, their mean.
        global_batch: samples a step.
        tail: what becomes of the last samples.
        lanes: into how many lanes the order is woven.
        steps: batches a rank; the largest number, where ranks differ.
        fewest_steps: the smallest.
        pads: samples read twice to fill the last batches, of all ranks together; or whole batches.
        most_pads_of_a_rank: the most that one rank reads.
        dropped: samples that the tail leaves out; or batches.
        files_of_a_rank: the most files that a rank reads in an epoch; None without files.
        files_of_a_worker: how many of them the first worker of rank 0 reads; None without files or workers.
        files_of_a_batch: the mean number of files in a rank's batch; None without files.
        is_counted: whether all of an epoch was looked at for these; else they are lower bounds.
        start_seconds: how long the first batch of ids took, measured here.
        order_bytes: the most memory that took, measured here.
        list_bytes: what a list of all ids would take on each rank.
        mixing: how close the order comes to a full shuffle; None of a dataset too small to tell.
        effective_batch: the samples of a random batch that says as much as one of this order, if all samples
            of a file were alike; None without files.
        transfers: what an epoch asks of remote storage, or of tar shards that are read sample by sample;
            None of other datasets, and of trees.
        transfers_of_parts: the same of the datasets in a tree, by the names of the parts that lead there.
        tokens: the figures of windows of tokens; None of other datasets.
        sources: of a mixture, what the epoch reads of each source, by name, and how often the run has read it
            by its end; empty of other chains.
        batches: the figures of batches of samples of different lengths, which have no `mixing`; None
            where batches are of one size.
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
        """Gives plain data, for JSON."""
        values = asdict(self)
        values["transfers"] = None if self.transfers is None else self.transfers.to_dict()
        values["transfers_of_parts"] = {name: one.to_dict() for name, one in self.transfers_of_parts.items()}
        for name in ("batches", "sources", "tokens", "transfers_of_parts"):
            if not values[name]:
                del values[name]
        return values


def plan(
    source: Any, *, epoch: int = 0, world: int | None = None, ranks_per_machine: int | None = None
) -> Plan:
    """Reports what each rank will read in an epoch, and what that costs.

    Args:
        source: a `Loader`, a `Config` with a dataset, or a torch DataLoader with a `TorchSampler`.
        epoch: which one; the numbers of samples are those of any, the files are counted in this one.
        world: of how many ranks a config is started on; None asks the sampler, then the running job.
        ranks_per_machine: how many ranks share a cache of remote files; None for all.

    Raises:
        ArgumentTypeError: `source` is something else.
        ShuffleModeError: the mode needs files, and the dataset has none.
        DatasetError: nobody has told how many samples there are, and files would have to be fetched for it.

    Example:
        >>> import samplerkit as sk
        >>> sampler = sk.RandomSampler(shuffle="adaptive", seed=7)
        >>> planned = plan(sk.Loader(range(10**9 + 1), sampler, batch_size=256, world=sk.World(8, 0)))
        >>> planned.mode, planned.steps, planned.pads
        ('partial', 488282, 7)
    """
    view = RunView.of(source, world)
    require_counted(view.run.dataset)
    start_seconds, order_bytes = cost_of_a_start(view, epoch)
    found = RunFigures(view, epoch, ranks_per_machine)
    delivery, layout, mode = found.delivery, view.layout, view.mode
    fewest_steps, steps = found.steps
    batches = found.batches and replace(found.batches, mixing=new_companions(view, epoch))
    mean = batches and batches.mean
    files_of_a_rank, is_counted = most_files(view, epoch)
    downloads = dict(found.downloads)
    return Plan(
        fingerprint=view.fingerprint,
        chain=repr(view.run.recipe),
        mode=None if mode is None else mode.resolve(layout).value,
        reason=_reason(mode, view),
        num_samples=layout.num_samples,
        num_files=layout.num_files,
        epoch_samples=found.samples,
        num_ranks=view.num_ranks,
        batch_size=view.samples_a_batch if mean is None else round(mean),
        global_batch=delivery.global_batch if mean is None else round(view.num_ranks * mean),
        tail=delivery.tail,
        lanes=view.lanes,
        steps=steps,
        fewest_steps=fewest_steps,
        pads=found.pads,
        most_pads_of_a_rank=found.most_pads_of_a_rank,
        dropped=delivery.size - found.units,
        files_of_a_rank=files_of_a_rank,
        files_of_a_worker=files_of_a_worker(view, epoch),
        files_of_a_batch=mean_files(view, epoch),
        is_counted=is_counted,
        start_seconds=start_seconds,
        order_bytes=order_bytes,
        list_bytes=LISTED_BYTES * layout.num_samples,
        mixing=found.mixing,
        effective_batch=found.effective_batch,
        transfers=downloads.pop("", None),
        transfers_of_parts=downloads,
        tokens=found.tokens,
        sources=found.sources,
        batches=batches,
    )


def _reason(mode: Mode | None, view: RunView) -> str:
    if mode is None:
        return "the sampler has no shuffle mode"
    if mode.shuffle is not Shuffle.ADAPTIVE:
        return "the sampler says so"
    size, threshold = view.layout.num_samples, mode.adaptive_threshold
    side = "at most" if size <= threshold else "more than"
    return f"adaptive, and {size:,} samples are {side} adaptive_threshold, {threshold:,}"
