"""What somebody else's sampler draws: reading it to its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch.utils.data

from samplerkit.errors import ArgumentTypeError, CompositionError, DatasetError
from samplerkit.loading.identity import digest
from samplerkit.order import arguments
from samplerkit.order.permutation import CHUNK
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.iteration import LONGEST_ITERATION


@dataclass(frozen=True)
class Drawn:
    """What an epoch of a sampler came out as: how many items, and a digest of them."""

    epoch: int
    size: int
    digest: str

    @classmethod
    def of(cls, epoch: int, draws: Ids | list[Any]) -> Drawn:
        """Notes what was drawn."""
        return cls(epoch, len(draws), digest(_content(draws)))


def require_undealt(sampler: Any) -> None:
    """Checks that something can be drawn from again and again, and is not dealt to ranks already.

    Raises:
        ArgumentTypeError: it is no sampler, or can be iterated only once.
        CompositionError: it deals to ranks.
    """
    if isinstance(sampler, Sampler):
        raise ArgumentTypeError("sampler", "is a samplerkit recipe", sampler, mend="wrap it in TorchSampler")
    is_iterable = hasattr(sampler, "__iter__") or hasattr(sampler, "__getitem__")
    if isinstance(sampler, str | bytes | torch.utils.data.DataLoader) or not is_iterable:
        raise ArgumentTypeError("sampler", "must be a sampler", sampler)
    if isinstance(sampler, Iterator):
        raise ArgumentTypeError(
            "sampler",
            "must be iterable more than once",
            sampler,
            mend="give an object whose __iter__ starts anew",
        )
    for inner in nested(sampler):
        if isinstance(inner, torch.utils.data.DistributedSampler) and inner.num_replicas != 1:
            raise CompositionError(
                "sampler",
                "deals to ranks already, so that each would read a share of a share",
                inner,
                mend="give the sampler that is not distributed",
            )


def nested(sampler: Any) -> Iterator[Any]:
    """Gives a sampler and what it draws from: the `sampler` of a `BatchSampler`, and so on.

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
    """Reads a sampler to its end: an int64 array of ids, or a list of whatever else it yields.

    Raises:
        ArgumentTypeError: it yields ids and something else.
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
            raise DatasetError(
                "sampler", f"yields more than {LONGEST_ITERATION} items", sampler, mend="give it an end"
            )
        if _is_id(chunk[0]) and not drawn:
            chunks.append(arguments.indices(chunk, "sampler"))
        else:
            drawn += chunk
    if chunks and drawn:
        raise ArgumentTypeError("sampler", "yields ids and something else", drawn[0])
    return np.concatenate(chunks) if chunks else drawn


def _content(drawn: Ids | list[Any]) -> str | bytes:
    if isinstance(drawn, list):
        # The repr of a long array leaves out most of it.
        return repr([item.tolist() if hasattr(item, "tolist") else item for item in drawn])
    return drawn.astype("<i8").tobytes()


def _is_id(item: Any) -> bool:
    """Whether an item is one integer; an array of several has __index__ too."""
    return hasattr(item, "__index__") and getattr(item, "ndim", 0) == 0
