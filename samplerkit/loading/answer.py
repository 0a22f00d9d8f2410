"""What comes back from the workers: the samples of a batch, or the batch, and what comes with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.reduction import ForkingPickler
from typing import Any, final

import numpy as np
import torch.utils.data
from torch.utils.data._utils.pin_memory import pin_memory

from samplerkit.batches.segments import Segments
from samplerkit.errors import DatasetError
from samplerkit.loading.pack_collate import PackCollate
from samplerkit.loading.pad_collate import PadCollate
from samplerkit.order.typing import Ids


@dataclass(frozen=True)
class SkippedSample:
    """A sample that could not be read and was left out.

    Args:
        id: the sample.
        epoch: the epoch.
        place: its number in its batch.
        error: what was raised, in words.
        file: the file that lacks it, where the dataset itself leaves it out; the log has one line for each.
    """

    id: int
    epoch: int
    place: int
    error: str
    file: str = ""


@dataclass(frozen=True)
class Report:
    """The figures of a worker's dataset, up to a batch.

    Args:
        reader: the process id of the worker, or the number of a thread with a copy of its own.
        stats: its dataset's `stats`.
    """

    reader: int
    stats: Any


@dataclass(frozen=True, eq=False)
class Answer:
    """The samples of a batch, or the batch, and what comes with it.

    Args:
        batch: the samples, or what was made of them.
        skipped: what was left out.
        reports: the figures of the datasets of the workers that made it, if they have any.
        stand_in: the sample that the batch is made of, where all of its own were left out.
        ids: of the samples, for a collate that names them; None once the batch is made.
        segments: which parts of them the samples are, for packs; None likewise.
    """

    batch: Any
    skipped: tuple[SkippedSample, ...] = ()
    reports: tuple[Report, ...] = ()
    stand_in: int | None = None
    ids: Ids | None = None
    segments: Segments | None = None

    def pin_memory(self) -> Answer:
        """Pins the batch: what torch's DataLoader asks of batches that are no tensors."""
        pinned = pin_memory(self.batch)  # type: ignore[no-untyped-call]
        return replace(self, batch=pinned)


@final
@dataclass(frozen=True, eq=False)
class ShareAnswer:
    """A worker's share of a batch, not collated.

    Args:
        places: of the samples in the batch, those that were left out among them.
        answer: the samples, and what comes with them.
    """

    places: Ids
    answer: Answer

    def sent(self) -> SentShare:
        """Makes it ready to be sent.

        Raises:
            DatasetError: a sample cannot be sent to another process.
        """
        try:
            return SentShare(bytes(ForkingPickler.dumps(self)))
        except Exception as error:
            # By itself, torch prints this in a thread, and the loop waits for ever.
            problem = f"gives samples that cannot be sent from a worker ({type(error).__name__}: {error})"
            mend = "give what can be pickled, or leave file_affinity out"
            raise DatasetError("dataset", problem, mend=mend) from error


@final
@dataclass(frozen=True)
class SentShare:
    """A share on its way: where it arrives, it is a `ShareAnswer` again.

    Args:
        content: the share, pickled.
    """

    content: bytes

    def __reduce__(self) -> tuple[Any, ...]:
        return ForkingPickler.loads, (self.content,)


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


@final
class AnswerCollate:
    """Collates samples; those of an answer leave what comes with the batch beside it, and shares stay shares.

    Args:
        collate: makes a batch of a list of samples.
    """

    def __init__(self, collate: Callable[[Any], Any]) -> None:
        self._collate = collate

    def __call__(self, answer: Any) -> Any:
        if isinstance(answer, SentShare):
            return answer
        if not isinstance(answer, Answer):
            return self._collate(answer)
        if isinstance(self._collate, PadCollate):
            batch = self._collate.collated(answer.batch, answer.ids)
        elif isinstance(self._collate, PackCollate):
            batch = self._collate.collated(answer.batch, answer.ids, answer.segments)
        else:
            batch = self._collate(answer.batch)
        return replace(answer, batch=batch, ids=None, segments=None)
