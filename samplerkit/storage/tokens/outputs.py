"""What is handed out of windows of tokens: inputs, labels, masks, and where documents begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, DatasetError, OutOfDatasetError
from samplerkit.order import arguments
from samplerkit.order.typing import Ids
from samplerkit.storage.tokens.arguments import Dtype, token_dtype
from samplerkit.storage.tokens.pointers import Pointers
from samplerkit.storage.tokens.source import Rows, TokenSource

Array = np.ndarray[Any, Any]

Span = tuple[int, int | None, int, int]
"""The number of a file and of a document, the first token in it, and how many follow on it."""


def borders_in(source: TokenSource, rows: Array, files: Ids, begins: Ids) -> Array:
    """Returns whether a document begins at a token of a window, shape (n, S + 1).

    One begins with each row, and where a window continues at the first token of its file.
    """
    found = np.zeros(rows.shape, dtype=bool)
    if isinstance(source.documents, int):
        np.equal(rows[:, :-1], source.documents, out=found[:, 1:])
    found[:, 0] = True
    ends = source.rings.tokens[files] - begins
    seams = np.flatnonzero(ends < rows.shape[1])
    found[seams, ends[seams]] = True
    if source.documents == "idx":
        found.reshape(-1)[_starts_in(source, files, begins, rows.shape[1])] = True
    return found


def spans_of(source: TokenSource, id: int, epoch: int) -> list[Span]:
    """Returns which parts of which documents a window is made of; its last label is in it."""
    files, begins = source.rings.at(np.array([id]), np.array([epoch]))
    file = int(files[0])
    found: list[Span] = []
    pointers = source.pointers(file)
    for _, first, count in _pieces(source, file, int(begins[0])):
        if pointers is None:
            found.append((file, None, first, count))
            continue
        at, document = first, pointers.sequence_at(first)
        while at < first + count:
            start, stop = pointers.bounds(document)
            taken = min(stop, first + count) - at
            if taken > 0:
                found.append((file, document, at - start, taken))
                at += taken
            document += 1
    return found


def windows_with(source: TokenSource, file: int, document: int) -> Ids:
    """Returns the windows that hold some of a document of an index, in some epoch."""
    if not 0 <= file < len(source.opened.files):
        raise OutOfDatasetError("file", f"must be in [0, {len(source.opened.files)})", file)
    pointers = source.pointers(file)
    if pointers is None:
        hint = "give the prefix of a .bin and an .idx"
        raise DatasetError(source.opened.files[file].name, "has no index of documents", hint=hint)
    begin, behind = source.sequences[file]
    if not begin <= document < behind:
        problem = f"must be in [{begin}, {behind}), the documents of {source.opened.files[file].name}"
        raise OutOfDatasetError("document", problem, document)
    first, end = (token - int(source.firsts[file]) for token in pointers.bounds(document))
    nothing = np.zeros(0, dtype=np.int64)
    return nothing if first == end else source.rings.windows_over(file, first, end)


def _starts_in(source: TokenSource, files: Ids, begins: Ids, width: int) -> Ids:
    """Where sequences of the index begin in windows, in the batch laid flat."""
    known: dict[int, Pointers | None] = {}
    found: list[Ids] = []
    moved: list[int] = []
    for row, (file, begin) in enumerate(zip(files.tolist(), begins.tolist(), strict=True)):
        if file not in known:
            known[file] = source.pointers(file)
        pointers = known[file]
        if pointers is None:
            continue
        for at, first, count in _pieces(source, file, begin):
            found.append(pointers.between(first, first + count))
            moved.append(row * width + at - first)
    if not found:
        return np.zeros(0, dtype=np.int64)
    starts: Ids = np.concatenate(found) + np.repeat(moved, [each.size for each in found])
    return starts


def _pieces(source: TokenSource, file: int, begin: int) -> list[tuple[int, int, int]]:
    """Of a window, where each piece is in it, its first token in the file, and its tokens."""
    (first, tokens), width = source.extents[file], source.rings.seq_len + 1
    rest = tokens - begin
    if rest >= width:
        return [(0, first + begin, width)]
    return [(0, first + begin, rest), (rest, first, width - rest)]


OUTPUTS: Final = ("tokens", "labels", "loss_mask", "position_ids", "cu_seqlens", "documents")
"""What can be handed out."""

OF_BORDERS: Final = frozenset(OUTPUTS[2:])
"""What depends on where documents begin."""

_DTYPES: Final = {"loss_mask": np.float32, "position_ids": np.int64, "documents": np.int32}
_ALIGNED = 64


def output_names(outputs: Any) -> tuple[str, ...]:
    """Takes the names of outputs.

    Raises:
        ArgumentTypeError: no list of names.
        ArgumentValueError: none, an unknown one, or one that stands twice.
    """
    if isinstance(outputs, str | bytes) or not isinstance(outputs, Sequence):
        raise ArgumentTypeError("outputs", "must be a list of names", outputs)
    for name in outputs:
        if name not in OUTPUTS:
            raise ArgumentValueError("outputs", "has no such name", name, hint=f"known: {', '.join(OUTPUTS)}")
    if not outputs or len(set(outputs)) < len(outputs):
        raise ArgumentValueError("outputs", "must name one or more, each once", outputs)
    return tuple(outputs)


@final
@dataclass(frozen=True)
class WantedOutputs:
    """Arguments of `TokenDataset` of these names, checked.

    Args:
        names: of the outputs.
        dtype: of the tokens that are handed out.
        vocab_size: of the tokenizer; None where no token is looked at.
    """

    names: tuple[str, ...]
    dtype: Dtype
    vocab_size: int | None

    @classmethod
    def of(cls, outputs: Any, as_dtype: Any, vocab_size: Any) -> WantedOutputs:
        """Checks what was said.

        Raises:
            ArgumentTypeError: an argument has the wrong type.
            ArgumentValueError: a name or a type is not known.
            ArgumentRangeError: the size is not positive.
        """
        return cls(
            output_names(("tokens",) if outputs is None else outputs),
            token_dtype("as_dtype", as_dtype),
            None if vocab_size is None else arguments.positive("vocab_size", vocab_size),
        )

    def require_room(self, source: TokenSource) -> None:
        """Refuses files with tokens that the type cannot hold.

        Raises:
            ArgumentValueError: it cannot.
        """
        if not np.can_cast(source.dtype, self.dtype, "safe"):
            problem = f"cannot hold all tokens of {source.opened.files[0].name}, which are {source.dtype}"
            raise ArgumentValueError("as_dtype", problem, self.dtype.name, hint="say int64")

    def made(self, source: TokenSource, found: Rows, *, is_alone: bool) -> Any:
        """Makes what is handed out of windows that were read.

        Args:
            source: the files.
            found: the windows.
            is_alone: whether one window is handed out, and no batch.

        Returns:
            One array, or several by name.

        Raises:
            DatasetError: a token is not below `vocab_size`, or an index is damaged.
        """
        if self.vocab_size is not None:
            source.require_below(self.vocab_size, *found)
        if self.names == ("tokens",):
            tokens = found[0].astype(self.dtype, copy=False)
            return tokens[0] if is_alone else tokens
        borders = None if OF_BORDERS.isdisjoint(self.names) else borders_in(source, *found)
        made = made_outputs(self.names, found[0], self.dtype, borders)
        if is_alone:
            made = {name: values if name == "cu_seqlens" else values[0] for name, values in made.items()}
        return made if len(made) > 1 else made[self.names[0]]


def made_outputs(names: tuple[str, ...], rows: Array, dtype: Any, borders: Array | None) -> dict[str, Array]:
    """Makes what is handed out of a batch.

    The arrays lie in one block of memory: several large ones, given back at each step, are what the C library
    gives back to the system, and each page of them is asked for again in the next step.

    Args:
        names: of the outputs.
        rows: the tokens as they are stored, shape (batch, S + 1).
        dtype: of the tokens that are handed out.
        borders: whether a document begins at a token, shape (batch, S + 1), the first of a row included; None
            where no output needs it.

    Returns:
        By name. `tokens` are the rows, of which `labels` take the last S, and leave the first S. The others
        are of shape (batch, S): `loss_mask` float32, 0 where the next token is of another document;
        `position_ids` int64, from 0 in each document; `documents` int32, their numbers in the row, from 0.
        `cu_seqlens` are int32 over the batch laid flat: where documents begin and, last, its end.
    """
    size, places = _in_one_block(names, rows.shape, rows.dtype, dtype)
    block = np.empty(size, dtype=np.uint8)
    made = {name: np.ndarray(shape, held, block, at) for name, shape, held, at in places}
    made.setdefault("tokens", rows)
    if dtype != rows.dtype:
        np.copyto(made["tokens"], rows)
    if "labels" in names:
        made |= {"tokens": made["tokens"][:, :-1], "labels": made["tokens"][:, 1:]}
    if borders is not None:
        inputs = borders[:, :-1]
        if "loss_mask" in names:
            np.copyto(made["loss_mask"], ~borders[:, 1:])
        if "documents" in names:
            np.cumsum(inputs, axis=1, dtype=np.int32, out=made["documents"])
            made["documents"] -= np.int32(1)
        if "position_ids" in names or "cu_seqlens" in names:
            starts = np.flatnonzero(inputs)
            made["cu_seqlens"] = np.empty(starts.size + 1, dtype=np.int32)
            made["cu_seqlens"][:-1], made["cu_seqlens"][-1] = starts, inputs.size
            if "position_ids" in names:
                _count_from(starts, made["position_ids"])
    return {name: made[name] for name in names}


@lru_cache(maxsize=64)
def _in_one_block(
    names: tuple[str, ...], shape: tuple[int, int], stored: Any, dtype: Any
) -> tuple[int, tuple[tuple[str, tuple[int, int], Any, int], ...]]:
    """Returns the bytes of a block and, of each array in it, name, shape, type and first byte."""
    wanted = {name: ((shape[0], shape[1] - 1), held) for name, held in _DTYPES.items() if name in names}
    if dtype != stored:
        wanted["tokens"] = (shape, dtype)
    places, at = [], 0
    for name, (of, held) in wanted.items():
        places.append((name, of, held, at))
        at += -(-prod(of) * np.dtype(held).itemsize // _ALIGNED) * _ALIGNED
    return at, tuple(places)


def _count_from(starts: Ids, found: Ids) -> None:
    """Fills positions that begin again at some places, in the batch laid flat."""
    flat, places = found.reshape(-1), np.arange(found.shape[1])
    begins = starts.tolist()
    for begin, end in zip(begins, [*begins[1:], flat.size], strict=True):
        flat[begin:end] = places[: end - begin]
