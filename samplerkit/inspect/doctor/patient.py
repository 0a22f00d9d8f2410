"""What the doctor looks at: a loader of any kind, and the samplers inside of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch.utils.data

from samplerkit.errors import ArgumentTypeError
from samplerkit.inspect.doctor.trainer import Trainer
from samplerkit.inspect.view import RunView
from samplerkit.loading.device.loader import DeviceLoader
from samplerkit.loading.loader import Loader
from samplerkit.loading.torch_sampler import TorchSampler
from samplerkit.loading.world import detect_world
from samplerkit.order.shuffle import Shuffle
from samplerkit.order.world import World
from samplerkit.samplers.base import Sampler

_DEEPEST = 24
_INSIDE = ("batch_sampler", "sampler", "_sampler", "base_sampler")
_SHARD_NAMES = (
    ("num_replicas", "rank"),
    ("num_processes", "process_index"),
    ("num_shards", "shard_id"),
    ("world_size", "rank"),
)
_COMPARED_INDICES = 1024


@final
@dataclass(frozen=True)
class Dealer:
    """Somebody who deals samples to ranks."""

    who: str
    num_shards: int
    shard: int | None


@final
@dataclass(frozen=True, eq=False)
class Patient:
    """A loader, taken apart.

    Args:
        loader: a `Loader`, or a torch DataLoader of any class.
        dataset: what it reads.
        samplers: from the outermost to the innermost, wrappers and samplerkit's chain included.
        world: of the running job.
        num_workers: worker processes.
        persistent_workers: whether they live on from epoch to epoch.
        view: the run, where the sampler is samplerkit's.
        epoch: the epoch at which training is; None if that was not told.
        saves_state: whether the state of the sampler is saved and loaded.
        ignores_tokens: whether the loop trains, and never asks how many tokens all ranks hold.
        threads: workers that are threads.
        job: that which runs, where a Loader was told a world in its place.
        trainer: in whose hands the loader is.
    """

    loader: Any
    dataset: Any
    samplers: tuple[Any, ...]
    world: World
    num_workers: int
    persistent_workers: bool
    view: RunView | None
    epoch: int | None = None
    saves_state: bool = False
    ignores_tokens: bool = False
    threads: int = 0
    job: World | None = None
    trainer: Trainer | None = None

    @classmethod
    def of(
        cls, loader: Any, world: World | None = None, epoch: int | None = None, *, saves_state: bool = False
    ) -> Patient:
        """Takes a loader apart; nothing is read.

        Raises:
            ArgumentTypeError: it is no loader.
        """
        if isinstance(loader, DeviceLoader):
            return cls.of(loader.loader, world, epoch, saves_state=saves_state)
        if (trainer := Trainer.of(loader)) is not None:
            return replace(cls.of(trainer.loader, world, epoch, saves_state=saves_state), trainer=trainer)
        if isinstance(loader, Loader):
            return cls(
                loader,
                loader.dataset,
                tuple(_inside(loader.sampler)),
                loader.world,
                loader.num_workers if loader.workers == "processes" else 0,
                bool(loader._source._options.get("persistent_workers")),
                RunView.of(loader),
                epoch,
                saves_state,
                threads=loader.num_workers if loader.workers == "threads" else 0,
                job=(world or detect_world()) if loader._run._given_world is not None else None,
            )
        if not isinstance(loader, torch.utils.data.DataLoader):
            raise ArgumentTypeError(
                "loader",
                "must be a samplerkit Loader, a torch DataLoader, a config, a trainer, or a function "
                "that makes one",
                loader,
            )
        # A batch sampler has a length, which may be 0 or an error: it must not be asked whether it is true.
        outermost = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
        outer = () if _is_iterable(loader) else tuple(_inside(outermost))
        ours = any(isinstance(sampler, TorchSampler) and sampler.world for sampler in outer)
        return cls(
            loader,
            loader.dataset,
            outer,
            detect_world() if world is None else world,
            loader.num_workers,
            loader.persistent_workers,
            RunView.of(loader) if ours and _is_plain(loader) else None,
            epoch,
            saves_state,
        )

    @property
    def is_ours(self) -> bool:
        """Whether it is a samplerkit `Loader`."""
        return isinstance(self.loader, Loader)

    @property
    def is_iterable(self) -> bool:
        """Whether the dataset is a stream."""
        return not self.is_ours and _is_iterable(self.loader)

    @property
    def is_evaluation(self) -> bool:
        """Whether samplerkit's chain reads in the order of the dataset."""
        chain = [sampler for sampler in self.samplers if isinstance(sampler, Sampler)]
        known = all(type(link).__module__.startswith("samplerkit.") for link in chain)
        names = {type(link).__name__ for link in chain}
        in_order = all(link.get_shuffle_mode() is Shuffle.FALSE for link in chain)
        return known and in_order and names <= {"SequentialSampler", "SubsetSampler", "DistributedSampler"}

    def size(self) -> int | None:
        """Gives the number of samples in the dataset; None of a stream."""
        try:
            return self.view.layout.num_samples if self.view is not None else len(self.dataset)
        except TypeError:
            return None

    def steps(self) -> int | None:
        """Gives the number of batches in an epoch; None where that is not known."""
        try:
            return None if self.is_iterable else len(self.loader)
        except TypeError:
            return None

    def deals(self) -> list[Dealer]:
        """Finds all who deal samples to ranks, the outermost first."""
        found = _deal_of_loader(self.loader)
        if self.is_ours and self.world.num_shards > 1:
            found.append(Dealer("the Loader", self.world.num_shards, self.world.shard_id))
        dealt_by_root = self.is_ours
        for sampler in self.samplers:
            if isinstance(sampler, Sampler):
                # The bridge and the loader deal what the outermost distributed sampler says.
                if sampler.deal is not None and not dealt_by_root:
                    found += _deal_of(sampler)
                dealt_by_root = dealt_by_root and sampler.deal is None
                continue
            dealt_by_root = dealt_by_root or isinstance(sampler, TorchSampler)
            found += _deal_of(sampler)
        return found + _deal_of_dataset(self.dataset)


def _is_iterable(loader: Any) -> bool:
    return isinstance(loader.dataset, torch.utils.data.IterableDataset)


def _is_plain(loader: Any) -> bool:
    try:
        RunView.of(loader)
    except (TypeError, RuntimeError):
        return False
    return True


def _inside(outer: Any) -> Iterator[Any]:
    """Goes from a sampler to what it draws from, and on."""
    sampler, seen = outer, set[int]()
    while sampler is not None and id(sampler) not in seen and len(seen) < _DEEPEST:
        seen.add(id(sampler))
        yield sampler
        sampler = _next(sampler)


def _next(sampler: Any) -> Any:
    if isinstance(sampler, TorchSampler):
        return sampler.recipe
    if isinstance(sampler, Sampler) and sampler.get_child() is not None:
        return sampler.get_child()
    # Wrappers that deal another sampler's ids hold it as a dataset.
    for holder in (sampler, getattr(sampler, "dataset", None)):
        for name in _INSIDE:
            inner = getattr(holder, name, None)
            if hasattr(inner, "__iter__") and not isinstance(inner, list | tuple | np.ndarray | str):
                return inner
    return None


def _deal_of(sampler: Any) -> list[Dealer]:
    name = type(sampler).__name__
    if isinstance(sampler, Sampler):
        deal = sampler.deal
        is_dealt = deal is not None and deal.num_shards is not None and deal.num_shards > 1
        return [Dealer(name, deal.num_shards, deal.shard_id)] if is_dealt else []  # type: ignore[union-attr, arg-type]
    for count_name, index_name in _SHARD_NAMES:
        count, index = getattr(sampler, count_name, None), getattr(sampler, index_name, None)
        if isinstance(count, int) and count > 1:
            return [Dealer(name, count, index if isinstance(index, int) else None)]
    return []


def _deal_of_loader(loader: Any) -> list[Dealer]:
    """Sees Accelerate's dispatcher: one process reads, and sends slices to the others."""
    ranks = getattr(getattr(loader, "state", None), "num_processes", 1)
    return [Dealer(type(loader).__name__, ranks, None)] if hasattr(loader, "slice_fn") and ranks > 1 else []


def _deal_of_dataset(dataset: Any) -> list[Dealer]:
    """Sees a Subset that holds every so-manieth sample: a shard that was cut by hand."""
    if not isinstance(dataset, torch.utils.data.Subset):
        return []
    indices = dataset.indices
    try:
        whole = len(dataset.dataset)  # type: ignore[arg-type]
    except TypeError:
        return []
    if len(indices) < 2:
        return []
    first = np.asarray(indices[:_COMPARED_INDICES])
    stride = int(first[1]) - int(first[0])
    is_even = stride > 1 and bool((np.diff(first) == stride).all()) and int(first[0]) < stride
    if not is_even or not whole // stride <= len(indices) <= -(-whole // stride):
        return []
    return [Dealer("the Subset", stride, int(first[0]))]
