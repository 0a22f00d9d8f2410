"""The drop-in for both versions of the original sampler: shuffled files, a run of rows per rank, blocks."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from samplerkit.closing import Closing
from samplerkit.compat.partially_shuffle.files import DatasetFiles, Item
from samplerkit.compat.torch.epoch_sampler import GivenRank, ResumableSampler, part_of_order
from samplerkit.errors import DatasetError
from samplerkit.loading.iteration import FunctionCursor, Iteration
from samplerkit.loading.state.state import Place, State
from samplerkit.loading.torch_sampler import in_batches
from samplerkit.order import arguments
from samplerkit.order.algebra import Shard, compose
from samplerkit.order.keys import ALGORITHM
from samplerkit.order.layout import Layout
from samplerkit.order.order import Order
from samplerkit.samplers.shuffled import DistributedSampler as Recipe
from samplerkit.storage.file_stats import FileStats
from samplerkit.storage.remote.options import RemoteOptions

AGREEMENT_SECONDS: Final = 10.0
"""How long the ranks of a job wait for each other when an epoch begins."""

_NAME: Final = "DistributedSamplerViaLocallyShuffle"


class DistributedSamplerViaLocallyShuffle(  # type: ignore[override]  # torch has plain attributes
    GivenRank, Closing, ResumableSampler[Item]
):
    """Reads files for the dataset, and yields batches of arrays that are shuffled within a buffer.

    An item has the original's format: `[arrays, None, files]`, where `files` lists the files of the batch,
    and `arrays` has a dict with the rows of each. A DataLoader passes it to `dataset[item]`. Each file is
    read once per epoch and process, the next one in the background, as long as `file_buffer` is enough for
    the files between which a shuffle buffer alternates.

    The files are shuffled, and their rows are cut into one contiguous run per rank, all of the same length.
    If the samples do not divide evenly, the last run continues with the first rows: every sample is read
    once, and fewer than `num_replicas` samples twice. A rank shuffles its run in blocks of `shuffle_buffer`
    rows. The last batch of a rank has the remaining rows.

    After a whole epoch, the next iteration reads the next epoch; `set_epoch` sets it. The order depends on
    the seed, the epoch, the files, their lengths, `shuffle_buffer` and `pools`, and on the number of ranks at
    the first start. Global random generators are not used.

    Args:
        dataset: an object with `files`, a list of paths, and optionally `reset()`, which is called before
            each epoch.
        reader: `reader(file, get_data=True)` returns a dict of arrays and their length, and with
            `get_data=False` the length alone; or any other reader that `FileDataset` accepts. It is called
            from several threads.
        num_replicas: the number of ranks; None takes it from the running job at first use.
        rank: this process's rank; None takes it from the running job.
        shuffle: whether to shuffle files and samples.
        shuffle_buffer: how many samples are shuffled together; None for as many as `file_buffer` allows
            without reading a file twice.
        total_size: as in the original; it is ignored, since samples are counted.
        batch_size: the number of samples in an item.
        file_buffer: files in memory, in addition to the prefetched one.
        debug: whether to log each file that is read, at level INFO.
        files_len: the number of samples in each file, by file; files that are not in it are counted at first
            use.
        pools: 1 for separate blocks of `shuffle_buffer` samples, as in the original's first version; 2 to let
            samples cross the borders of blocks, as in its second version. None means 1, or 2 in the class
            with V2.
        seed: the seed, the same on all ranks, in [0, 2^64).
        remote: how to fetch files that are URLs, once per machine; the reader then receives the path of the
            copy. None passes it the URL, as the original does.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: `seed` is out of range.
        ArgumentRangeError: a number is not positive, `rank` or `pools` is out of range.
        WorldError: at first use: the environment of the running job contradicts itself.
        DatasetError: when it is used: there is no file, or a file cannot be read, is not a dict of arrays, or
            has another length than was given.
        DisagreementError: when it is read: another rank of the job reads other files, or in another order.

    Source: https://github.com/microsoft/PartiallyShuffleDistributedSampler

    Example:
        >>> import os, tempfile, types
        >>> import numpy as np
        >>> folder = tempfile.mkdtemp()
        >>> for number in range(4):
        ...     np.savez(os.path.join(folder, f"{number}.npz"), x=np.arange(10) + number * 10)
        >>> dataset = types.SimpleNamespace(files=[os.path.join(folder, f"{n}.npz") for n in range(4)])
        >>> sampler = DistributedSamplerViaLocallyShuffle(dataset, "npz", 2, 0, batch_size=8, seed=7)
        >>> [sum(len(arrays["x"]) for arrays in item[0]) for item in sampler], len(sampler), sampler.epoch
        ([8, 8, 4], 20, 1)
    """

    drop_last = False
    _default_pools = 1

    def __init__(
        self,
        dataset: Any,
        reader: Callable[..., Any] | str,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        shuffle_buffer: int | None = None,
        total_size: int | None = None,
        batch_size: int = 1,
        file_buffer: int = 10,
        debug: bool = False,
        files_len: Mapping[Any, int] | None = None,
        *,
        pools: int | None = None,
        seed: int = 0,
        remote: RemoteOptions | None = None,
    ) -> None:
        # torch's constructor is not called: it needs a process group, and would set what are properties here.
        self.dataset: Any = dataset
        self.reader = reader
        self.shuffle = bool(shuffle)
        self.shuffle_buffer = arguments.limit("shuffle_buffer", shuffle_buffer)
        self.batch_size = arguments.positive("batch_size", batch_size)
        self.file_buffer = arguments.positive("file_buffer", file_buffer)
        self.debug = bool(debug)
        # Checks both arguments.
        recipe = Recipe(1, 0, seed=seed, pools=self._default_pools if pools is None else pools)
        self.pools = recipe.pools
        self.seed = recipe.seed
        self._cursor = FunctionCursor(self._reached)
        self._set_rank(num_replicas, rank)
        self._source = DatasetFiles(dataset, reader, files_len, self.file_buffer, self.debug, remote)
        self._lanes: int | None = None
        self._is_positioned = False
        # The current iteration; None after `close`.
        self._reading: object | None = None

    @property
    def stats(self) -> FileStats:
        """Counts of reads and waits in this process since the sampler was made."""
        return self._source.stats

    def __len__(self) -> int:
        """Returns the number of samples of this rank, as in the original, not the number of items."""
        return len(self._part_of(self._size(0)))

    def __iter__(self) -> Iterator[Item]:
        reset = getattr(self.dataset, "reset", None)
        if callable(reset):
            reset()
        self._is_positioned = False
        # An iteration reads the epoch that is set when it is made.
        return self._read(self._cursor.upcoming)

    def _read(self, upcoming: Iteration) -> Iterator[Item]:
        self._require_still()
        files, epoch, start = self._files, upcoming.epoch, self._start_of(upcoming)
        self._require_agreement(Place(epoch, start), AGREEMENT_SECONDS)
        part = self._part_of(self._size(epoch), start)
        order = part_of_order(part, self._undealt_order(files.layout, epoch))
        iteration = self._cursor.begin(upcoming)
        reading = self._reading = object()
        try:
            files.expect(in_batches(order, self.batch_size))
            for ids in in_batches(order, self.batch_size):
                if self._reading is None:
                    problem = "was closed while it was read"
                    raise DatasetError("sampler", problem, hint="iterate over it again")
                item = files.__getitems__(ids)
                iteration.taken += ids.size
                yield item
        finally:
            # Not if another iteration has begun meanwhile.
            if self._reading in {None, reading}:
                files.close()
        self._cursor.end(iteration, at_its_end=True)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration reads.

        The position of a loaded state is kept if the epoch does not change; that of `find_ckpt_position` is
        always kept.

        Raises:
            ArgumentTypeError: `epoch` is not an integer.
            ArgumentValueError: `epoch` is negative.
        """
        if self._is_positioned:
            self._cursor.go_to(self._checked_epoch(epoch), self._cursor.current.start)
        else:
            super().set_epoch(epoch)

    def find_ckpt_position(self, step: int) -> None:
        """Makes the next iteration begin after some items of the epoch, without reading them.

        Args:
            step: how many items of the epoch were used, each of `batch_size` samples.

        Raises:
            ArgumentTypeError: `step` is not an integer.
            ArgumentRangeError: `step` is negative.
        """
        steps = arguments.at_least("step", step, 0)
        self._cursor.go_to(self.epoch, steps * self.batch_size * self.num_replicas)
        self._is_positioned = True

    def _load_fields(self, saved: State) -> None:
        self._lanes, self._is_positioned = saved.lanes, False

    def close(self) -> None:
        """Ends prefetching and frees the files in memory; the sampler can be iterated again."""
        self._reading = None
        self._source.close()

    @property
    def _files(self) -> DatasetFiles:
        """The files that the dataset lists now."""
        self._source = self._source.updated()
        return self._source

    def _lane_count(self) -> int:
        return self.num_replicas if self._lanes is None else self._lanes

    def _size(self, epoch: int) -> int:
        lanes = self._lane_count()
        return -(-len(self._files.layout) // lanes) * lanes

    def _block_size(self, layout: Layout) -> int:
        """Returns the shuffle buffer; if it was not given, the largest one that `file_buffer` allows."""
        rows = max(1, self.file_buffer - 1) * len(layout) // max(1, layout.num_files)
        # Two pools alternate between four blocks.
        return self.shuffle_buffer or max(1, rows // (4 if self.pools == 2 else 1))

    def _undealt_order(self, layout: Layout, epoch: int) -> Order:
        """Returns the order of all ranks together: position k * lanes + l is row k of lane l.

        The rows of the shuffled files are cut into one run per lane, all of the same length; the last one
        continues with the first rows if the samples do not divide evenly. This is the original's rule. If
        they divide evenly, it is the order of `samplerkit.DistributedSampler(shuffle="partial")`.
        """
        rows = self._size(epoch)
        files = Recipe(1, 0, "files" if self.shuffle else False, seed=self.seed, lanes=1)
        blocks = Recipe(
            1,
            0,
            "partial" if self.shuffle else False,
            seed=self.seed,
            partial_size=self._block_size(layout),
            pools=self.pools,
            lanes=self._lane_count(),
        )
        sequence = Shard(files.undealt_order(layout, epoch), 1, 0, length=rows)
        return compose(blocks.undealt_order(rows, epoch), sequence)

    def _identity(self, epoch: int) -> dict[str, Any]:
        files = self._files
        block = self._block_size(files.layout)
        settings = f"shuffle_buffer={block}, pools={self.pools}" if self.shuffle else "shuffle=False"
        names = {"dataset": files.description, "sampler": f"{_NAME}({settings})"}
        return {"algorithm": ALGORITHM, "lanes": self._lane_count(), **names}


class DistributedSamplerViaLocallyShuffleV2(DistributedSamplerViaLocallyShuffle):
    """The sampler with two pools, so that samples cross the borders of blocks: the original's second version.

    Arguments, methods and errors are those of `DistributedSamplerViaLocallyShuffle`.

    Example:
        >>> import types
        >>> dataset = types.SimpleNamespace(files=["a.npz"])
        >>> DistributedSamplerViaLocallyShuffleV2(dataset, "npz", 1, 0, shuffle_buffer=100).pools
        2
    """

    _default_pools = 2
