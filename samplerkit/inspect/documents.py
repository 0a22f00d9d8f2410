"""When a document of tokens is read: by which windows, wherever the phase of an epoch puts them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, final

from samplerkit.errors import ArgumentValueError
from samplerkit.inspect.time_machine import Occurrence, in_epoch
from samplerkit.inspect.tokens import spans_in
from samplerkit.inspect.view import RunView
from samplerkit.loading.run.delivery import Reading
from samplerkit.order.dataset_protocol import file_number


@final
@dataclass(frozen=True)
class PartRead:
    """One time that a part of a document is read.

    Args:
        read: the window: by which rank, in which step, and at which place of its batch.
        window: its id.
        first: the first token of the part in the document.
        tokens: how many follow on it; the label of the last token of a window is counted.
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
    """Reports when, where and by whom a document of tokens is read, by arithmetic: nothing is searched.

    Args:
        source: as for `when`; its dataset is a `TokenDataset` of files with an index.
        document: its number in its index.
        epochs: one epoch, or several.
        file: its file, by its number or its name in the layout.
        world: as for `when`.
        start: as for `when`.

    Returns:
        For each epoch the parts that are read, in the order of steps; none where the tail drops them, or
        where its tokens are those that an epoch leaves out.

    Raises:
        ArgumentValueError: the dataset does not tell in which windows a document lies, or has
            no file of that name.
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
    wanted = epochs if isinstance(epochs, Iterable) else [epochs]
    return tuple(
        _in_epoch(view, view.reading(epoch, 0, start), windows, (number, document)) for epoch in wanted
    )


def _in_epoch(
    view: RunView, reading: Reading, windows: list[int], wanted: tuple[int, int]
) -> tuple[PartRead, ...]:
    found = []
    for window in windows:
        for read in in_epoch(view, reading, window).occurrences:
            draws = replace(reading, shard=read.rank).draws(read.step)
            epoch = int(reading.units.epochs(draws)[read.place])
            found += [
                PartRead(read, window, first, tokens)
                for file, document, first, tokens in spans_in(view.run.dataset, window, epoch)
                if (file, document) == wanted
            ]
    found.sort(key=lambda part: (part.read.step, part.read.position, part.read.rank, part.read.place))
    return tuple(found)
