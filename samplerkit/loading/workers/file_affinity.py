"""File affinity: each file is read by one worker process, and batches of several workers are joined."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np
import torch.utils.data

from samplerkit.errors import DatasetError
from samplerkit.loading.sample_fields import rows_of
from samplerkit.loading.workers.batch_maker import BatchMaker
from samplerkit.loading.workers.protocol import Answer, Batches, Request
from samplerkit.loading.workers.worker_processes import WorkerProcesses
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids

_NO_WORKER: Final = -1


class FileAffinity:
    """Returns each file to a worker when it first appears: to the one with the fewest samples so far.

    It starts with a reading, so a file that is left and read again goes to the same worker.

    Args:
        layout: the files.
        num_workers: how many workers.

    Example:
        >>> affinity = FileAffinity(Layout([4, 4, 4]), num_workers=2)
        >>> affinity.workers_of(np.array([5, 0, 9, 4]))
        array([1, 0, 0, 1], dtype=int16)
    """

    def __init__(self, layout: Layout, num_workers: int) -> None:
        self._layout: Final = layout
        self._workers: Final = np.full(layout.num_files, _NO_WORKER, dtype=np.int16)
        self._samples: Final = [0] * num_workers

    def workers_of(self, ids: Ids) -> np.ndarray[Any, np.dtype[np.int16]]:
        """Returns the worker of each sample; ids are those of the batches of a reading, in order."""
        files = self._layout.file_of(ids)
        for file in np.unique(files[self._workers[files] == _NO_WORKER]).tolist():
            worker = self._samples.index(min(self._samples))
            self._workers[file] = worker
            self._samples[worker] += int(self._layout.sizes[file])
        return self._workers[files]

    def shares_of(self, request: Request) -> list[tuple[int, Request]]:
        """Returns the share of each worker that has files of a batch; all of it, where only one has."""
        assigned = self.workers_of(request.ids)
        workers = np.unique(assigned).tolist() or [0]
        if len(workers) == 1:
            return [(workers[0], request)]
        places = [np.flatnonzero(assigned == worker) for worker in workers]
        return [(worker, request.at(own, places=own)) for worker, own in zip(workers, places, strict=True)]


def upcoming_in_files(request: Request, batches: Batches, dataset: Any) -> Iterator[Ids]:
    """Returns the ids of each batch, or of its share of it, that this worker reads from a request on."""
    worker: Any = torch.utils.data.get_worker_info()
    affinity = FileAffinity(layout_of_files(dataset), worker.num_workers)
    for step, ids in batches(0, 1):  # from where the reading began, since files are given in its order
        own = ids[affinity.workers_of(ids) == worker.id]
        if own.size and step >= request.step:
            yield own


class AffineProcesses(WorkerProcesses):
    """Worker processes that get their shares of each request; batches of several are collated in the loop.

    Raises:
        DatasetError: the dataset has no files.
    """

    def __init__(self, maker: BatchMaker, number: int, options: Mapping[str, Any]) -> None:
        super().__init__(maker, number, options)
        maker.upcoming = upcoming_in_files
        self._layout: Final = layout_of_files(maker.dataset)
        self._reading: tuple[int, int] | None = None

    def shares_of(self, request: Request) -> list[tuple[int, Request]]:
        """Returns the share of each worker that has files of a batch."""
        if self._reading != (request.epoch, request.start):
            self._reading = request.epoch, request.start
            self._affinity = FileAffinity(self._layout, self._number)
        return self._affinity.shares_of(request)

    def joined(self, request: Request, shares: list[tuple[int, Any]], answers: list[Answer]) -> Answer:
        """Collates what several workers have read."""
        if len(answers) == 1:
            return answers[0]
        batch: Answer = self._maker.collated(request, joined([share for _, share in shares], answers))
        return batch


def layout_of_files(dataset: Any) -> Layout:
    """Returns the files by which batches are dealt to workers.

    Raises:
        DatasetError: the dataset has none.
    """
    layout = Layout.of(dataset)
    if not layout.has_files:
        hint = "give it a layout, or leave file_affinity out"
        raise DatasetError("dataset", "has no files that could be spread over workers", dataset, hint=hint)
    return layout


def joined(shares: Sequence[Request], answers: Sequence[Answer]) -> Answer:
    """Joins the samples of a batch, as if one worker had read it.

    Args:
        shares: the request of each worker.
        answers: what each of them read.

    Raises:
        DatasetError: a dataset gave batches that cannot be joined.
    """
    pairs = [*zip(shares, answers, strict=True)]
    skips = [replace(one, place=share.place(one.place)) for share, answer in pairs for one in answer.skipped]
    left_out = tuple(sorted(skips, key=lambda one: one.place))
    reports = tuple(report for answer in answers for report in answer.reports)
    present = [
        (places, answer.batch)
        for share, answer in pairs
        if answer.substitute is None
        and (places := np.delete(cast("Ids", share.places), answer.places_skipped)).size
    ]
    if not present:
        substitute = next((answer for answer in answers if answer.substitute is not None), answers[0])
        return replace(substitute, skipped=left_out, reports=reports)
    order = np.argsort(np.concatenate([places for places, _ in present]))
    return Answer(_in_order([samples for _, samples in present], order), left_out, reports)


def _in_order(results: Sequence[Any], order: Ids) -> Any:
    """Joins the results of several calls of a dataset.

    Args:
        results: lists of samples, arrays or tensors with a row a sample, or mappings of such, all alike.
        order: for each sample of the batch, its index in all of them, one after another.

    Raises:
        DatasetError: they are something else, or not alike.
    """
    first = results[0]
    if all(isinstance(part, Mapping) and part.keys() == first.keys() for part in results):
        return {name: _in_order([part[name] for part in results], order) for name in first}
    if all(isinstance(part, Mapping | list | tuple | np.ndarray | torch.Tensor) for part in results):
        rows = [rows_of(part) if isinstance(part, Mapping) else part for part in results]
        if sum(map(len, rows)) != order.size:
            problem = f"gives another number of samples than the {order.size} of a batch"
            raise DatasetError("dataset", problem, sum(map(len, rows)))
        if all(isinstance(part, np.ndarray) for part in results):
            return np.concatenate(results)[order]
        if all(isinstance(part, torch.Tensor) for part in results):
            return torch.cat(list(results))[torch.from_numpy(order)]
        # One worker may have read its share one by one, to leave out bad samples.
        samples = [sample for part in rows for sample in part]
        return [samples[place] for place in order.tolist()]
    problem = "gives batches that cannot be joined from the shares of several workers"
    hint = "give a list of samples, or arrays with a row a sample, or leave file_affinity out"
    raise DatasetError("dataset", problem, type(first), hint=hint)
