"""The outputs of token files: inputs, labels and masks of windows, and whole documents."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from math import prod
from operator import itemgetter
from typing import Any, Final

import numpy as np

from samplerkit.errors import ArgumentValueError, OutOfDatasetError
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.dataset_protocol import fingerprint_of
from samplerkit.order.intervals import interval_of
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.files.content import names_of
from samplerkit.storage.ids import checked_ids, checked_index, checked_segments
from samplerkit.storage.tokens.arguments import Dtype, token_dtype
from samplerkit.storage.tokens.source import TokenSource

Array = np.ndarray[Any, Any]

OUTPUTS: Final = ("tokens", "labels", "loss_mask", "position_ids", "cu_seqlens", "documents")
"""The names of all outputs."""

_DTYPES: Final = {"loss_mask": np.float32, "position_ids": np.int64, "documents": np.int32}
_ALIGNED: Final = 64


class OutputSpec:
    """The arguments of `TokenDataset` for its outputs, checked.

    Attributes:
        names: the names of the outputs.
        need_borders: whether an output depends on the borders of documents.
        dtype: the type of the returned tokens.
        vocab_size: the size of the tokenizer's vocabulary; None if tokens are not checked.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentValueError: a name or a type is not known.
        ArgumentRangeError: the size is not positive.
    """

    def __init__(self, outputs: Any, as_dtype: Any, vocab_size: Any) -> None:
        self.names: Final = names_of(outputs, "outputs") or ("tokens",)
        for name in self.names:
            arguments.choice("outputs", name, OUTPUTS)
        self.need_borders: Final = not {"tokens", "labels"}.issuperset(self.names)
        self.dtype: Final = token_dtype("as_dtype", as_dtype)
        self.vocab_size: Final = arguments.limit("vocab_size", vocab_size)

    def require_castable(self, stored: Dtype, name: str) -> None:
        """Checks that the output type can hold all tokens of the files.

        Args:
            stored: the type of the tokens in the files.
            name: the name of the first file.

        Raises:
            ArgumentValueError: the output type is too small.
        """
        if not np.can_cast(stored, self.dtype, "safe"):
            problem = f"cannot hold all tokens of {name}, which are {stored}"
            raise ArgumentValueError("as_dtype", problem, self.dtype.name, hint="use int64")

    def build(self, rows: Array, borders: Array | None, *, is_alone: bool) -> Any:
        """Makes the outputs of windows that were read.

        The arrays share one block of memory: the C library returns several large blocks to the system when
        they are freed at each step, and every page of them then has to be mapped again in the next step.

        Args:
            rows: the tokens in their stored type, shape (batch, S + 1).
            borders: whether a document begins at each token, shape (batch, S + 1), always true for the first
                of a row; None if no output needs it.
            is_alone: whether a single window is returned instead of a batch.

        Returns:
            One array, or several by name. `tokens` are the rows; with `labels`, which are the last S tokens,
            `tokens` are the first S. The others have shape (batch, S): `loss_mask` float32, 0 where the next
            token is of another document; `position_ids` int64, from 0 in each document; `documents` int32,
            the number of the document in the row, from 0. `cu_seqlens` are int32 positions in the flattened
            batch: the begin of each document and, last, the end of the batch.
        """
        if self.names == ("tokens",):
            tokens = rows.astype(self.dtype, copy=False)
            return tokens[0] if is_alone else tokens
        size, specs = _block_layout(self.names, rows.shape, rows.dtype, self.dtype)
        block = np.empty(size, dtype=np.uint8)
        arrays = {name: np.ndarray(shape, dtype, block, at) for name, dtype, shape, at in specs}
        arrays.setdefault("tokens", rows)
        if self.dtype != rows.dtype:
            np.copyto(arrays["tokens"], rows)
        if "labels" in self.names:
            arrays |= {"tokens": arrays["tokens"][:, :-1], "labels": arrays["tokens"][:, 1:]}
        if borders is not None:
            self._add_documents(arrays, borders)
        outputs = {name: arrays[name] for name in self.names}
        if is_alone:
            outputs = {name: array if name == "cu_seqlens" else array[0] for name, array in outputs.items()}
        return outputs if len(outputs) > 1 else outputs[self.names[0]]

    def _add_documents(self, arrays: dict[str, Array], borders: Array) -> None:
        inputs = borders[:, :-1]
        if "loss_mask" in arrays:
            np.copyto(arrays["loss_mask"], ~borders[:, 1:])
        if "documents" in arrays:
            np.cumsum(inputs, axis=1, dtype=np.int32, out=arrays["documents"])
            arrays["documents"] -= np.int32(1)
        if not {"position_ids", "cu_seqlens"}.isdisjoint(self.names):
            starts = np.flatnonzero(inputs)
            arrays["cu_seqlens"] = np.append(starts, inputs.size).astype(np.int32)
            if "position_ids" in arrays:
                _count_from(starts, arrays["position_ids"])


@lru_cache(maxsize=64)
def _block_layout(
    names: tuple[str, ...], shape: tuple[int, int], stored: Dtype, as_dtype: Dtype
) -> tuple[int, list[tuple[str, Dtype, tuple[int, int], int]]]:
    """Returns the size of a block in bytes, and the name, dtype, shape and offset of each array in it."""
    inputs = shape[0], shape[1] - 1
    arrays = [("tokens", as_dtype, shape)] if as_dtype != stored else []
    arrays += [(name, np.dtype(kind), inputs) for name, kind in _DTYPES.items() if name in names]
    sizes = (-(-prod(shape) * dtype.itemsize // _ALIGNED) * _ALIGNED for _, dtype, shape in arrays)
    offsets = [*accumulate(sizes, initial=0)]
    return offsets[-1], [(*array, at) for array, at in zip(arrays, offsets, strict=False)]


def _count_from(starts: Ids, positions: Ids) -> None:
    """Fills positions in the flattened batch, counted from 0 at each of `starts`."""
    flat, places = positions.reshape(-1), np.arange(positions.shape[1])
    for begin, end in pairwise([*starts.tolist(), flat.size]):
        flat[begin:end] = places[: end - begin]


_RULE = "documents-1"
_CHUNK = 1 << 22


class TokenDocuments:
    """The documents of a `TokenDataset` as a map-style dataset: each sample is an array of tokens.

    Documents are the sequences of the index, or end with a given token; with a split, those of the part.
    Their lengths come from the index; without an index, all tokens are read once to find them.

    Args:
        source: the files, and the part of each that is read.
        as_dtype: the type of the returned tokens.

    Raises:
        DatasetError: a file has no index, and no token that ends documents was given.
    """

    def __init__(self, source: TokenSource, as_dtype: Dtype) -> None:
        self._source: Final = source
        self._as_dtype: Final = as_dtype
        for file in () if isinstance(source.rings.spec.documents, int) else source.files:
            _ = file.index  # raises if it has none

    @cached_property
    def layout(self) -> Layout:
        """The number of documents of each file; a tree if corpora have names."""
        counts = [edges.size - 1 for edges in self._edges]
        return self._source.rings.layout(np.array(counts, dtype=np.int64))

    @property
    def lengths(self) -> Array:
        """The number of tokens of each document, shape (documents,)."""
        return np.concatenate([*map(np.diff, self._edges)])

    @cached_property
    def fingerprint(self) -> str:
        """A string that changes with the files and with the parts of them that are read."""
        source, documents = self._source, self._source.rings.spec.documents
        end = None if documents == "idx" else documents
        firsts = [file.first for file in source.files]
        sequences = [file.sequences for file in source.files]
        return fingerprint_of(_RULE, source.dtype.str, end, firsts, source.rings.tokens.tolist(), sequences)

    def __len__(self) -> int:
        return len(self.layout)

    def __getitem__(self, index: int) -> Array:
        return self.__getitems__([checked_index(index, self, "documents")])[0]

    def __getitems__(self, ids: Iterable[int]) -> list[Array]:
        """Returns documents, in the order of the ids."""
        return self._read([self._place(id) for id in checked_ids(ids, len(self)).tolist()])

    def __getsegments__(self, segments: Any) -> list[Array]:
        """Returns parts of documents, without reading the rest of them.

        Args:
            segments: the id of the document, the first token in it and the number of tokens of each part;
                integers of shape (m, 3).

        Returns:
            The m parts, in the order of `segments`.

        Raises:
            ArgumentTypeError: `segments` has another type or shape.
            OutOfDatasetError: a document does not exist, or is shorter.
        """
        places = []
        for id, start, length in checked_segments(segments, len(self)).tolist():
            file, first, tokens = self._place(id)
            if start < 0 or length < 0 or start + length > tokens:
                problem = f"document {id} has {tokens} tokens, and no such part"
                raise OutOfDatasetError("segments", problem, (start, length))
            places.append((file, first + start, length))
        return self._read(places)

    def close(self) -> None:
        """Closes open files."""
        self._source.opened.data.close()

    def __repr__(self) -> str:
        return f"TokenDocuments({len(self)} documents)"

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the edges, 8 bytes a document, if another process can read them from an index."""
        is_indexed = not isinstance(self._source.rings.spec.documents, int)
        return {name: value for name, value in self.__dict__.items() if name != "_edges" or not is_indexed}

    @cached_property
    def _edges(self) -> tuple[Ids, ...]:
        """For each file the begin of each document in its part and, last, the number of tokens of the part.

        Raises:
            DatasetError: an index contradicts itself.
        """
        if isinstance(self._source.rings.spec.documents, int):
            return tuple(map(self._scan, range(len(self._source.files))))
        return tuple(
            file.index.edges()[file.sequences[0] : file.sequences[1] + 1] - file.first
            for file in self._source.files
        )

    def _scan(self, file: int) -> Ids:
        source = self._source
        size, total = source.dtype.itemsize, int(source.rings.tokens[file])
        edges: list[Ids] = [np.array([0])]
        for begin in range(0, total, _CHUNK):
            tokens = np.empty(min(_CHUNK, total - begin), dtype=source.dtype)
            offset = source.files[file].begin + begin * size
            source.opened.data.fill([(file, offset, tokens)])
            edges.append(np.flatnonzero(tokens == source.rings.spec.documents) + (begin + 1))
        # Tokens after the last end are a document without an end token.
        return np.unique(np.concatenate([*edges, [total]]))

    def _place(self, id: int) -> tuple[int, int, int]:
        """Returns the file, the first token in its part, and the number of tokens of a document."""
        starts = self.layout.starts
        file = int(interval_of(starts, np.array([id]))[0])
        number = id - int(starts[file])
        begin, end = self._edges[file][number : number + 2].tolist()
        return file, begin, end - begin

    def _read(self, places: Sequence[tuple[int, int, int]]) -> list[Array]:
        files, data, dtype = self._source.files, self._source.opened.data, self._source.dtype
        parts = [np.empty(length, dtype) for _, _, length in places]
        in_order = sorted(zip(places, parts, strict=True), key=itemgetter(0))
        data.fill(
            (file, files[file].begin + first * dtype.itemsize, part)
            for (file, first, _), part in in_order
            if part.size
        )
        return [part.astype(self._as_dtype) for part in parts]
