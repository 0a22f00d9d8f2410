"""What travels to the workers: one request per batch, and the adapter that answers it there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch.utils.data

from samplerkit.loading.worker import seed_worker
from samplerkit.order.typing import Ids


@dataclass(frozen=True, eq=False)
class Request:
    """One batch that a rank reads.

    Args:
        epoch: the epoch, which so reaches persistent workers too.
        step: the step in the delivery.
        ids: the samples, int64 of shape (samples,).
    """

    epoch: int
    step: int
    ids: Ids


@final
class RequestedDataset(torch.utils.data.Dataset[Any]):
    """Reads the samples of requests from a dataset, and tells it and the worker's random state the epoch.

    Args:
        dataset: a map-style dataset. If it has `set_epoch`, that is called before the first request of each
            epoch, in each process that reads.
        seed: from which the random state of workers is made.
        rank: this process's rank.
    """

    def __init__(self, dataset: Any, seed: int, rank: int) -> None:
        self.dataset = dataset
        self._seed = seed
        self._rank = rank
        self._epoch: int | None = None
        self._in_batches = callable(getattr(dataset, "__getitems__", None))

    def __getitems__(self, request: Request) -> Any:
        if request.epoch != self._epoch:
            self._begin(request.epoch)
        if self._in_batches:
            return self.dataset.__getitems__(request.ids)
        return [self.dataset[index] for index in request.ids.tolist()]

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __len__(self) -> int:
        return len(self.dataset)

    def _begin(self, epoch: int) -> None:
        self._epoch = epoch
        worker = torch.utils.data.get_worker_info()
        if worker is not None:
            seed_worker(self._seed, epoch, self._rank, worker.id)
        set_epoch = getattr(self.dataset, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)


def is_pad(positions: Ids, total: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Tells which positions are pads, that repeat a sample to fill a batch."""
    return positions >= total
