"""The source of a token dataset: the opened files, the part of each that is read, and its windows.

The positions of windows are computed: each file is a ring that begins at a phase.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from samplerkit.errors import ArgumentValueError, DatasetError, OutOfDatasetError
from samplerkit.order.caching import cached_property
from samplerkit.order.dataset_protocol import fingerprint_of
from samplerkit.order.intervals import edges_of
from samplerkit.order.keys import Key, keyed_hash, path_number, scaled
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.files.stored import BytesRequest
from samplerkit.storage.remote.storage import RemoteStorage
from samplerkit.storage.tokens.arguments import Corpus, Dtype, WindowSpec
from samplerkit.storage.tokens.token_files import OpenedFiles, TokenFile
from samplerkit.storage.urls import shown

RULE: Final = "tokens-1"
"""The version of the rules for windows and phases; it is part of the fingerprint."""

PASS: Final = 1 << 40
"""The number added to the epoch for each further pass over a source within an epoch."""


@dataclass(frozen=True, eq=False)
class Rings:
    """The windows of token files.

    Args:
        tokens: the number of tokens of each file, T; shape (files,).
        corpora: the files by the names that the user gave.
        spec: the lengths of windows and blocks, S and K. Without a phase, windows begin at the first token,
            and files are not rings.
    """

    tokens: Ids
    corpora: tuple[Corpus, ...]
    spec: WindowSpec

    @cached_property
    def corpus_of(self) -> Ids:
        """The corpus of each file, shape (files,)."""
        return np.repeat(np.arange(len(self.corpora)), [len(corpus.files) for corpus in self.corpora])

    @cached_property
    def blocks(self) -> Ids:
        """The number of blocks of each file, shape (files,)."""
        return np.maximum(self.tokens - (not self.spec.phase), 0) // self.spec.block_len

    @cached_property
    def windows(self) -> Ids:
        """The number of windows of each file, shape (files,)."""
        return self.blocks * (self.spec.block_len // self.spec.seq_len)

    @cached_property
    def starts(self) -> Ids:
        """The first window of each file and, last, the number of windows; shape (files + 1,)."""
        return edges_of(self.windows)

    def layout(self, sizes: Ids) -> Layout:
        """Returns the layout of files of these sizes, which is a tree if corpora have names."""
        ends = np.cumsum([len(corpus.files) for corpus in self.corpora])[:-1]
        shares = zip(self.corpora, np.split(sizes, ends), strict=True)
        return _tree([(corpus.path, Layout(share, corpus.names)) for corpus, share in shares])

    def phases(self, files: Ids, epochs: Ids | int) -> Ids:
        """Returns the token at which the first window of each file begins, in [0, K).

        Args:
            files: the numbers of files, shape (n,).
            epochs: the epoch of the source of each, shape (n,), or one for all: the epoch, plus 2^40 for each
                further pass within it.
        """
        if not self.spec.phase:
            return np.zeros(files.size, dtype=np.int64)
        epoch_of, phase_of = self._last_read[0]
        phases, is_other = phase_of[files], epoch_of[files] != epochs
        if not np.count_nonzero(is_other):
            return phases
        corpora, epochs = self.corpus_of[files], np.broadcast_to(epochs, files.shape)
        epoch_of, phase_of = epoch_of.copy(), phase_of.copy()
        for epoch, corpus in {*zip(epochs[is_other].tolist(), corpora[is_other].tolist(), strict=True)}:
            all_files = np.flatnonzero(self.corpus_of == corpus)
            epoch_of[all_files], phase_of[all_files] = epoch, self._compute(epoch, corpus, all_files.size)
            selected = (epochs == epoch) & (corpora == corpus)
            phases[selected] = phase_of[files[selected]]
        self._last_read[0] = epoch_of, phase_of
        return phases

    def at(self, ids: Ids, epochs: Ids | int) -> tuple[Ids, Ids]:
        """Returns the file and the first token of each window; after the last token follows token 0.

        Args:
            ids: the ids of windows, in range, shape (n,).
            epochs: the epoch of the source of each, as for `phases`.
        """
        if self.tokens.size == 1:  # a single file needs no look-up
            files, begins, tokens = np.zeros(ids.size, dtype=np.int64), ids * self.spec.seq_len, self.tokens
        else:
            files = self.files_of(ids)
            begins, tokens = (ids - self.starts[files]) * self.spec.seq_len, self.tokens[files]
        begins += self.phases(files, epochs)
        return files, begins % tokens

    def files_of(self, ids: Ids) -> Ids:
        """Returns the file of each window."""
        return self.starts.searchsorted(ids, side="right") - 1

    def corpora_of(self, ids: Ids) -> Ids:
        """Returns the corpus of each window."""
        return self.corpus_of[self.files_of(ids)]

    def windows_over(self, file: int, first: int, end: int) -> Ids:
        """Returns the windows that hold some of the tokens in [first, end) at any phase.

        The label of a window's last token counts, since it is read with the window.
        """
        size, last = self.spec.seq_len, (self.spec.block_len - 1) * self.spec.phase
        ranges = []
        # On the ring, a window continues at the first token after the last one.
        for turn in (0, int(self.tokens[file])) if self.spec.phase else (0,):
            low = max(0, (first + turn - last - size - 1) // size + 1)
            high = min(int(self.windows[file]), -(-(end + turn) // size))
            ranges.append(np.arange(low, max(low, high)))
        windows: Ids = np.unique(np.concatenate(ranges)) + self.starts[file]
        return windows

    @cached_property
    def _last_read(self) -> list[tuple[Ids, Ids]]:
        """The epoch in which each file was last read, and its phase in it.

        Most batches are read with these. They are one value, so that other threads see a consistent state.
        """
        return [(np.full(self.tokens.size, -1), np.zeros(self.tokens.size, dtype=np.int64))]

    def _compute(self, epoch: int, corpus: int, files: int) -> Ids:
        """Returns the phases of all files of a corpus."""
        number, epoch = divmod(epoch, PASS)
        key = Key(self.spec.seed, epoch, 0, "token-phase")
        words = key.words(3, path_number(self.corpora[corpus].path), number)
        return scaled(keyed_hash(words, np.arange(files)), self.spec.block_len)


def _tree(leaves: Sequence[tuple[tuple[str, ...], Layout]]) -> Layout:
    if not leaves[0][0]:
        return leaves[0][1]
    parts: dict[str, list[tuple[tuple[str, ...], Layout]]] = {}
    for path, leaf in leaves:
        parts.setdefault(path[0], []).append((path[1:], leaf))
    return Layout.tree({name: _tree(inner) for name, inner in parts.items()})


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
        limits = np.iinfo(dtype)
        if isinstance(spec.documents, int) and not limits.min <= spec.documents <= limits.max:
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
    def fingerprint(self) -> str:
        """A string that changes with everything that the order of tokens depends on."""
        rings, spec = self.rings, self.rings.spec
        phase = (spec.block_len, spec.seed) if spec.phase else (None, None)
        corpora = [corpus.path for corpus in rings.corpora], rings.corpus_of.tolist()
        parts = [file.first for file in self.files], rings.tokens.tolist()
        return fingerprint_of(RULE, *phase, self.dtype.str, *corpora, *parts)

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
        problem = f"holds at byte {at} a token that is not in [0, {vocab_size}), vocab_size of the tokenizer"
        hint = f"give the dtype and the vocab_size that it was written with; it is read as {self.dtype}"
        raise DatasetError(file.name, problem, int(rows[row, place]), hint=hint)

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

    def _parts(
        self, rows: Array, in_order: list[int], files: list[int], begins: list[int]
    ) -> Iterator[BytesRequest]:
        """Yields the bytes of each row, file by file; a row across the end of the ring has two parts."""
        size, parts = rows.itemsize, self.files
        # Slices of one memoryview: numpy takes several times as long to make a row and to get its address.
        flat, width = rows.data.cast("B"), rows.shape[1] * size
        for row in in_order:
            number, place, at = files[row], begins[row] * size, row * width
            start, total = parts[number].begin, parts[number].tokens * size
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
        problem = f"has no tokens for split={spec.split!r}, part={spec.part!r}"
        hint = "a split is rounded to whole sequences, or tokens: give the part more; or leave the file out"
        raise DatasetError(place, problem, hint=hint)
    longest = spec.block_len + (not spec.phase)
    if lost > MAX_LOST * total:
        files = f"{int((windows == 0).sum())} of its {len(windows)} files"
        problem = f"loses {lost} of {total} tokens: {files} hold fewer than {longest}"
        raise DatasetError(place, problem, hint="join files when tokenising, or use a shorter block_len")
    if lost > MUCH_LOST * total:
        _LOG.warning("%s: %d of %d tokens are in files shorter than a block", place, lost, total)
