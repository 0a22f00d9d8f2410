"""How a batch is made of a request, in the loop, in a thread, or in a process, which sends it to the loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, final

import numpy as np
import torch
import torch.utils.data

from samplerkit.errors import DatasetError
from samplerkit.loading.generators import seed_generators
from samplerkit.loading.sample_fields import SampleCollate
from samplerkit.loading.workers.protocol import Answer, Request, SkippedSample
from samplerkit.loading.workers.reader import SampleReader, cut
from samplerkit.loading.workers.worker_side import Message, pickled, sendable_errors, sending_error


class BatchMaker(SampleReader):
    """Reads the samples of a request and collates them."""

    def __getitem__(self, request: Request) -> Any:
        self.begin(request)
        return self.batch(request)

    def batch(self, request: Request) -> Answer:
        """Makes the batch of a request after `begin`; several threads may do so at a time."""
        batch = self.collated(request, self.read(request))
        return batch.pin_memory() if self.options.pins else batch

    def collated(self, request: Request, samples: Answer) -> Answer:
        """Collates the samples of a request; an error of the collate function names them.

        Raises:
            DatasetError: all of them were left out.
        """
        if samples.stand_in is None and 0 < len(samples.skipped) == request.ids.size:
            raise _all_skipped_error(request, samples.skipped)
        if self.options.seeds_draws:
            # The collate function draws by the first draw of the batch. Parts of a document share a draw, so
            # these also draw by their starts.
            begin = 0 if request.segments is None else int(request.segments.starts[0])
            seed_generators(self.draws(request).draw(0), f"batch {begin}" if begin else "batch")
        batch, read, collate = samples.batch, request.read_by(samples), self.options.collate
        try:
            if samples.stand_in is not None and read.segments is not None:
                batch = cut(batch, read.segments)
            if isinstance(collate, SampleCollate):
                batch = collate.collated(batch, read.ids, read.segments)
            else:
                batch = collate(batch)
        except Exception as error:
            request.note(error, f"collating {request.some_ids}")
            raise
        return Answer(batch, samples.skipped, samples.reports, samples.stand_in)


def batch_of(samples: Any) -> Any:
    """Makes a batch, by default as torch does; arrays from a dataset are a batch already.

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


def _all_skipped_error(request: Request, skipped: Sequence[SkippedSample]) -> DatasetError:
    return DatasetError(
        "dataset",
        f"gives none of the samples of a batch (step {request.step} of epoch {request.epoch}, "
        f"the first error: {skipped[0].error})",
        [skip.id for skip in skipped[:8]],
        hint="bad_samples='skip' needs one good sample in each batch",
    )


@final
class SendingMaker(BatchMaker):
    """Makes batches in a worker process, each an `Answer` that is pickled.

    Samples that cannot be pickled are left out where bad samples are.
    """

    def __getitem__(self, request: Request) -> Message:
        with sendable_errors():
            self.begin(request)
            return self._sent(request, self.read(request))

    def _sent(self, request: Request, samples: Answer) -> Message:
        answer = self.collated(request, samples) if request.is_complete else samples
        try:
            return pickled(answer)
        except Exception as error:
            bad = _unsendable(request, samples)
            if not (bad and self.options.skips):
                raise _unsendable_error(request, list(bad.values()), error) from error
        return self._sent(request, _without(samples, bad))


def _unsendable(request: Request, samples: Answer) -> dict[int, SkippedSample]:
    """Returns the samples that cannot be pickled, by their rows, if samples can be distinguished."""
    present = np.delete(np.arange(request.ids.size), samples.places_skipped).tolist()
    if not isinstance(samples.batch, list) or len(samples.batch) != len(present):
        return {}
    return {
        row: SkippedSample(
            int(request.ids[place]), request.epoch, place, f"cannot be sent from a worker: {error}"
        )
        for row, (place, error) in enumerate(zip(present, map(sending_error, samples.batch), strict=True))
        if error
    }


def _unsendable_error(request: Request, bad: list[SkippedSample], error: Exception) -> DatasetError:
    subject = "samples that" if bad else "a value that"
    failure = DatasetError(
        "dataset",
        f"gives {subject} cannot be sent from a worker process ({type(error).__name__}: {error}); sample ids",
        [sample.id for sample in bad] or request.ids.tolist(),
        hint="return picklable values, or use workers='threads'",
    )
    request.note(failure, f"sending {request.some_ids}")
    return failure


def _without(samples: Answer, bad: dict[int, SkippedSample]) -> Answer:
    """Leaves more samples out of an answer."""
    skipped = sorted([*samples.skipped, *bad.values()], key=lambda sample: sample.place)
    remaining = [sample for row, sample in enumerate(samples.batch) if row not in bad]
    return replace(samples, batch=remaining, skipped=tuple(skipped))
