"""Batches that several workers read: each is asked for its share, and the loop puts the samples in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, final

import numpy as np
import torch

from samplerkit.errors import DatasetError
from samplerkit.loading.affinity import BatchShare, FileAffinity
from samplerkit.loading.answer import Answer, ShareAnswer, SkippedSample
from samplerkit.loading.request import Request
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids


@final
class SharedRequests:
    """Makes of the requests of an iteration what each worker is asked for.

    Args:
        layout: the files.
        num_workers: how many.

    Attributes:
        cut: the requests that were cut and are not put together yet, the first one first.
    """

    def __init__(self, layout: Layout, num_workers: int) -> None:
        self.cut: Final[deque[Request]] = deque()
        self._layout: Final = layout
        self._nothing: Final = FileAffinity.nothing(layout, num_workers)
        self._affinity = FileAffinity(layout, self._nothing)
        self._begun: tuple[int, int] | None = None
        self._told: dict[int, tuple[int, int, int]] = {}

    def of(self, request: Request) -> list[Request]:
        """Gives the share of each worker that has files of a batch; all of it, where only one has."""
        begun = request.epoch, request.start
        if self._begun != begun:
            self._affinity, self._begun = FileAffinity(self._layout, self._nothing), begun
        of_each = self._affinity.workers_of(request.ids)
        workers = np.unique(of_each).tolist() or [0]
        if len(workers) == 1:
            return [request.shared(self._share(request, workers[0], None))]
        self.cut.append(request)
        shares = [self._share(request, worker, np.flatnonzero(of_each == worker)) for worker in workers]
        return [request.shared(share) for share in shares]

    def _share(self, request: Request, worker: int, places: Ids | None) -> BatchShare:
        knows = request.epoch, request.start, len(request.edits)
        files = None if self._told.get(worker) == knows else self._affinity.files
        self._told[worker] = knows
        return BatchShare(worker, places, files)


def joined(request: Request, shares: Sequence[ShareAnswer]) -> Answer:
    """Puts the shares of a batch together, as if one worker had read it.

    Args:
        request: the batch.
        shares: of all workers that read some of it.

    Raises:
        DatasetError: nothing of it could be read; or a dataset gave what cannot be put together.
    """
    skipped = [
        replace(one, place=int(share.places[one.place])) for share in shares for one in share.answer.skipped
    ]
    skipped.sort(key=lambda one: one.place)
    reports = tuple(report for share in shares for report in share.answer.reports)
    there = [share for share in shares if share.answer.stand_in is None and len(_present(share))]
    if not there:
        stand_in = next((share.answer for share in shares if share.answer.stand_in is not None), None)
        if stand_in is None:
            raise none_was_read(request, skipped)
        ids = np.array([stand_in.stand_in])
        return replace(stand_in, skipped=tuple(skipped), reports=reports, ids=ids)
    places = np.concatenate([_present(share) for share in there])
    samples = _in_order([share.answer.batch for share in there], np.argsort(places))
    left_out = [one.place for one in skipped]
    ids = np.delete(request.ids, left_out)
    segments = request.segments and request.segments.without(left_out)
    return Answer(samples, tuple(skipped), reports, ids=ids, segments=segments)


def none_was_read(request: Request, skipped: Sequence[SkippedSample]) -> DatasetError:
    """Gives the error of a batch of which all samples were left out."""
    return DatasetError(
        "dataset",
        f"gives none of the samples of a batch (step {request.step} of epoch {request.epoch}, "
        f"the first error: {skipped[0].error})",
        [skip.id for skip in skipped[:8]],
        mend="bad_samples='skip' needs one good sample in each batch",
    )


def _present(share: ShareAnswer) -> Ids:
    """The places of the samples that are there."""
    return np.delete(share.places, [one.place for one in share.answer.skipped])


def _in_order(several: Sequence[Any], order: Ids) -> Any:
    """Puts together what a dataset gave in several calls.

    Args:
        several: lists of samples, arrays or tensors with a row a sample, or mappings of such, all alike.
        order: for each sample of the batch, where it stands in all of them, one after another.

    Raises:
        DatasetError: they are something else, or not alike.
    """
    first = several[0]
    if all(isinstance(one, Mapping) and one.keys() == first.keys() for one in several):
        return {name: _in_order([one[name] for one in several], order) for name in first}
    if all(isinstance(one, Mapping | list | tuple | np.ndarray | torch.Tensor) for one in several):
        rows = [_rows(one) for one in several]
        if sum(map(len, rows)) != order.size:
            problem = f"gives another number of samples than the {order.size} of a batch"
            raise DatasetError("dataset", problem, sum(map(len, rows)))
        if all(isinstance(one, np.ndarray) for one in several):
            return np.concatenate(several)[order]
        if all(isinstance(one, torch.Tensor) for one in several):
            return torch.cat(list(several))[torch.from_numpy(order)]
        # One worker may have read its share one by one, to leave out what is bad.
        samples = [sample for one in rows for sample in one]
        return [samples[place] for place in order.tolist()]
    raise DatasetError(
        "dataset",
        "gives batches that cannot be put together of what several workers read",
        type(first),
        mend="give a list of samples, or arrays with a row a sample, or leave file_affinity out",
    )


def _rows(given: Any) -> Sequence[Any]:
    """Gives what was read with a place for each sample; of columns, its row of each."""
    if not isinstance(given, Mapping):
        rows: Sequence[Any] = given
        return rows
    columns = {name: _rows(column) for name, column in given.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
