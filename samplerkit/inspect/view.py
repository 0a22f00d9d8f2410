"""A uniform view of a run of any kind, with the readings of all its ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch.utils.data

from samplerkit.batches.recipe import BatchRecipe
from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError, DatasetError
from samplerkit.inspect.quality.order_source import OrderSource
from samplerkit.loading.device.loader import DeviceLoader
from samplerkit.loading.loader import Loader
from samplerkit.loading.run.delivery import Reading
from samplerkit.loading.run.run import Run
from samplerkit.loading.state.state import Place
from samplerkit.loading.torch_sampler import TorchBatchSampler, TorchSampler
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.deal import World
from samplerkit.order.layout import Layout
from samplerkit.order.modes import Mode, Shuffle
from samplerkit.samplers.subset import SequentialSampler, SubsetSampler

_FIRST_BATCHES = 64


@dataclass(frozen=True, eq=False)
class RunView:
    """A run, with the readings of all its ranks.

    Args:
        run: the sampler chain and the dataset, with the constants of the first start.
        batch_size: units per rank and step: samples, or one batch of a plan.
        epoch: the current epoch of the run.
        start: the position at which the run began this epoch.
        deals_in_lanes: whether a step is dealt in the order of lanes, as by a `Loader`.
        drops_last: whether each rank drops a last, smaller batch, as a plain DataLoader may.
        num_workers: worker processes of each rank that take its batches in turn; 0 for none.
    """

    run: Run
    batch_size: int
    epoch: int = 0
    start: int = 0
    deals_in_lanes: bool = True
    drops_last: bool = False
    num_workers: int = 0

    @classmethod
    def of(cls, source: Any, world: int | None = None) -> RunView:
        """Makes the view of a run.

        Args:
            source: a `Loader`, a `DeviceLoader` of one, a `Config` with a dataset, a torch DataLoader
                whose sampler is a `TorchSampler`, or a view.
            world: the number of ranks on which a config is started; None takes it from the sampler, then from
                the running job. A loader has its own number, which this must equal.

        Raises:
            ArgumentTypeError: `source` is something else.
            ArgumentValueError: `world` is not that of the loader.
        """
        source = loader_of(source, None if world is None else World(world, 0))
        view = source if isinstance(source, RunView) else _view_of_loader(source)
        if world is not None and world != view.num_ranks:
            raise ArgumentValueError(
                "world", f"is not that of the loader, which has {view.num_ranks} ranks", world
            )
        return view

    @property
    def num_ranks(self) -> int:
        """The number of ranks."""
        return self.run.world.num_shards

    @property
    def layout(self) -> Layout:
        """The samples and files of the dataset."""
        return Layout.of(self.run.dataset)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the orders of all epochs."""
        return self.run.state(Place(0, 0)).fingerprint

    def reading(self, epoch: int, rank: int = 0, start: int | None = None) -> Reading:
        """Returns the reading of a rank in an epoch.

        Args:
            epoch: the epoch, from 0.
            rank: the rank, in [0, ranks).
            start: the position at which the reading begins. None for the beginning of the epoch, or, for the
                current epoch of the run, for the position at which the run began it.

        Raises:
            ArgumentRangeError: there is no such rank or position.
        """
        rank = arguments.integer("rank", rank)
        if not 0 <= rank < self.num_ranks:
            hint = "set the number of ranks: world=, or --world" if self.num_ranks == 1 else ""
            raise ArgumentRangeError("rank", f"must be in [0, {self.num_ranks})", rank, hint=hint)
        epoch = arguments.epoch(epoch)
        if start is None:
            start = self.start if epoch == self.epoch else 0
        start = arguments.integer("start", start)
        reading = self.run.reading(epoch, start)
        # Only if needed: counting the batches of a plan may take long.
        if start and not 0 <= start <= reading.delivery.size:
            raise ArgumentRangeError("start", f"must be in [0, {reading.delivery.size}]", start)
        if not self.deals_in_lanes:
            dealt = replace(reading.delivery, batch_size=self.batch_size, lanes=1)
            # If the rank with the most samples drops some of them, each rank does.
            if self.drops_last and dealt.samples(dealt.rotation) % self.batch_size:
                dealt = replace(dealt, tail="drop")
            reading = replace(reading, delivery=dealt)
        return replace(reading, shard=rank)

    @property
    def recipe(self) -> BatchRecipe | None:
        """The recipe for batches of samples of different lengths; None if samples are dealt, not batches."""
        return self.run.unit.recipe

    @cached_property
    def samples_a_batch(self) -> int:
        """Samples per rank and step; for batches of a recipe, the mean of the first batches."""
        plan = self.run.epoch(self.epoch).plan
        if plan is None:
            return self.batch_size
        sizes = [len(batch) for batch in islice(plan, _FIRST_BATCHES)] or [1]
        return max(1, round(sum(sizes) / len(sizes)))

    @property
    def mode(self) -> Mode | None:
        """The shuffle mode in which samples are read; None if no sampler of the chain has one.

        It is the mode of the sampler that reads the dataset, or, if that does not shuffle, of the one above
        it that does.
        """
        chosen = None
        for link in reversed(self.run.sampler._links()):
            mode = getattr(link, "mode", None)
            if isinstance(mode, Mode) and not getattr(link, "replacement", False):
                chosen = mode
            elif not isinstance(link, SequentialSampler | SubsetSampler):
                chosen = None
            if chosen is not None and chosen.shuffle is not Shuffle.FALSE:
                return chosen
        return chosen

    @property
    def shuffle(self) -> Shuffle | None:
        """The shuffle mode, ADAPTIVE resolved; None if no sampler of the chain has one."""
        return None if self.mode is None else self.mode.resolve(self.layout)

    @cached_property
    def order_source(self) -> OrderSource:
        """The orders of all epochs, with the lanes of the first start, and their shuffle mode."""
        return OrderSource.of(self.run.sampler, self.run.dataset, World(self.run.constants.lanes))

    @property
    def lanes(self) -> int:
        """The number of lanes of the order."""
        return self.run.sampler.chain.woven_lanes(self.run.dataset, self.run.constants)

    def steps(self, reading: Reading) -> int:
        """Returns the number of batches that a rank yields."""
        samples = reading.delivery.samples(reading.shard)
        return samples // self.batch_size if self.drops_last else reading.steps


def loader_of(source: Any, world: World | None) -> Any:
    """Returns the loader of a config or of a `DeviceLoader`; anything else is returned unchanged.

    Args:
        source: a config, a `DeviceLoader`, or anything else.
        world: the world in which a config is started; None takes it from the sampler, then from the running
            job.

    Raises:
        ArgumentValueError: the config has no dataset.
    """
    if isinstance(source, DeviceLoader):
        return loader_of(source.loader, world)
    if not (callable(getattr(source, "make_loader", None)) and hasattr(source, "sampler")):
        return source
    if getattr(source, "dataset", None) is None:
        raise ArgumentValueError(
            "dataset",
            "is not in the config",
            hint="add for instance dataset: {kind: size, size: 1000000}, or pass a Loader",
        )
    deal = source.sampler.chain.deal
    if world is not None and deal is not None and deal.shard_id is not None:
        world = World(world.num_shards, deal.shard_id)
    # A config with only a layout has no dataset: the loader then reads the layout.
    return source.make_loader(source.dataset if isinstance(source.dataset, Layout) else None, world)


def _view_of_loader(loader: Any) -> RunView:
    if isinstance(loader, Loader):
        takes_turns = loader.workers == "processes" and not loader.file_affinity
        workers, place = loader.num_workers if takes_turns else 0, loader._cursor.current
        return RunView(
            loader._cursor.run, loader.batch_size or 1, loader.epoch, place.start, num_workers=workers
        )
    batches = getattr(loader, "batch_sampler", None)
    sampler = getattr(batches, "sampler", getattr(loader, "sampler", None))
    if not isinstance(sampler, TorchSampler):
        raise ArgumentTypeError(
            "loader",
            "must be a samplerkit Loader, a config, or a DataLoader with a TorchSampler",
            loader,
            hint="the orders of other samplers are not known ahead",
        )
    if not isinstance(batches, TorchBatchSampler) and type(batches) is not torch.utils.data.BatchSampler:
        raise ArgumentTypeError("batch_sampler", "makes batches in an unknown way", batches)
    return RunView(
        sampler._cursor.run,
        batches.batch_size or 1,
        sampler.epoch,
        sampler._cursor.current.start,
        deals_in_lanes=False,
        drops_last=batches.drop_last and not sampler.counts_batches,
        num_workers=loader.num_workers,
    )


HINT = (
    "call dataset.save_lengths('lengths.json') once, or for tar shards samplerkit index, which also writes "
    "it, and set lengths: lengths.json"
)


def is_counted(dataset: Any) -> bool:
    """Returns whether a dataset knows its number of samples without fetching remote files."""
    return bool(getattr(dataset, "is_layout_known", True)) or not getattr(dataset, "is_remote", True)


def require_counted(dataset: Any) -> None:
    """Checks that the samples of a dataset are counted, or are in local files.

    Plans, lookups and checks are computed from numbers, and users do not expect them to fetch all files.

    Raises:
        DatasetError: files would have to be fetched.
    """
    if not is_counted(dataset):
        problem = "are unknown, and all files would have to be fetched to count them"
        raise DatasetError("lengths", problem, hint=HINT)
