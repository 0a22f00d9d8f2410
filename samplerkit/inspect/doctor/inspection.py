"""The subject of the checks: a loader of any kind, the samplers inside of it, and its trainer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch.utils.data

from samplerkit.batches.plan import BatchPlan
from samplerkit.batches.recipe import BatchRecipe
from samplerkit.errors import ArgumentTypeError
from samplerkit.inspect.costs import LISTED_BYTES
from samplerkit.inspect.plan import RunFigures
from samplerkit.inspect.view import RunView, loader_of
from samplerkit.loading.loader import Loader
from samplerkit.loading.torch_sampler import EpochByCursor, TorchSampler
from samplerkit.loading.world import detect_world
from samplerkit.order.caching import cached_property
from samplerkit.order.deal import World
from samplerkit.order.keys import ALGORITHM
from samplerkit.order.modes import Shuffle
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.groups import FoldSampler, PKSampler
from samplerkit.samplers.shuffled import WeightedRandomSampler

GIB = 1 << 30

_DEEPEST = 24
_INNER_NAMES = ("batch_sampler", "sampler", "_sampler", "base_sampler")
_SHARD_NAMES = (
    ("num_replicas", "rank"),
    ("num_processes", "process_index"),
    ("num_shards", "shard_id"),
    ("world_size", "rank"),
)
_COMPARED_INDICES = 1024
_BYTES_OF_A_TABLE = 24
_BYTES_OF_AN_ID = 8
SHUFFLING = (
    torch.utils.data.RandomSampler,
    torch.utils.data.SubsetRandomSampler,
    torch.utils.data.WeightedRandomSampler,
)
"""torch's samplers that draw from the process-wide random state if they have no generator."""


class Dealer(NamedTuple):
    """A sampler, loader or dataset that deals samples to ranks."""

    name: str
    num_shards: int
    shard: int | None


@dataclass(frozen=True, eq=False)
class Trainer:
    """A trainer of another package that has a loader.

    Args:
        name: the name that its users know.
        loader: the loader on which it trains.
        skips: how it skips the batches before the checkpoint on a resume; empty if it leaves that to the
            loader.
        instead: how to make it leave that to the loader.
        counts: whether it reads the number of batches once, and ends each epoch after as many.
    """

    name: str
    loader: Any
    skips: str = ""
    instead: str = ""
    counts: bool = True

    @classmethod
    def of(cls, source: Any) -> Trainer | None:
        """Recognizes a trainer; returns None if the object is not a trainer, or has no loader yet.

        Trainers are recognized by their attributes, so that their packages are not imported.
        """
        if callable(getattr(source, "get_train_dataloader", None)) and hasattr(source, "args"):
            skips = "" if source.args.ignore_data_skip else "wraps its loader in another one, which skips"
            instead = "call samplerkit.compat.huggingface.use_loader(trainer, loader)"
            return cls("Hugging Face's Trainer", source.get_train_dataloader(), skips, instead)
        if hasattr(source, "spin_dataloaders") and hasattr(source, "state"):
            skips = "reads and throws away" if source.spin_dataloaders else ""
            loader = source.state.train_dataloader
            return cls("Composer's Trainer", loader, skips, "use spin_dataloaders=False", counts=False)
        if hasattr(source, "fit_loop") and getattr(source, "train_dataloader", None) is not None:
            return cls("Lightning's Trainer", source.train_dataloader)
        return None


@dataclass(frozen=True, eq=False)
class Inspection:
    """A loader and its parts; facts that rules need are determined once.

    Args:
        loader: a `Loader`, or a torch DataLoader of any class.
        world: the world in which the loader reads.
        view: the run, if the sampler is samplerkit's.
        job: the running job, if a `Loader` or its sampler was given its own number of ranks or shard.
        trainer: the trainer that reads the loader.
        epoch: the current epoch of training; None if it is not known.
        saves_state: whether the state of the sampler is saved and loaded.
        ignores_tokens: whether the loop trains without using the number of tokens of all ranks.
    """

    loader: Any
    world: World
    view: RunView | None = None
    job: World | None = None
    trainer: Trainer | None = None
    epoch: int | None = None
    saves_state: bool = False
    ignores_tokens: bool = False

    @classmethod
    def of(cls, source: Any, world: World | None = None, **options: Any) -> Inspection:
        """Makes the inspection of a loader; no sample is read.

        Args:
            source: a loader of any kind, a config, or a trainer that has a loader.
            world: the world of the job, if it is not the running one.
            options: `epoch`, `saves_state` and `ignores_tokens`.

        Raises:
            ArgumentTypeError: `source` has no loader.
        """
        loader = loader_of(source, world)
        if (trainer := Trainer.of(loader)) is not None:
            return cls.of(trainer.loader, world, trainer=trainer, **options)
        if not isinstance(loader, Loader | torch.utils.data.DataLoader):
            raise ArgumentTypeError(
                "loader",
                "must be a samplerkit Loader, a torch DataLoader, a config, a trainer, or a function "
                "that makes one",
                loader,
            )
        job = world or detect_world()
        if isinstance(loader, Loader):
            running = job if _has_given_world(loader) else None
            return InspectedRun(loader, loader.world, RunView.of(loader), running, **options)
        try:
            view = RunView.of(loader)
        except (TypeError, RuntimeError):
            return Inspection(loader, job, **options)
        return InspectedRun(loader, job, view, **options)

    @property
    def is_ours(self) -> bool:
        """Whether the loader is a samplerkit `Loader`."""
        return isinstance(self.loader, Loader)

    @property
    def is_iterable(self) -> bool:
        """Whether the dataset is iterable-style, without random access."""
        return not self.is_ours and isinstance(self.dataset, torch.utils.data.IterableDataset)

    @property
    def dataset(self) -> Any:
        """The dataset of the loader."""
        return self.loader.dataset

    @property
    def threads(self) -> int:
        """The number of worker threads."""
        is_threaded = self.is_ours and self.loader.workers == "threads"
        return self.loader.num_workers if is_threaded else 0

    @property
    def num_workers(self) -> int:
        """The number of worker processes."""
        return int(self.loader.num_workers) - self.threads

    @cached_property
    def samplers(self) -> tuple[Any, ...]:
        """All samplers from the outermost to the innermost, including wrappers and samplerkit's chain."""
        # Not tested for truth: the length of a batch sampler may be 0 or raise an error.
        outermost = None if self.is_ours else self.loader.batch_sampler
        outermost = self.loader.sampler if outermost is None else outermost
        return () if self.is_iterable else tuple(_inside(outermost))

    @cached_property
    def chain(self) -> list[Sampler]:
        """samplerkit's chain of samplers, the outermost first."""
        return [sampler for sampler in self.samplers if isinstance(sampler, Sampler)]

    @cached_property
    def bridges(self) -> list[TorchSampler]:
        """The `TorchSampler`s above samplerkit's chain."""
        return [sampler for sampler in self.samplers if isinstance(sampler, TorchSampler)]

    @cached_property
    def others(self) -> list[Any]:
        """The samplers of torch and of other packages."""
        return [sampler for sampler in self.samplers if not isinstance(sampler, Sampler | TorchSampler)]

    @cached_property
    def is_managed(self) -> bool:
        """Whether samplerkit seeds other samplers while they draw, and sets their epoch."""
        return self.is_ours or any(isinstance(sampler, EpochByCursor) for sampler in self.samplers)

    @cached_property
    def is_evaluation(self) -> bool:
        """Whether samplerkit's chain reads in the order of the dataset."""
        names = {type(link).__name__ for link in self.chain}
        builtin = not any(link.is_foreign for link in self.chain)
        in_order = all(link.get_shuffle_mode() is Shuffle.FALSE for link in self.chain)
        return builtin and in_order and names <= {"SequentialSampler", "SubsetSampler", "DistributedSampler"}

    @cached_property
    def size(self) -> int | None:
        """The number of samples in the dataset; None if it has no length."""
        return self.view.layout.num_samples if self.view is not None else length_of(self.dataset)

    @cached_property
    def steps(self) -> int | None:
        """The number of batches in an epoch; None if it is not known."""
        return None if self.is_iterable else length_of(self.loader)

    @cached_property
    def deals(self) -> list[Dealer]:
        """Everything that deals samples to ranks, the outermost first."""
        return list(self._dealers())

    def _dealers(self) -> Iterator[Dealer]:
        # Accelerate's dispatcher: one process reads, and sends slices to the others.
        dispatched = getattr(getattr(self.loader, "state", None), "num_processes", 1)
        if hasattr(self.loader, "slice_fn") and dispatched > 1:
            yield Dealer(type(self.loader).__name__, dispatched, None)
        if self.is_ours and self.world.num_shards > 1:
            yield Dealer("the Loader", self.world.num_shards, self.world.shard_id)
        dealt_by_root = self.is_ours
        for sampler in self.samplers:
            if dealt_by_root and isinstance(sampler, Sampler) and sampler.deal is not None:
                # `TorchSampler` and `Loader` deal as the outermost distributed sampler says.
                dealt_by_root = False
            else:
                yield from _deal_of(sampler)
                dealt_by_root = dealt_by_root or isinstance(sampler, TorchSampler)
        if isinstance(self.dataset, torch.utils.data.Subset):
            yield from _manual_shard(self.dataset)

    @cached_property
    def large_list(self) -> tuple[Any, int] | None:
        """The first sampler that builds a list of at least 1 GiB, and its bytes; None if none does."""
        needed = ((sampler, bytes_of_list(sampler, self.size or 0)) for sampler in self.samplers)
        return next(((sampler, size) for sampler, size in needed if size >= GIB), None)

    def any_loader(self) -> Inspection:
        """Returns any loader, as the subject of a rule."""
        return self

    def stream(self) -> Inspection | None:
        """Returns a torch DataLoader of an iterable dataset; None for other loaders."""
        return self if self.is_iterable else None

    def loader_with_length(self) -> Inspection | None:
        """Returns a loader whose batches can be counted.

        Orders that take minutes and gigabytes to build are excluded.
        """
        return None if self.view is not None and self.large_list is not None else self

    def run(self) -> InspectedRun | None:
        """Returns a loader whose order is samplerkit's; the order is not built."""
        return self if isinstance(self, InspectedRun) else None

    def run_with_order(self) -> InspectedRun | None:
        """Returns a loader whose order is samplerkit's, and can be built in short time and memory."""
        return None if self.loader_with_length() is None else self.run()

    def run_with_plan(self) -> PlannedRun | None:
        """Returns a run whose batches come from a plan."""
        run = self.run_with_order()
        plan = None if run is None else run.view.run.epoch(run.view.epoch).plan
        if run is None or plan is None or run.view.recipe is None:
            return None
        return PlannedRun(run, run.view.recipe, plan)


class InspectedRun(Inspection):
    """A loader whose order is samplerkit's, and therefore known."""

    view: RunView

    @cached_property
    def figures(self) -> RunFigures:
        """The figures of the run's current epoch."""
        return RunFigures(self.view, self.view.epoch)


class PlannedRun(NamedTuple):
    """A run whose batches come from a plan."""

    run: InspectedRun
    recipe: BatchRecipe
    plan: BatchPlan


def _has_given_world(loader: Loader) -> bool:
    """Returns whether a `Loader` was given its shard or number of ranks, rather than asking the job."""
    deals = [link.deal for link in loader.sampler._links() if link.deal is not None]
    options = [number for deal in deals for number in (deal.num_shards, deal.shard_id)]
    return loader._cursor.run.given_world is not None or any(number is not None for number in options)


def _inside(outer: Any) -> Iterator[Any]:
    """Yields a sampler, the sampler that it draws from, and so on."""
    sampler, visited = outer, set[int]()
    while sampler is not None and id(sampler) not in visited and len(visited) < _DEEPEST:
        visited.add(id(sampler))
        yield sampler
        sampler = _next(sampler)


def _next(sampler: Any) -> Any:
    if isinstance(sampler, TorchSampler):
        return sampler.recipe
    if isinstance(sampler, Sampler) and sampler.get_child() is not None:
        return sampler.get_child()
    # Wrappers that deal the ids of another sampler have it as `dataset`.
    for holder in (sampler, getattr(sampler, "dataset", None)):
        for name in _INNER_NAMES:
            inner = getattr(holder, name, None)
            if hasattr(inner, "__iter__") and not isinstance(inner, list | tuple | np.ndarray | str):
                return inner
    return None


def _deal_of(sampler: Any) -> Iterator[Dealer]:
    options = sampler.deal if isinstance(sampler, Sampler) else sampler
    for count_name, index_name in _SHARD_NAMES:
        count, index = getattr(options, count_name, None), getattr(options, index_name, None)
        if isinstance(count, int) and count > 1:
            yield Dealer(type(sampler).__name__, count, index if isinstance(index, int) else None)
            return


def _manual_shard(subset: Any) -> Iterator[Dealer]:
    """Recognizes a shard: a Subset of every n-th sample."""
    size, first = length_of(subset.dataset), np.asarray(subset.indices[:_COMPARED_INDICES])
    if size is None or first.dtype.kind not in "iu":
        return
    strides = np.unique(np.diff(first))
    if strides.size != 1 or not first[0] < strides[0] > 1:
        return
    stride = int(strides[0])
    if size // stride <= len(subset) <= -(-size // stride):
        yield Dealer("the Subset", stride, int(first[0]))


def length_of(thing: Any) -> int | None:
    """Returns the length of an object; None if it has none."""
    try:
        return len(thing)
    except (TypeError, NotImplementedError):  # torch documents both
        return None


def bytes_of_list(sampler: Any, size: int) -> int:
    """Estimates the bytes of the list of ids that a sampler builds; 0 if it computes ids when needed."""
    is_other = getattr(sampler, "algorithm", ALGORITHM) != ALGORITHM
    if isinstance(sampler, EpochByCursor):
        # samplerkit computes its orders, except torch's own order, which is drawn as an array.
        return _BYTES_OF_AN_ID * size if is_other else 0
    if isinstance(sampler, Sampler):
        is_table = (
            isinstance(sampler, PKSampler)
            or (isinstance(sampler, WeightedRandomSampler) and not sampler.replacement)
            or (isinstance(sampler, FoldSampler) and sampler.groups is not None)
            or sampler.is_foreign
            # Shuffles of other packages are tables of all samples.
            or (is_other and sampler.get_shuffle_mode() is not Shuffle.FALSE)
        )
        return _BYTES_OF_A_TABLE * min(sampler.num_samples or size, size) if is_table else 0
    if isinstance(sampler, torch.utils.data.RandomSampler) and sampler.replacement:
        return 0  # torch draws 32 at a time
    if isinstance(sampler, (*SHUFFLING, torch.utils.data.DistributedSampler)):
        return LISTED_BYTES * len(getattr(sampler, "dataset", getattr(sampler, "data_source", sampler)))
    lists = [value for value in getattr(sampler, "__dict__", {}).values() if isinstance(value, list | tuple)]
    return LISTED_BYTES * max((len(value) for value in lists), default=0)
