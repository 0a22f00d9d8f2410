"""Shards any torch sampler over the ranks of a job: the same draws on all ranks, disjoint shares."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple, final

import numpy as np
import torch.utils.data

from samplerkit.compat.torch.epoch_sampler import EpochSampler, GivenRank, part_of_array
from samplerkit.errors import ArgumentTypeError, CompositionError, DatasetError
from samplerkit.loading.state.state import Place, digest
from samplerkit.order import arguments
from samplerkit.order.permutation import CHUNK
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.iteration import LONGEST_ITERATION, seeded_generators


class DrawInfo(NamedTuple):
    """The result of drawing an epoch: the number of items, and a digest of them."""

    epoch: int
    size: int
    digest: str


def require_undealt(sampler: Any) -> None:
    """Checks that a sampler can be iterated repeatedly, and is not already sharded over ranks.

    Raises:
        ArgumentTypeError: it is not a sampler, or can be iterated only once.
        CompositionError: it is already sharded over ranks.
    """
    if isinstance(sampler, Sampler):
        raise ArgumentTypeError("sampler", "is a samplerkit recipe", sampler, hint="wrap it in TorchSampler")
    is_iterable = hasattr(sampler, "__iter__") or hasattr(sampler, "__getitem__")
    if isinstance(sampler, str | bytes | torch.utils.data.DataLoader) or not is_iterable:
        raise ArgumentTypeError("sampler", "must be a sampler", sampler)
    if isinstance(sampler, Iterator):
        raise ArgumentTypeError("sampler", "must be iterable more than once", sampler)
    for inner in nested(sampler):
        if isinstance(inner, torch.utils.data.DistributedSampler) and inner.num_replicas != 1:
            hint = "give the sampler that is not distributed"
            raise CompositionError("sampler", "is distributed already", inner, hint=hint)


def nested(sampler: Any) -> Iterator[Any]:
    """Yields a sampler and the samplers inside it: the `sampler` of a `BatchSampler`, and so on.

    Example:
        >>> order = torch.utils.data.SequentialSampler(range(4))
        >>> [type(link).__name__ for link in nested(torch.utils.data.BatchSampler(order, 2, False))]
        ['BatchSampler', 'SequentialSampler']
    """
    seen: set[int] = set()
    while sampler is not None and id(sampler) not in seen:
        seen.add(id(sampler))
        yield sampler
        sampler = getattr(sampler, "sampler", None)


def read_draws(sampler: Iterable[Any]) -> Ids | list[Any]:
    """Reads a sampler to its end: an int64 array of ids, or a list if it yields other items.

    Raises:
        ArgumentTypeError: it yields both ids and other items.
        ArgumentRangeError: it yields a negative id.
        DatasetError: it does not end.

    Example:
        >>> read_draws([4, 2]), read_draws([[4, 2], [1]])
        (array([4, 2]), [[4, 2], [1]])
    """
    items = iter(sampler)
    drawn: list[Any] = []
    chunks: list[Ids] = []
    count = 0
    while chunk := list(islice(items, CHUNK)):
        count += len(chunk)
        if count > LONGEST_ITERATION:
            raise DatasetError("sampler", f"does not end after {LONGEST_ITERATION} items", sampler)
        if _is_id(chunk[0]) and not drawn:
            chunks.append(arguments.indices("sampler", chunk))
        else:
            drawn += chunk
    if chunks and drawn:
        raise ArgumentTypeError("sampler", "yields ids and other values", drawn[0])
    return np.concatenate(chunks) if chunks else drawn


def _content(drawn: Ids | list[Any]) -> str | bytes:
    if isinstance(drawn, list):
        # The repr of a long array is abbreviated.
        return repr([item.tolist() if hasattr(item, "tolist") else item for item in drawn])
    return drawn.astype("<i8").tobytes()


def _is_id(item: Any) -> bool:
    """Whether an item is a single integer; arrays of several integers also have `__index__`."""
    return hasattr(item, "__index__") and getattr(item, "ndim", 0) == 0


ALGORITHM: Final = "torch"
"""The algorithm id in the state: draws depend on torch's generators, and so on the version of torch."""


@final
class ShardedSampler(GivenRank, EpochSampler[Any]):  # type: ignore[override]  # torch has plain attributes
    """One rank's share of the items that another sampler draws.

    Every rank draws all items, from the same randomness: while the sampler draws, the generators that it may
    use (those of torch, numpy and Python, and its own) are seeded from `seed` and the epoch; afterwards their
    former state is restored. So draws depend neither on the rank nor on earlier calls, and the seed of a
    generator that was given to the sampler has no effect: use `seed=`. The draws are dealt to ranks in turn.

    The sampler may yield ids or other items, such as the batches of a `BatchSampler`: a batch is dealt as a
    whole, and the result is a `batch_sampler` for a DataLoader.

    The draws of a sampler must depend only on its arguments, its `set_epoch` and these generators. In a job
    with a process group, when an epoch begins, the ranks compare their draws, positions and shares through
    the group's store, without a collective; a rank with `num_replicas=1` is not compared.

    Args:
        sampler: a torch sampler, or another iterable that can be iterated more than once. If it, or
            the sampler in it, has `set_epoch`, that is called before it draws.
        num_replicas: the number of ranks; None takes it from the running job at first use.
        rank: this process's rank; None takes it from the running job.
        seed: the seed of the draws, the same on all ranks, in [0, 2^64).
        drop_last: whether the remainder, if the draws do not divide evenly by the ranks, is dropped; if
            False, the first draws are repeated to fill it up.
        agreement_seconds: how long ranks wait for each other to compare their draws.

    Raises:
        ArgumentTypeError: an argument has the wrong type, or the sampler can be iterated only once.
        ArgumentValueError: `seed` is out of range.
        ArgumentRangeError: `rank` does not fit `num_replicas`.
        CompositionError: the sampler is already sharded over ranks.
        DatasetError: when it is read: the sampler does not end.
        DisagreementError: when it is read: another rank drew other items, or no rank reads some share.

    Example:
        >>> weighted = torch.utils.data.WeightedRandomSampler([1.0, 2.0, 3.0], num_samples=6)
        >>> shares = [list(ShardedSampler(weighted, num_replicas=2, rank=rank)) for rank in range(2)]
        >>> [len(share) for share in shares]
        [3, 3]
    """

    def __init__(
        self,
        sampler: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        *,
        seed: int = 0,
        drop_last: bool = False,
        agreement_seconds: float = 10.0,
    ) -> None:
        # torch's constructor is not called: it needs a process group, and would set what are properties here.
        require_undealt(sampler)
        self.sampler: Final = sampler
        self.dataset = sampler
        self.seed = arguments.seed("seed", seed)
        self.drop_last = arguments.boolean("drop_last", drop_last)
        self._cursor = self._new_cursor()
        self._set_rank(num_replicas, rank)
        self._agreement_seconds: Final = arguments.seconds("agreement_seconds", agreement_seconds)
        self._last_draw = DrawInfo(-1, 0, "")

    @property
    def shuffle(self) -> bool:  # type: ignore[override]  # torch has a plain attribute
        """Whether epochs may differ; False for a sequential sampler or a list."""
        *_, innermost = nested(self.sampler)
        return not isinstance(innermost, torch.utils.data.SequentialSampler | list | tuple | range)

    @property
    def batch_size(self) -> int | None:
        """The batch size of the sampler, if it makes batches; trainers read this attribute."""
        size: int | None = getattr(self.sampler, "batch_size", None)
        return size

    def _size(self, epoch: int) -> int:
        return self._draw_info(epoch).size

    def _items(self, epoch: int, start: int) -> Iterator[list[Any]]:
        self._require_still()
        drawn, seconds = self._draw(epoch), self._agreement_seconds
        # The kind alone: ranks that differ in all fields would be taken for ranks of different samplers.
        draws = self._draw_info(epoch).digest
        self._require_agreement(Place(epoch, start), seconds, sampler=self._kind, draws=draws)
        part = self._part_of(len(drawn), start)
        if isinstance(drawn, list):
            return iter([[drawn[position % len(drawn)] for position in part]])
        return (chunk.tolist() for chunk in part_of_array(part, drawn).chunks(CHUNK))

    def _draw(self, epoch: int) -> Ids | list[Any]:
        """Draws an epoch, and keeps the number of items and their digest."""
        with seeded_generators(self.sampler, self.seed, epoch):
            for inner in nested(self.sampler):
                if callable(getattr(inner, "set_epoch", None)):
                    inner.set_epoch(epoch)
            drawn = read_draws(self.sampler)
        self._last_draw = DrawInfo(epoch, len(drawn), digest(_content(drawn)))
        return drawn

    def _draw_info(self, epoch: int) -> DrawInfo:
        """Returns the result of drawing an epoch; draws it again if it was not the last one drawn."""
        if self._last_draw.epoch != epoch:
            self._draw(epoch)
        return self._last_draw

    @property
    def _kind(self) -> str:
        return f"{type(self.sampler).__module__}.{type(self.sampler).__qualname__}"

    def _identity(self, epoch: int) -> dict[str, Any]:
        drawn = self._draw_info(epoch)
        names = {"dataset": f"{drawn.size} drawn", "sampler": f"{self._kind}, drew {drawn.digest}"}
        return {"algorithm": ALGORITHM, "lanes": 1, **names}

    def __len__(self) -> int:
        """Returns the number of items that this rank reads; needs a sampler with a length."""
        return len(self._part_of(len(self.sampler)))


distributed = ShardedSampler
"""Alias for use as a function: `distributed(sampler)` shards a torch sampler over the ranks of the job."""
