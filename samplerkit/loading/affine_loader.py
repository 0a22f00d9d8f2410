"""torch's DataLoader with a worker for each file: batches in the files of several are cut and joined.

torch deals tasks to its workers in turn. What it is told here instead stands in names of its own; if one of
them is gone one day, workers read files of one another again, and the batches stay what they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, final

import torch.utils.data
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from samplerkit.loading.answer import ShareAnswer
from samplerkit.loading.request import Request
from samplerkit.loading.requested import RequestedDataset
from samplerkit.loading.sharing import SharedRequests, joined
from samplerkit.order.layout import Layout


@final
class AffineLoader(torch.utils.data.DataLoader[Any]):
    """A DataLoader of worker processes that sends what lies in a file to one of them.

    Args:
        requested: answers requests.
        layout: the files.
        options: of torch's DataLoader; its batch sampler gives requests.
    """

    def __init__(self, requested: RequestedDataset, layout: Layout, **options: Any) -> None:
        self.layout = layout
        self.requested = requested
        super().__init__(requested, **options)

    def _get_iterator(self) -> Any:
        return _AffineIterator(self)


@final
class _AffineIterator(_MultiProcessingDataLoaderIter):
    """Takes requests, sends each worker its share of them, and gives whole batches."""

    def __init__(self, loader: AffineLoader) -> None:
        self._layout = loader.layout
        self._requested = loader.requested
        self._collate: Callable[[Any], Any] = loader.collate_fn
        super().__init__(loader)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        self._worker = 0
        self._shares = SharedRequests(self._layout, self._num_workers)
        self._to_send: deque[Request] = deque()
        super()._reset(loader, first_iter)

    @property
    def _worker_queue_idx_cycle(self) -> Any:
        """Where torch looks for the worker of the task that it took last."""
        return iter((self._worker,))

    @_worker_queue_idx_cycle.setter
    def _worker_queue_idx_cycle(self, in_turn: Any) -> None:
        """Nothing: workers do not come in turn."""

    def _next_index(self) -> Request:
        if not self._to_send:
            asked: Request = super()._next_index()  # type: ignore[no-untyped-call]
            self._to_send.extend(self._shares.of(asked))
        request = self._to_send.popleft()
        self._worker = 0 if request.share is None else request.share.worker
        return request

    def _next_data(self) -> Any:
        first: Any = super()._next_data()  # type: ignore[no-untyped-call]
        if not isinstance(first, ShareAnswer):
            return first
        shares, request = [first], self._shares.cut.popleft()
        while sum(share.places.size for share in shares) < request.ids.size:
            shares.append(super()._next_data())  # type: ignore[no-untyped-call]
        answer = joined(request, shares)
        self._requested.seed_collate(request)
        batch = self._collate(answer)
        if not self._pin_memory:
            return batch
        return pin_memory(batch, self._pin_memory_device)  # type: ignore[no-untyped-call]
