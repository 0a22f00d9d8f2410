"""Lookups in both directions: what a step reads, and when a sample or document is read, without a log."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, final

import numpy as np

from samplerkit.errors import ArgumentValueError, OutOfDatasetError
from samplerkit.inspect.batches import spans_in, spans_of
from samplerkit.inspect.view import RunView
from samplerkit.loading.run.delivery import Delivery, Reading
from samplerkit.loading.run.token_windows import TokenWindowUnit
from samplerkit.order import arguments
from samplerkit.order.dataset_protocol import file_number
from samplerkit.order.typing import Ids


@dataclass(frozen=True)
class BatchRead:
    """The batch of samples of different lengths that one rank reads in one step.

    Args:
        numbers: the number of the batch in the plan; or several, if `tail="split"` cuts the last batches into
            smaller ones.
        shape: the number of samples, and the lengths to which they are padded.
        tokens: tokens of this rank; the number of samples if lengths are not known.
        step_tokens: tokens of all ranks in this step.
    """

    numbers: tuple[int, ...]
    shape: tuple[Any, ...]
    tokens: int
    step_tokens: int


@final
@dataclass(frozen=True, eq=False)
class StepRead:
    """What one rank reads in one step.

    Args:
        epoch: the epoch, from 0.
        step: the step, from 0.
        rank: the rank.
        num_ranks: the number of ranks.
        num_steps: the steps of this rank in this epoch.
        ids: the samples, int64 of shape (samples,), in the order of the batch.
        positions: their positions in the order of all ranks, int64 of the same shape; for batches of
            samples of different lengths, their draws.
        pads: whether each sample repeats another one to fill the batch, bool of the same shape.
        files: the number of each sample's file, int64 of the same shape; None without files.
        fingerprint: the fingerprint of the run's orders.
        names: the names of all files; None if they have no names.
        batch: details of a batch of samples of different lengths; None for batches of one size.
        spans: for each window of tokens, its parts of documents: file, document, first token in the document,
            and number of tokens; None for other datasets.
        tokens: input tokens of the windows, including pads; None for other datasets.
    """

    epoch: int
    step: int
    rank: int
    num_ranks: int
    num_steps: int
    ids: Ids
    positions: Ids
    pads: np.ndarray[Any, np.dtype[np.bool_]]
    files: Ids | None
    fingerprint: str
    names: tuple[str, ...] | None = None
    batch: BatchRead | None = None
    spans: tuple[Any, ...] | None = None
    tokens: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, for JSON; files are given by name if they have names."""
        values = {name: value for name, value in vars(self).items() if name != "names"}
        values["batch"] = self.batch and asdict(self.batch)
        for name in ("ids", "positions", "pads"):
            values[name] = values[name].tolist()
        if self.files is not None:
            values["files"] = [self.names[file] if self.names else file for file in self.files.tolist()]
        return values


@final
@dataclass(frozen=True)
class Occurrence:
    """One time that a sample is read.

    Args:
        epoch: the epoch, from 0.
        rank: the rank that reads it.
        step: the step, from 0.
        place: the index in the batch, from 0.
        position: the position in the order of all ranks; for batches of samples of different lengths, the
            number of the batch in the plan.
        is_pad: whether it is read again only to fill a batch.
    """

    epoch: int
    rank: int
    step: int
    place: int
    position: int
    is_pad: bool


@final
@dataclass(frozen=True)
class EpochOfSample:
    """The times when a sample is read in an epoch.

    Args:
        epoch: the epoch.
        occurrences: each time that it is read, in the order of steps.
        unread: positions of the sample in the order that no rank reads: the tail drops them, or they are
            before the start.
    """

    epoch: int
    occurrences: tuple[Occurrence, ...]
    unread: tuple[int, ...] = ()


def at(
    source: Any, epoch: int, step: int, rank: int = 0, *, world: int | None = None, start: int | None = None
) -> StepRead:
    """Returns what a rank reads in a step; the cost does not depend on the size of the dataset or the epoch.

    Args:
        source: a `Loader`, a `Config` with a dataset, or a torch DataLoader with a `TorchSampler`.
        epoch: the epoch, from 0.
        step: the step, from 0. In the current epoch of a resumed loader, it counts from the resume.
        rank: the rank, in [0, ranks).
        world: the number of ranks on which a config is started; None takes it from the sampler, then from
            the running job.
        start: the position at which the run began the epoch. By default the beginning, or, for the current
            epoch of a resumed loader, the position of the resume.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: there is no such rank.
        OutOfDatasetError: there is no such step.

    Example:
        >>> import samplerkit as sk
        >>> sampler, world = sk.RandomSampler(seed=7), sk.World(8, 0)
        >>> loader = sk.Loader(range(10**12), sampler, batch_size=2, world=world)
        >>> read = at(loader, epoch=3, step=340, rank=3)
        >>> read.positions.tolist(), len(read.ids), read.pads.any()
        ([5443, 5451], 2, np.False_)
        >>> when(loader, int(read.ids[1]), epochs=3)[0].occurrences
        (Occurrence(epoch=3, rank=3, step=340, place=1, position=5451, is_pad=False),)
    """
    view = RunView.of(source, world)
    reading = view.reading(epoch, rank, start)
    step, steps = arguments.integer("step", step), view.steps(reading)
    if not 0 <= step < steps:
        raise OutOfDatasetError("step", f"must be in [0, {steps}) in epoch {epoch} of rank {rank}", step)
    layout, ids = view.layout, reading.ids(step)
    windows = TokenWindowUnit.of(view.run.sampler, view.run.dataset)
    return StepRead(
        epoch=reading.epoch,
        step=step,
        rank=reading.shard,
        num_ranks=view.num_ranks,
        num_steps=steps,
        ids=ids,
        positions=reading.draws(step),
        pads=reading.pads(step),
        files=layout.file_of(ids) if layout.has_files else None,
        fingerprint=view.fingerprint,
        names=layout.names,
        batch=_batch_of(view, reading, step),
        spans=spans_of(view, reading, step, ids),
        tokens=None if windows is None or windows.seq_len is None else ids.size * windows.seq_len,
    )


def _batch_of(view: RunView, reading: Reading, step: int) -> BatchRead | None:
    plan = view.run.epoch(reading.epoch).plan
    if plan is None:
        return None
    delivery = reading.delivery
    dealt = delivery.dealt(reading.shard, step)
    numbers = [int(number) if plan.has(number) else int(number) % len(plan) for number in dealt]
    if reading._is_split(step):
        numbers = [*range(delivery.first(step), len(plan))]
    read = reading.read(step)
    shape = plan.shape_of(read.ids, read.segments)
    return BatchRead(tuple(numbers), shape, reading.units.tokens(read), reading.tokens(step))


def when(
    source: Any,
    sample: int,
    epochs: int | Iterable[int],
    *,
    world: int | None = None,
    start: int | None = None,
) -> tuple[EpochOfSample, ...]:
    """Returns when and by which rank a sample is read; positions are computed, without a search.

    Args:
        source: as for `at`.
        sample: the id of the sample.
        epochs: one epoch, or several.
        world: as for `at`.
        start: as for `at`; for all of the epochs.

    Returns:
        One entry per epoch, in the order of `epochs`.

    Raises:
        OutOfDatasetError: there is no such sample.
        InverseTooLargeError: the order can only be scanned, and is too long for that: draws with
            replacement of more than 2^26 samples.

    Example:
        >>> import samplerkit as sk
        >>> loader = sk.Loader(range(5), sk.SequentialSampler(), batch_size=1, world=sk.World(2, 0))
        >>> [(time.rank, time.step, time.is_pad) for time in when(loader, 0, epochs=0)[0].occurrences]
        [(0, 0, False), (1, 2, True)]
    """
    view = RunView.of(source, world)
    size = view.layout.num_samples
    sample = arguments.integer("sample", sample)
    if not 0 <= sample < size:
        raise OutOfDatasetError("sample", f"outside of a dataset of {size} samples", sample)
    chosen = epochs if isinstance(epochs, Iterable) else [epochs]
    return tuple(in_epoch(view, view.reading(epoch, 0, start), sample) for epoch in chosen)


def in_epoch(view: RunView, reading: Reading, sample: int) -> EpochOfSample:
    """Finds the times when any rank reads a sample in an epoch."""
    epoch, units = reading.epoch, view.run.epoch(reading.epoch)
    plan = units.plan
    positions = units.order.positions_of(sample) if plan is None else np.unique(plan.batch_of(sample))
    dealt = [
        time
        for time in occurrences_of(epoch, reading.delivery, positions)
        if time.step < view.steps(replace(reading, shard=time.rank))
    ]
    times = dealt if plan is None else _in_batches(reading, dealt, sample)
    times.sort(key=lambda time: (time.step, time.position, time.rank, time.place))
    seen = {time.position for time in dealt}
    return EpochOfSample(epoch, tuple(times), tuple(p for p in positions.tolist() if p not in seen))


def occurrences_of(epoch: int, delivery: Delivery, positions: Ids) -> list[Occurrence]:
    """Finds the rank and step that read each of some positions: the inverse of `Delivery.dealt`.

    Args:
        epoch: the epoch.
        delivery: how the rest of the epoch is dealt.
        positions: int64 of shape (m,), each in [0, total).

    Returns:
        Each time that the positions are read, including pads, by step and rank. Positions before the start,
        and those that the tail drops, are not read.

    Example:
        >>> delivery = Delivery(total=10, start=0, num_shards=4, batch_size=2, tail="pad")
        >>> [(time.rank, time.step, time.position) for time in occurrences_of(0, delivery, np.array([0, 9]))]
        [(0, 0, 0), (1, 1, 9), (2, 1, 10)]
    """
    dealt = positions[positions >= delivery.start]
    begins, numbers, sizes = np.array(delivery.stages, dtype=np.int64).T
    stage = np.searchsorted(begins, dealt, side="right") - 1
    steps = set((numbers[stage] + (dealt - begins[stage]) // sizes[stage]).tolist())
    if delivery.tail == "pad" and delivery.start < delivery.size:
        # There are fewer pads than ranks, so all of them are in the last step.
        steps.add(delivery.job_steps - 1)
    occurrences = []
    for step in sorted(steps):
        for rank in range(delivery.num_shards):
            dealt = np.asarray(delivery.dealt(rank, step))
            places = np.flatnonzero(np.isin(dealt % delivery.size, positions))
            occurrences += [
                Occurrence(epoch, rank, step, place, int(dealt[place]), bool(dealt[place] >= delivery.size))
                for place in places.tolist()
            ]
    return occurrences


def _in_batches(reading: Reading, dealt: list[Occurrence], sample: int) -> list[Occurrence]:
    """Finds a sample within the batches of a plan that hold it, where `dealt` says when these are read."""
    numbers = {(time.rank, time.step): time.position for time in dealt}
    last = next((step for _, step in numbers if reading._is_split(step)), None)
    if last is not None:
        # Any rank may have it: the remaining batches were joined and cut again.
        first = min(number for (_, step), number in numbers.items() if step == last)
        numbers |= {(rank, last): first for rank in range(reading.delivery.num_shards)}
    times = []
    for (rank, step), number in numbers.items():
        read = replace(reading, shard=rank)
        places = np.flatnonzero(read.ids(step) == sample)
        pads = read.pads(step)
        times += [
            Occurrence(reading.epoch, rank, step, place, number, is_pad=bool(pads[place]))
            for place in places.tolist()
        ]
    return times


@final
@dataclass(frozen=True)
class PartRead:
    """One time that a part of a document is read.

    Args:
        read: when the window is read: rank, step and index in the batch.
        window: the id of the window.
        first: the first token of the part, counted from the start of the document.
        tokens: the number of tokens of the part, including the label of the window's last input.
    """

    read: Occurrence
    window: int
    first: int
    tokens: int


def when_document(
    source: Any,
    document: int,
    epochs: int | Iterable[int],
    *,
    file: int | str = 0,
    world: int | None = None,
    start: int | None = None,
) -> tuple[tuple[PartRead, ...], ...]:
    """Returns when and by which rank a document of tokens is read; positions are computed, without a search.

    Args:
        source: as for `when`; its dataset is a `TokenDataset` of files with an index.
        document: the number of the document in the index of its file.
        epochs: one epoch, or several.
        file: the file of the document, by its number or its name in the layout.
        world: as for `when`.
        start: as for `when`.

    Returns:
        For each epoch the parts that are read, in the order of steps; without parts that the tail drops, or
        whose tokens the epoch leaves out.

    Raises:
        ArgumentValueError: the dataset does not know which windows hold a document, or has no such file.
        OutOfDatasetError: there is no such document.
        DatasetError: the file has no index.

    Example:
        >>> import os, tempfile, samplerkit as sk
        >>> prefix = os.path.join(tempfile.mkdtemp(), "corpus")
        >>> with sk.TokenWriter(prefix, "uint16") as writer:
        ...     for length in (6, 3, 8):
        ...         writer.write(range(length))
        >>> data = sk.TokenDataset(prefix, 4, phase=False)
        >>> loader = sk.Loader(data, sk.SequentialSampler(), batch_size=1, world=sk.World(2, 0))
        >>> for part in when_document(loader, 1, epochs=0)[0]:
        ...     print(part.read.rank, part.read.step, part.first, part.tokens)
        1 0 0 3
        0 1 2 1
    """
    view = RunView.of(source, world)
    if not callable(getattr(view.run.dataset, "windows_of", None)):
        hint = "ask for one of a TokenDataset"
        raise ArgumentValueError("document", "is not known by the dataset", document, hint=hint)
    number = file_number(view.layout, file)
    windows = view.run.dataset.windows_of(document, file=number).tolist()
    chosen = epochs if isinstance(epochs, Iterable) else [epochs]
    return tuple(
        _parts_in_epoch(view, view.reading(epoch, 0, start), windows, (number, document)) for epoch in chosen
    )


def _parts_in_epoch(
    view: RunView, reading: Reading, windows: list[int], target: tuple[int, int]
) -> tuple[PartRead, ...]:
    parts = []
    for window in windows:
        for read in in_epoch(view, reading, window).occurrences:
            draws = replace(reading, shard=read.rank).draws(read.step)
            epoch = int(reading.units.epochs(draws)[read.place])
            parts += [
                PartRead(read, window, first, tokens)
                for file, document, first, tokens in spans_in(view.run.dataset, window, epoch)
                if (file, document) == target
            ]
    parts.sort(key=lambda part: (part.read.step, part.read.position, part.read.rank, part.read.place))
    return tuple(parts)
