"""How a batch is made of a request, and its way from a worker process to the loop.

If torch's queue cannot pickle a batch, it reports that in a thread of the worker, and the loop waits for
ever. If it cannot unpickle one, it raises when that arrives, which may be several batches too early. So what
may fail is pickled here, and unpickled when its turn comes; to pickle all of it twice would take batches of
many bytes two to three times as long. Small tensors are in the message, large ones in shared memory.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final, final

import numpy as np
import torch
import torch.utils.data
from torch.multiprocessing import reductions  # its own reducers are registered first
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from samplerkit.batches.segments import Segments
from samplerkit.errors import DatasetError, note_once
from samplerkit.loading.generators import seed_generators
from samplerkit.loading.sample_fields import SampleCollate
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


SMALL: Final = 256 << 10
"""Bytes up to which copying through the pipe costs less than shared memory, whose file must be made, handed
over through a socket, and mapped: half as much at this size, the same at about 1 MiB."""


_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})
_MOST_VALUES, _DEEPEST = 1 << 16, 8


def is_plain(value: Any) -> bool:
    """Returns whether pickling cannot fail: of some numbers, texts, arrays and tensors in lists and dicts."""
    level: list[Any] = [value]
    for _ in range(_DEEPEST + 1):
        # All values of a level at once: a call for each takes as long as its pickling.
        kinds = set(map(type, level))
        below: list[Any] = []
        for kind in kinds - _PLAIN:
            some: list[Any] = level if len(kinds) == 1 else [one for one in level if type(one) is kind]
            if kind in {dict, list, tuple}:
                if sum(map(len, some)) > _MOST_VALUES:
                    return False
                below += chain.from_iterable(some)
                if kind is dict:
                    below += chain.from_iterable(map(dict.values, some))
            elif kind is torch.Tensor:
                if any(one.layout is not torch.strided or one.requires_grad for one in some):
                    return False
            elif kind is not np.ndarray or any(one.dtype.hasobject for one in some):
                return False
        if not below:
            return True
        level = below
    return False


def _is_plain_figure(stats: Any) -> bool:
    """Returns whether pickling what a dataset has counted cannot fail, which each batch reports."""
    return _is_sent_by_fields(stats.__class__) and is_plain(vars(stats))


@cache
def _is_sent_by_fields(kind: Any) -> bool:
    """Returns whether pickling writes the name of a class and the attributes of its instance, and no more."""
    has_fields_alone = vars(kind).keys() & {"__dict__", "__slots__"} == {"__dict__"}
    if kind.__mro__ != (kind, object) or not has_fields_alone:
        return False
    names = ("__reduce_ex__", "__reduce__", "__getstate__")
    return all(getattr(kind, name) is getattr(object, name) for name in names) and not sending_error(kind)


def _pickled(value: Any) -> tuple[bytes, list[torch.UntypedStorage]]:
    """Pickles a value for another process, without the storages of its tensors: they are sent after all else.

    A large one opens a descriptor for the process that receives it, which would stay open if what comes
    behind it could not be pickled.
    """
    file, storages = io.BytesIO(), list[torch.UntypedStorage]()

    def left_out(storage: torch.UntypedStorage) -> Any:
        storages.append(storage)
        return _storage_at, (len(storages) - 1,)

    pickler = ForkingPickler(file)
    reducers: Any = pickler.dispatch_table
    reducers[torch.UntypedStorage] = left_out
    pickler.dump(value)
    return file.getvalue(), storages


_received = threading.local()


def _storage_at(number: int) -> torch.UntypedStorage:
    found: torch.UntypedStorage = _received.storages[number]
    return found


@final
@dataclass(frozen=True)
class PickledBatch:
    """A pickled batch.

    Args:
        content: the batch, pickled without its storages.
        storages: these, pickled.
        where: which batch it is, for errors.
    """

    content: bytes
    storages: bytes
    where: str

    @staticmethod
    def of(batch: Any, where: str) -> PickledBatch:
        """Pickles a batch; raises what its pickling raises."""
        content, storages = _pickled(batch)
        return PickledBatch(content, bytes(ForkingPickler.dumps(storages)), where)

    def received(self) -> Any:
        """Returns the batch; once only, since it may hold handles of shared memory."""
        try:
            _received.storages = ForkingPickler.loads(self.storages)
            return ForkingPickler.loads(self.content)
        except Exception as error:
            # Not raised as another error: it may come from a signal handler, or from the death of the worker.
            note_once(error, f"samplerkit: while unpickling {self.where}, which came from a worker process")
            raise
        finally:
            _received.storages = []

    def pin_memory(self) -> Any:
        """Returns the batch in pinned memory; torch's thread for pinning calls this."""
        return self.received().pin_memory()


@final
class SendingMaker(BatchMaker):
    """Makes batches in a worker process: each is an `Answer`, or if that might not be picklable, pickled.

    Samples that cannot be pickled are left out where bad samples are.
    """

    def __getitem__(self, request: Request) -> Answer | PickledBatch:
        with sendable_errors():
            self.reader.begin(request)
            return self._sent(request, self.reader.read(request))

    def _sent(self, request: Request, samples: Answer) -> Answer | PickledBatch:
        made = self.collated(request, samples) if request.is_whole else samples
        if is_plain(made.batch) and all(_is_plain_figure(report.stats) for report in made.reports):
            return made  # torch pickles it in a thread, while the next one is read
        try:
            return PickledBatch.of(made, f"{request.some_ids} of {request.where}")
        except Exception as error:
            bad = _unsendable(request, samples)
            if not (bad and self.reader.options.skips):
                raise _cannot_be_sent(request, list(bad.values()), error) from error
        return self._sent(request, _without(samples, bad))


def received(sent: Answer | PickledBatch) -> Answer:
    """Returns in the loop what a worker process sent."""
    return sent.received() if isinstance(sent, PickledBatch) else sent


def _unsendable(request: Request, samples: Answer) -> dict[int, SkippedSample]:
    """Returns the samples that cannot be pickled by their rows, where samples can be told apart."""
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


def _cannot_be_sent(request: Request, bad: list[SkippedSample], error: Exception) -> DatasetError:
    what = "samples that" if bad else "what"
    found = DatasetError(
        "dataset",
        f"gives {what} cannot be sent from a worker process ({type(error).__name__}: {error}); sample ids",
        [one.id for one in bad] or request.ids.tolist(),
        hint="give what can be pickled, or say workers='threads'",
    )
    request.note(found, f"sending {request.some_ids}")
    return found


def _without(samples: Answer, bad: dict[int, SkippedSample]) -> Answer:
    """Leaves more samples out of what was read."""
    skipped = sorted([*samples.skipped, *bad.values()], key=lambda one: one.place)
    left = [sample for row, sample in enumerate(samples.batch) if row not in bad]
    return replace(samples, batch=left, skipped=tuple(skipped))


@contextmanager
def sendable_errors() -> Iterator[None]:
    """Replaces an exception whose class cannot be pickled, such as one that is defined in a function.

    Raises:
        DatasetError: in place of it.
    """
    try:
        yield
    except Exception as error:
        if not sending_error(type(error)):
            raise
        problem = f"raised {type(error).__qualname__}: {error}"
        hint = "define the exception class at the top level of a module, so that workers can send it"
        raise DatasetError("dataset", problem, hint=hint) from error


def sending_error(value: Any) -> str:
    """Returns the error where a value is pickled for another process; an empty string for nothing."""
    try:
        _pickled(value)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def send_small_tensors() -> None:
    """Lets this worker process send small tensors within its messages.

    Tensors in shared memory stay there: somebody may want to share them. All else of a tensor is sent
    as torch does it, so that views of one storage stay views of one.
    """
    ForkingPickler.register(torch.UntypedStorage, _reduced)
    # torch's own makes a batch in shared memory at once.
    if default_collate_fn_map.get(torch.Tensor) is collate_tensor_fn:
        default_collate_fn_map[torch.Tensor] = _stacked


def _reduced(storage: torch.UntypedStorage) -> tuple[Any, ...]:
    if storage.device.type != "cpu" or storage.nbytes() > SMALL or storage.is_shared():
        as_before: tuple[Any, ...] = reductions.reduce_storage(storage)  # type: ignore[no-untyped-call]
        return as_before
    return _storage_of, (torch.empty(0, dtype=torch.uint8).set_(storage).numpy().tobytes(),)


def _storage_of(data: bytes) -> torch.UntypedStorage:
    found = torch.empty(len(data), dtype=torch.uint8)
    found.numpy()[:] = np.frombuffer(data, dtype=np.uint8)
    return found.untyped_storage()


def _stacked(
    batch: Sequence[torch.Tensor], *, collate_fn_map: dict[Any, Callable[..., Any]] | None = None
) -> torch.Tensor:
    """Stacks small tensors as torch does without workers, and all others as it does in workers."""
    first = batch[0]
    is_small = len(batch) * first.numel() * first.element_size() <= SMALL
    if is_small and type(first) is torch.Tensor and first.layout == torch.strided and not first.is_nested:
        found = torch.stack(tuple(batch))
        if found.dtype == first.dtype and not found.requires_grad:
            return found
    in_shared_memory: torch.Tensor = collate_tensor_fn(batch, collate_fn_map=collate_fn_map)
    return in_shared_memory
