"""How a batch is made of a request: its samples are read, and collated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch.utils.data

from samplerkit.batches.segments import Segments
from samplerkit.errors import DatasetError
from samplerkit.loading.collate.sample_fields import SampleCollate
from samplerkit.loading.generators import seed_generators
from samplerkit.loading.workers.protocol import Answer, Request, SkippedSample
from samplerkit.loading.workers.reader import SampleReader, cut
from samplerkit.order.typing import Ids


class BatchMaker(torch.utils.data.Dataset[Any]):
    """Reads the samples of a request and collates them; the dataset of torch's DataLoader.

    Args:
        reader: reads the samples.
        collate: makes a batch of a list of samples; a `SampleCollate` receives which these are.
        pins: whether batches are pinned where they are made.
    """

    def __init__(self, reader: SampleReader, collate: Any, *, pins: bool = False) -> None:
        self.reader = reader
        self._collate = collate
        self._takes_ids = isinstance(collate, SampleCollate)
        self._pins = pins

    @property
    def dataset(self) -> Any:
        """The user's dataset, for those who look for it in `torch.utils.data.get_worker_info().dataset`."""
        return self.reader.dataset

    def __getitem__(self, request: Request) -> Any:
        self.reader.begin(request)
        return self.batch(request)

    def batch(self, request: Request, reader: SampleReader | None = None) -> Answer:
        """Makes the batch of a request, which was begun; several threads may do so at a time.

        Args:
            request: the request.
            reader: reads the samples, where a thread has a copy of the dataset.
        """
        batch = self.collated(request, (reader or self.reader).read(request))
        return batch.pin_memory() if self._pins else batch

    def collated(self, request: Request, samples: Answer) -> Answer:
        """Collates the samples of a request; an error of the collate function names them.

        Raises:
            DatasetError: all of them were left out.
        """
        if samples.stand_in is None and 0 < len(samples.skipped) == request.ids.size:
            raise _none_was_read(request, samples.skipped)
        if self.reader.options.seeds_draws:
            # It draws for the batch, so by the first draw of that. Parts of a document have one draw, so
            # these draw by where they begin, too.
            begin = 0 if request.segments is None else int(request.segments.starts[0])
            seed_generators(self.reader.draws(request).draw(0), f"batch {begin}" if begin else "batch")
        batch, segments = samples.batch, _segments(request, samples)
        try:
            if samples.stand_in is not None and segments is not None:
                batch = cut(batch, segments)
            if self._takes_ids:
                batch = self._collate.collated(batch, _ids(request, samples), segments)
            else:
                batch = self._collate(batch)
        except Exception as error:
            request.note(error, f"collating {request.some_ids}")
            raise
        return Answer(batch, samples.skipped, samples.reports, samples.stand_in)


def batch_of(samples: Any) -> Any:
    """Makes a batch, as torch does where nobody says how; what a dataset gave as arrays is one already.

    Args:
        samples: a list; or an array with a row a sample, or a mapping of such.

    Example:
        >>> batch_of(np.array([[1, 2], [3, 4]])), batch_of([1, 2])
        (tensor([[1, 2],
                [3, 4]]), tensor([1, 2]))
    """
    if isinstance(samples, np.ndarray | Mapping):
        return torch.utils.data.default_convert(samples)  # type: ignore[no-untyped-call]
    return torch.utils.data.default_collate(samples)


def _ids(request: Request, samples: Answer) -> Ids:
    """The ids of the samples that a batch is made of."""
    if samples.stand_in is not None:
        return np.array([samples.stand_in])
    return np.delete(request.ids, samples.places_skipped)


def _segments(request: Request, samples: Answer) -> Segments | None:
    """Which parts of the samples a batch is made of; a substitute is as long as the longest part."""
    if request.segments is None or samples.stand_in is None:
        return request.segments and request.segments.without(samples.places_skipped)
    nothing = np.zeros(1, dtype=np.int64)
    longest = request.segments.lengths.max(keepdims=True)
    return Segments(nothing, longest, nothing, np.zeros(1, dtype=bool))


def _none_was_read(request: Request, skipped: Sequence[SkippedSample]) -> DatasetError:
    return DatasetError(
        "dataset",
        f"gives none of the samples of a batch (step {request.step} of epoch {request.epoch}, "
        f"the first error: {skipped[0].error})",
        [skip.id for skip in skipped[:8]],
        hint="bad_samples='skip' needs one good sample in each batch",
    )
