"""`WebDataset`: webdataset's fluent interface over shards with random access."""

import weakref
from collections.abc import Generator, Iterator, Mapping
from dataclasses import asdict
from multiprocessing import context
from typing import Any, Self, final, get_args

import torch.utils.data

from samplerkit.closing import Closing
from samplerkit.compat.webdataset import arguments as checks
from samplerkit.compat.webdataset import stages
from samplerkit.compat.webdataset.arguments import EqualSteps
from samplerkit.compat.webdataset.commands import Piped
from samplerkit.compat.webdataset.epochs import EpochLedger
from samplerkit.compat.webdataset.fluent import Fluent
from samplerkit.compat.webdataset.handlers import Handler, split_by_node, split_by_worker
from samplerkit.compat.webdataset.reading import FOREVER, SamplePipeline, WorkerPlace, WorkerSlot
from samplerkit.errors import ArgumentTypeError, ArgumentValueError, StateError
from samplerkit.loading.state.state import digest, int_in, mismatch, require_fields
from samplerkit.order import arguments
from samplerkit.order.arguments import INT64_MAX
from samplerkit.order.deal import World
from samplerkit.storage.tar.dataset import TarDataset

KIND = "webdataset"
SCHEMA = 1


def _restore(saved: Any, pipeline: SamplePipeline, slot: WorkerSlot) -> WorkerPlace:
    """Reads a saved state.

    Raises:
        StateError: it is not the state of such a dataset, or was saved by another worker or rank.
    """
    if not isinstance(saved, Mapping) or saved.get("samplerkit") != KIND:
        raise StateError("state", "is not the state of a samplerkit WebDataset", saved)
    if saved.get("schema") != SCHEMA:
        raise StateError("schema", "is not known", saved.get("schema"), SCHEMA, hint="update samplerkit")
    identity = _identity(pipeline, slot)
    obstacle = saved.get("obstacle") or identity.get("obstacle")
    if obstacle:
        hint = "use samplerkit.Loader over a TarDataset"
        raise StateError("state", f"cannot be resumed because {obstacle}", hint=hint)
    for name, value in identity.items():
        if saved.get(name) != value:
            hint = "a samplerkit.Loader over a TarDataset resumes on any number of ranks and workers"
            raise mismatch(name, saved.get(name), value, hint)
    numbers: dict[str, Any] = {name: saved.get(name) for name in asdict(WorkerPlace(0))}
    require_fields("state", numbers, dict.fromkeys(numbers, int_in(0, INT64_MAX)))
    return WorkerPlace(**numbers)


def _identity(pipeline: SamplePipeline, slot: WorkerSlot) -> dict[str, Any]:
    """Returns what must be equal in the run that loads a state, or why an iteration cannot be resumed."""
    if pipeline.tar is None:
        return {"obstacle": "commands are read from the beginning"}
    for stage in pipeline.stages:
        if isinstance(stage, stages.Uncounted):
            return {"obstacle": f"of .{stage.name}"}
    shuffle = pipeline.seed, pipeline.mode, pipeline.window, pipeline.lanes
    part = pipeline.equal_steps, pipeline.batch_size, pipeline.passes, pipeline.most_items
    return {
        "dataset": pipeline.tar.fingerprint,
        "order": digest(repr((shuffle, part))),
        "num_shards": slot.world.num_shards,
        "shard_id": slot.world.shard_id,
        "workers": slot.workers,
        "worker": slot.worker,
    }


@final
class WebDataset(Fluent, Closing, torch.utils.data.IterableDataset[Any]):
    """Samples in tar shards, for `torch.utils.data.DataLoader`, with webdataset's interface.

    Each sample is read once per epoch by all ranks and workers together: shards are split between ranks and
    workers, so there may be fewer shards than workers. Each iteration over the dataset, or over a DataLoader
    of it, reads the next epoch. Each method returns a new dataset that counts its own epochs.

    Args:
        urls: a path, a URL or a list of them, with braces or wildcards, or a `TarDataset`. With
            `allow_commands`, also `pipe:` and a command that writes a shard.
        handler: a function that is called with the error if an archive is damaged or a command fails. It
            raises the error, or returns True to skip the affected samples. None raises.
        mode: None, or "resampled".
        resampled: whether to read without end, in random order; `with_epoch` sets the size of an epoch. Each
            pass reads every sample once, while webdataset draws shards with replacement.
        repeat: whether to read without end.
        shardshuffle: whether the shards are in random order. A number means all shards.
        cache_size: how many bytes of remote shards are kept in `cache_dir`; -1 for a default.
        cache_dir: the folder in which remote shards are kept; before the one in `remote`.
        url_to_name: not needed: the cache has its own names.
        detshuffle: not needed: every shuffle depends only on seed and epoch.
        nodesplitter: webdataset's `split_by_node`: each rank reads its part. None: every rank reads all
            samples.
        workersplitter: webdataset's `split_by_worker`.
        select_files: refused: samples are indexed once.
        rename_files: refused: samples are indexed once.
        empty_check: whether a dataset without samples is an error.
        verbose: not needed.
        seed: the seed of the shuffles, the same on all ranks; None for 0.
        world: the rank and the number of ranks; None for those of the running job, when an iteration begins.
        equal_steps: `pad`: every rank reads the same number of samples, some of the first ones twice. `drop`:
            some samples are left out instead. If all ranks have the same number of workers, the numbers of
            batches are equal as well. None: each sample is read once, and ranks differ by at most one sample.
        batch_size: the batch size of your DataLoader. The parts of workers then end between two batches, so
            that a rank has one smaller batch instead of one per worker, and `len` is known.
        lanes: the number of lanes of the order; None for the number of ranks.
        allow_commands: whether `pipe:` URLs are run. Anyone who can write the URLs can run programs as you.
        command_timeout: how many seconds a command may send nothing.
        tar_options: other arguments of `TarDataset`: `remote`, `cache`, `on_error`, `checksums` and so on.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: a value is not valid, or a URL is a command and commands are not allowed.
        NotSupportedError: an argument is not supported; the error has an alternative.
        DatasetError: when it is read: a shard is missing, or an archive or a command fails. The error also
            has the class that webdataset raises: OSError, FileNotFoundError or tarfile.ReadError.

    Source: the interface is webdataset's.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from samplerkit.compat.webdataset import ShardWriter, WebDataset
        >>> folder = TemporaryDirectory()
        >>> with ShardWriter(f"{folder.name}/train-%06d.tar", maxcount=4) as writer:
        ...     for number in range(10):
        ...         writer.write({"__key__": f"{number:04}", "txt": f"number {number}", "cls": number % 2})
        >>> urls = f"{folder.name}/train-{{000000..000002}}.tar"
        >>> dataset = WebDataset(urls, cache=folder.name).shuffle(1000).decode().to_tuple("txt", "cls")
        >>> loader = torch.utils.data.DataLoader(dataset, batch_size=4)
        >>> first, second = ([text for texts, _ in loader for text in texts] for epoch in range(2))
        >>> sorted(first) == sorted(second), first == second, len(first)
        (True, False, 10)
        >>> folder.cleanup()
    """

    _cursor: WorkerPlace | None
    _loaded: Mapping[str, Any] | None

    def __init__(
        self,
        urls: Any,
        handler: Handler | None = None,
        mode: str | None = None,
        resampled: bool = False,
        repeat: bool = False,
        shardshuffle: int | bool | None = None,
        cache_size: int = -1,
        cache_dir: Any = None,
        url_to_name: Any = None,
        detshuffle: bool = False,
        nodesplitter: Any = split_by_node,
        workersplitter: Any = split_by_worker,
        select_files: Any = None,
        rename_files: Any = None,
        empty_check: bool = True,
        verbose: bool = False,
        seed: int | None = None,
        *,
        world: World | None = None,
        equal_steps: EqualSteps | None = None,
        batch_size: int | None = None,
        lanes: int | None = None,
        allow_commands: bool = False,
        command_timeout: float = 60.0,
        **tar_options: Any,
    ) -> None:
        super().__init__()
        checked = checks.handler_of(handler)
        is_resampled = arguments.boolean("resampled", resampled) or mode == "resampled"
        reads_all = checks.reads_everything(nodesplitter, workersplitter, resampled=is_resampled)
        checks.refuse(
            mode=None if is_resampled else mode, select_files=select_files, rename_files=rename_files
        )
        if world is not None and not isinstance(world, World):
            raise ArgumentTypeError("world", "must be a World or None", world)
        self._world = World(1, 0) if world is None and reads_all else world
        timeout = command_timeout if arguments.boolean("allow_commands", allow_commands) else None
        shards = checks.shards(urls, checked, cache_dir, cache_size, tar_options, timeout)
        self._pipeline = SamplePipeline(
            shards,
            seed=0 if seed is None else arguments.seed("seed", seed),
            shuffles_shards=is_resampled or bool(shardshuffle),
            lanes=arguments.lanes("lanes", lanes),
            equal_steps=equal_steps and arguments.choice("equal_steps", equal_steps, get_args(EqualSteps)),
            batch_size=arguments.limit("batch_size", batch_size),
            passes=FOREVER if is_resampled or arguments.boolean("repeat", repeat) else 1,
            handler=checked,
            may_be_empty=not arguments.boolean("empty_check", empty_check),
        )
        if isinstance(shards, Piped) and equal_steps is not None:
            raise ArgumentValueError("equal_steps", "cannot be kept by commands", hint="use with_epoch(n)")
        self._start_counting(0)

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration reads."""
        return self._epochs.next

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads, also in persistent workers.

        Raises:
            ArgumentTypeError: `epoch` is not an integer.
            ArgumentValueError: `epoch` is negative.
        """
        self._epochs.set(arguments.epoch(epoch))

    def __iter__(self) -> Iterator[Any]:
        slot = WorkerSlot.current(self._world)
        loaded, self._loaded = self._loaded, None
        saved = None if loaded is None else _restore(loaded, self._pipeline, slot)
        epoch = self._epochs.begin(None if saved is None else saved.epoch)
        self._cursor = cursor = WorkerPlace(epoch) if saved is None else saved
        iteration = self._pipeline.items(slot, cursor)
        self._iterations.add(iteration)
        return iteration

    def __len__(self) -> int:
        pipeline = self._pipeline
        if pipeline.length is not None:
            return pipeline.length
        dataset, chain = pipeline.tar, pipeline.stages
        # The limit is per worker, so the length would depend on the number of workers of the DataLoader.
        is_endless = pipeline.passes == FOREVER or pipeline.most_items is not None
        if dataset is None or pipeline.batch_size is None or stages.uncounted(chain) or is_endless:
            hint = "use batch_size= (that of your DataLoader), .batched(n) or .with_length(n)"
            raise ArgumentTypeError("len", "is not known for this dataset", self, hint=hint)
        rows = pipeline.rows_of_rank(len(dataset), WorkerSlot.current(self._world).world)
        return pipeline.passes * stages.length(chain, rows)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of this process's iteration, for torchdata's `StatefulDataLoader`.

        It is the state of one worker, for the same number of ranks and workers. `samplerkit.Loader` over a
        `TarDataset` resumes on any number of them. If a state was loaded and nothing was read since, that
        state is returned.

        Raises:
            StateError: the loaded state is of another dataset, rank or worker, or cannot be resumed.
        """
        slot = WorkerSlot.current(self._world)
        cursor = self._cursor or WorkerPlace(self._epochs.next)
        if self._loaded is not None:
            cursor = _restore(self._loaded, self._pipeline, slot)
        identity = _identity(self._pipeline, slot)
        place = {} if "obstacle" in identity else asdict(cursor)
        return {"samplerkit": KIND, "schema": SCHEMA, **place, **identity}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Makes the next iteration of this process resume at a saved state.

        Raises:
            StateError: when it begins: the state is of another dataset, rank or worker, or cannot be resumed.
        """
        self._loaded = state

    def close(self) -> None:
        """Ends the iterations of this process and their commands. The dataset can be used again."""
        for iteration in list(self._iterations):
            iteration.close()
        if isinstance(self._pipeline.shards, TarDataset):
            self._pipeline.shards.close()

    def _replace(self, **changes: Any) -> Self:
        other = super()._replace(**changes)
        other._start_counting(self._epochs.next)
        return other

    def _start_counting(self, epoch: int) -> None:
        self._epochs = EpochLedger(epoch)
        self._cursor, self._loaded = None, None
        self._iterations: weakref.WeakSet[Generator[Any, None, None]] = weakref.WeakSet()

    def __getstate__(self) -> dict[str, Any]:
        # A spawned worker may have no other way to know the rank of its parent process.
        own = WorkerSlot.current(self._world).world if context.get_spawning_popen() is not None else World()
        world = self._world if own == World() else own
        return {**self.__dict__, "_world": world, "_iterations": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._iterations = weakref.WeakSet()
