"""Computes the positions of windows of tokens: each file is a ring that begins at a phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from samplerkit.order.caching import cached_property
from samplerkit.order.intervals import edges_of
from samplerkit.order.keys import Key, keyed_hash, path_number, scaled
from samplerkit.order.layout import Layout
from samplerkit.order.typing import Ids
from samplerkit.storage.tokens.arguments import Corpus, WindowSpec

RULE: Final = "tokens-1"
"""The version of the rules for windows and phases; it is part of the fingerprint."""

PASS: Final = 1 << 40
"""The number added to the epoch for each further pass over a source within an epoch."""


@final
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
