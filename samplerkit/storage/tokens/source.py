"""The source of a token dataset: the opened files, the part of each that is read, and its windows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from samplerkit.errors import ArgumentValueError, DatasetError, OutOfDatasetError
from samplerkit.order.caching import cached_property
from samplerkit.order.dataset_protocol import fingerprint_of
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.files.stored import BytesRequest
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tokens.arguments import Corpus, Dtype, WindowSpec
from samplerkit.storage.tokens.rings import RULE, Rings
from samplerkit.storage.tokens.token_files import OpenedFiles, TokenFile
from samplerkit.storage.urls import shown

Array = np.ndarray[Any, Any]

Rows = tuple[Array, Ids, Ids]
"""The tokens of windows, shape (n, S + 1), and the file and the first token of each."""

DocumentSpan = tuple[int, int | None, int, int]
"""The number of a file and of a document, the first token in the document, and the number of tokens."""

MAX_LOST: Final = 0.5
"""The share of tokens in files shorter than a block above which a dataset is refused."""

MUCH_LOST: Final = 0.01
"""The share of tokens in files shorter than a block above which a warning is logged."""

_LOG = logging.getLogger("samplerkit")


@final
@dataclass(frozen=True, eq=False)
class TokenSource:
    """The windows of token files.

    Args:
        opened: the whole files.
        files: the part of each file that is read.
        rings: the positions of windows in these parts.
    """

    opened: OpenedFiles
    files: tuple[TokenFile, ...]
    rings: Rings

    @classmethod
    def of(
        cls, corpora: tuple[Corpus, ...], spec: WindowSpec, storage: RemoteStorage | None, *, whole: bool
    ) -> TokenSource:
        """Opens files and computes their windows.

        Raises:
            DatasetError: a file is missing, damaged, or does not match the others; or there is no window.
            ArgumentValueError: raw files need a dtype, or no token can be the given end of documents.
        """
        paths = [path for corpus in corpora for path in corpus.files]
        opened = OpenedFiles(paths, spec.dtype, storage, whole=whole)
        dtype = opened.files[0].dtype
        if isinstance(spec.documents, int) and not (
            np.iinfo(dtype).min <= spec.documents <= np.iinfo(dtype).max
        ):
            problem = f"marks the end of documents, but no {dtype} token has this value"
            raise ArgumentValueError("documents", problem, spec.documents)
        for file in opened.files if spec.documents == "idx" else ():
            _ = file.index  # raises if it has none
        parts = tuple(file.part(spec.split, spec.part) for file in opened.files)
        rings = Rings(np.array([file.tokens for file in parts], dtype=np.int64), corpora, spec)
        for number in range(len(corpora)):
            _require_windows(rings, number)
        return cls(opened, parts, rings)

    @cached_property
    def dtype(self) -> Dtype:
        """The type of the tokens."""
        return self.files[0].dtype

    @cached_property
    def layout(self) -> Layout:
        """The number of windows of each file; a tree if corpora have names."""
        return self.rings.layout(self.rings.windows)

    @cached_property
    def block_layout(self) -> Layout:
        """The number of blocks of each file."""
        return self.rings.layout(self.rings.blocks)

    @cached_property
    def fingerprint(self) -> str:
        """A string that changes with everything that the order of tokens depends on."""
        rings, spec = self.rings, self.rings.spec
        return fingerprint_of(
            RULE,
            spec.block_len if spec.phase else None,
            spec.seed if spec.phase else None,
            self.dtype.str,
            [corpus.path for corpus in rings.corpora],
            rings.corpus_of.tolist(),
            [file.first for file in self.files],
            rings.tokens.tolist(),
        )

    def of_first(self, count: int) -> TokenSource:
        """Returns the windows of the first `count` corpora only, without opening files again."""
        files = np.count_nonzero(self.rings.corpus_of < count)
        rings = replace(self.rings, tokens=self.rings.tokens[:files], corpora=self.rings.corpora[:count])
        return replace(self, files=self.files[:files], rings=rings)

    def rows(self, ids: Ids, epochs: Ids | int) -> Rows:
        """Reads windows.

        Returns:
            The tokens in their stored type, shape (n, S + 1), and the file and first token of each window.
        """
        files, begins = self.rings.at(ids, epochs)
        rows = np.empty((ids.size, self.rings.spec.seq_len + 1), dtype=self.dtype)
        if ids.size:
            self.opened.data.fill(self._parts(rows, ids.argsort().tolist(), files.tolist(), begins.tolist()))
        return rows, files, begins

    def require_below(self, vocab_size: int, rows: Array, files: Ids, begins: Ids) -> None:
        """Checks that all tokens are in [0, vocab_size).

        Raises:
            DatasetError: a token is not; the error has its byte offset in the file.
        """
        if not rows.size or (int(rows.max()) < vocab_size and int(rows.min()) >= 0):
            return
        row, place = (int(index) for index in np.argwhere((rows < 0) | (rows >= vocab_size))[0])
        file = self.files[int(files[row])]
        token = (int(begins[row]) + place) % int(self.rings.tokens[files[row]])
        at = file.begin + token * self.dtype.itemsize
        raise DatasetError(
            file.name,
            f"holds at byte {at} a token that is not in [0, {vocab_size}), vocab_size of the tokenizer",
            int(rows[row, place]),
            hint=f"give the dtype and the vocab_size that it was written with; it is read as {self.dtype}",
        )

    def borders(self, rows: Array, files: Ids, begins: Ids) -> Array:
        """Returns whether a document begins at each token of windows, shape (n, S + 1).

        A document also begins with each row, and where a window continues at the first token of its file.
        """
        borders, documents = np.zeros(rows.shape, dtype=bool), self.rings.spec.documents
        if isinstance(documents, int):
            np.equal(rows[:, :-1], documents, out=borders[:, 1:])
        borders[:, 0] = True
        ends = self.rings.tokens[files] - begins
        seams = np.flatnonzero(ends < rows.shape[1])
        borders[seams, ends[seams]] = True
        if documents == "idx":
            borders.reshape(-1)[self._starts_in(files, begins, rows.shape[1])] = True
        return borders

    def spans(self, id: int, epoch: int) -> list[DocumentSpan]:
        """Returns the parts of documents that make up a window, including its last label."""
        files, begins = self.rings.at(np.array([id]), np.array([epoch]))
        file = int(files[0])
        spans: list[DocumentSpan] = []
        pointers = self.files[file].pointers
        for _, first, count in self._pieces(file, int(begins[0])):
            if pointers is None:
                spans.append((file, None, first, count))
                continue
            for document in pointers.sequences_of(first, first + count):
                start, stop = pointers.bounds(document)
                at = max(start, first)
                if start < stop:
                    spans.append((file, document, at - start, min(stop, first + count) - at))
        return spans

    def windows_of(self, file: int, documents: Sequence[int]) -> tuple[Ids, Ids]:
        """Returns the windows that may hold tokens of documents, and the other documents in these windows."""
        if not 0 <= file < len(self.files):
            raise OutOfDatasetError("file", f"must be in [0, {len(self.files)})", file)
        part, rings = self.files[file], self.rings
        pointers, (begin, stop) = part.index, part.sequences
        windows = [np.zeros(0, np.int64)]
        for document in documents:
            if not begin <= document < stop:
                problem = f"must be in [{begin}, {stop}), the documents of {part.name}"
                raise OutOfDatasetError("document", problem, document)
            first, end = (token - part.first for token in pointers.bounds(document))
            if first < end:
                windows.append(rings.windows_over(file, first, end))
        ids, others = np.unique(np.concatenate(windows)), set[int]()
        places = ids - rings.starts[file]
        # A window with the label of its last token, at any phase.
        seq_len, last = rings.spec.seq_len, (rings.spec.block_len - 1) * rings.spec.phase
        for run in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1) if ids.size else ():
            low, high = int(run[0]) * seq_len, (int(run[-1]) + 1) * seq_len + 1 + last
            for first, end in ((low, min(high, part.tokens)), (0, min(high - part.tokens, part.tokens))):
                numbers = pointers.sequences_of(part.first + first, part.first + end) if first < end else ()
                others.update(number for number in numbers if np.ptp(pointers.bounds(number)))
        return ids, np.array(sorted(others.difference(documents)), dtype=np.int64)

    def close(self) -> None:
        """Closes the open files."""
        self.opened.close()

    def _starts_in(self, files: Ids, begins: Ids, width: int) -> Ids:
        """Returns the positions in the flattened batch at which sequences of the index begin."""
        groups, shifts = [np.zeros(0, dtype=np.int64)], [0]
        for row, (file, begin) in enumerate(zip(files.tolist(), begins.tolist(), strict=True)):
            for at, first, count in self._pieces(file, begin):
                groups.append(self.files[file].index.between(first, first + count))
                shifts.append(row * width + at - first)
        starts: Ids = np.concatenate(groups) + np.repeat(shifts, [group.size for group in groups])
        return starts

    def _pieces(self, file: int, begin: int) -> list[tuple[int, int, int]]:
        """Returns the pieces of a window: offset in the window, first token in the file, and length."""
        part, width = self.files[file], self.rings.spec.seq_len + 1
        first, rest = part.first, part.tokens - begin
        if rest >= width:
            return [(0, first + begin, width)]
        return [(0, first + begin, rest), (rest, first, width - rest)]

    @cached_property
    def _byte_extents(self) -> list[tuple[int, int]]:
        """The offset and the size in bytes of the part of each file."""
        size = self.dtype.itemsize
        return [(file.begin, file.tokens * size) for file in self.files]

    def _parts(
        self, rows: Array, in_order: list[int], files: list[int], begins: list[int]
    ) -> Iterator[BytesRequest]:
        """Yields the bytes of each row, file by file; a row across the end of the ring has two parts."""
        size, extents = rows.itemsize, self._byte_extents
        # Slices of one memoryview: numpy takes several times as long to make a row and to get its address.
        flat, width = rows.data.cast("B"), rows.shape[1] * size
        for row in in_order:
            number, place, at = files[row], begins[row] * size, row * width
            start, total = extents[number]
            if total - place >= width:
                yield number, start + place, flat[at : at + width]
            else:
                seam = at + total - place
                yield number, start + place, flat[at:seam]
                yield number, start, flat[seam : at + width]


def _require_windows(rings: Rings, number: int) -> None:
    """Raises an error if too few tokens of a corpus fill blocks."""
    selected, corpus, spec = rings.corpus_of == number, rings.corpora[number], rings.spec
    tokens, windows = rings.tokens[selected], rings.windows[selected]
    total, lost = int(tokens.sum()), int(tokens[windows == 0].sum())
    place = "/".join(corpus.path) or shown(corpus.files[0].data)
    if not total:
        content = "no tokens" if spec.split is None else f"nothing of split {spec.split!r}"
        hint = "a split is rounded to whole sequences, or tokens: give the part more" if spec.split else ""
        raise DatasetError(place, f"gives {content} for part {spec.part!r}", hint=hint)
    longest = spec.block_len + (not spec.phase)
    if lost > MAX_LOST * total:
        files = f"{int((windows == 0).sum())} of its {len(windows)} files"
        problem = f"loses {lost} of {total} tokens: {files} hold fewer than {longest}"
        raise DatasetError(place, problem, hint="join files when tokenising, or use a shorter block_len")
    if lost > MUCH_LOST * total:
        _LOG.warning("%s: %d of %d tokens are in files shorter than a block", place, lost, total)
