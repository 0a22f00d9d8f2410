"""`WebLoader`: torch's DataLoader, with webdataset's methods behind it."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, final

from torch.utils.data import DataLoader

from samplerkit.compat.webdataset import stages
from samplerkit.compat.webdataset.fluent import Fluent
from samplerkit.compat.webdataset.reading import FOREVER, SamplePipeline, WorkerPlace
from samplerkit.compat.webdataset.split import Seat, Shuffling, Split
from samplerkit.errors import ArgumentTypeError


@final
@dataclass(frozen=True)
class Loaded:
    """What a DataLoader gives: its next epoch, each time."""

    loader: DataLoader[Any]

    def samples(self, seat: Seat, epoch: int, shuffling: Shuffling) -> Generator[Any, None, None]:
        """Yields the batches."""
        yield from self.loader


@final
class WebLoader(Fluent):
    """torch's DataLoader, whose batches go through more of webdataset's methods in the main process.

    Where it is not for these methods, take the DataLoader itself. What workers give need not be mixed by
    `.unbatched().shuffle(n).batched(m)`: a larger `.shuffle(n)` of the dataset does that without a buffer.

    Args:
        arguments: of `torch.utils.data.DataLoader`, and so are `options`.
        options: likewise.

    Example:
        >>> loader = WebLoader([1, 2, 3, 4, 5], batch_size=2).unlisted().map(int).listed(3)
        >>> list(loader)
        [[1, 2, 3], [4, 5]]
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        loaded = Loaded(DataLoader(*arguments, **options))
        self._pipeline = SamplePipeline(loaded, Shuffling(), Split(), may_be_empty=True)
        self._length: int | None = None
        self._epoch = 0

    def __iter__(self) -> Iterator[Any]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        return self._pipeline.items(Seat.here(None, None), WorkerPlace(epoch))

    def __len__(self) -> int:
        pipeline = self._pipeline
        if self._length is not None:
            return self._length
        if pipeline.stages or pipeline.passes == FOREVER or not isinstance(pipeline.shards, Loaded):
            raise ArgumentTypeError("len", "is not known of this loader", self, hint="say .with_length(n)")
        return pipeline.passes * len(pipeline.shards.loader)

    def _with(self, pipeline: SamplePipeline) -> WebLoader:
        other = object.__new__(WebLoader)
        other._pipeline, other._length, other._epoch = pipeline, self._length, self._epoch
        return other

    def _shuffled(self, size: int, shuffling: Shuffling) -> Self:
        # Nothing can be computed of what comes, so here the place in the pipeline matters.
        shuffled = self._then(stages.Uncounted("shuffle", partial(stages.in_buffer, size)))
        return shuffled._changed(shuffling=shuffling)

    def __repr__(self) -> str:
        return f"WebLoader(){self._shown_stages}"
