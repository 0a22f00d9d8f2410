"""Computes the positions of windows of tokens: each file is a ring that begins at a phase."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from samplerkit.order.caching import cached_property
from samplerkit.order.intervals import edges_of
from samplerkit.order.keys import Key, keyed_hash, path_number, scaled
from samplerkit.order.typing import Ids

RULE: Final = "tokens-1"
"""The version of the rules for windows and phases; it is part of the fingerprint."""

PASS: Final = 1 << 40
"""The number added to the epoch for each further pass over a source within an epoch."""

_MAX_FILES = 1 << 18
"""The largest number of files for which the phases of all are computed together and kept."""


@final
@dataclass(frozen=True, eq=False)
class Rings:
    """The windows of token files.

    Args:
        tokens: the number of tokens of each file, T; shape (files,).
        corpora: the names that lead to each corpus of a tree; one empty name if there is one corpus.
        corpus_of: the corpus of each file, shape (files,).
        place_of: the number of each file in its corpus, shape (files,).
        seq_len: the number of tokens of a window, S.
        block_len: the number of tokens of a block, K.
        phase: whether each epoch begins at another token. If not, windows begin at the first token, and files
            are not rings.
        seed: the seed of the phases.
    """

    tokens: Ids
    corpora: tuple[tuple[str, ...], ...]
    corpus_of: Ids
    place_of: Ids
    seq_len: int
    block_len: int
    phase: bool
    seed: int

    @cached_property
    def blocks(self) -> Ids:
        """The number of blocks of each file, shape (files,)."""
        return np.maximum(self.tokens - (not self.phase), 0) // self.block_len

    @cached_property
    def windows(self) -> Ids:
        """The number of windows of each file, shape (files,)."""
        return self.blocks * (self.block_len // self.seq_len)

    @cached_property
    def starts(self) -> Ids:
        """The first window of each file and, last, the number of windows; shape (files + 1,)."""
        return edges_of(self.windows)

    def of_first(self, corpora: int, files: int) -> Rings:
        """Returns the windows of the first `corpora` corpora, which have `files` files."""
        first = {name: getattr(self, name)[:files] for name in ("tokens", "corpus_of", "place_of")}
        return replace(self, corpora=self.corpora[:corpora], **first)

    def phases(self, files: Ids, epochs: Ids | int) -> Ids:
        """Returns the token at which the first window of each file begins, in [0, K).

        Args:
            files: the numbers of files, shape (n,).
            epochs: the epoch of the source of each, shape (n,), or one for all: the epoch, plus 2^40 for each
                further pass within it.
        """
        if not self.phase or not files.size:
            return np.zeros(files.size, dtype=np.int64)
        common, epoch_of, phase_of = self._last_read[0]
        if (isinstance(epochs, int) and epochs == common) or not np.count_nonzero(epoch_of[files] != epochs):
            return phase_of[files]
        corpora, epochs = self.corpus_of[files], np.broadcast_to(epochs, files.shape)
        pairs = {*zip(epochs.tolist(), corpora.tolist(), strict=True)}
        phases = np.empty(files.size, dtype=np.int64)
        for epoch, corpus in pairs:
            selected = (epochs == epoch) & (corpora == corpus)
            phases[selected] = self._compute(epoch, corpus, files[selected])
        if self.tokens.size <= _MAX_FILES and len(pairs) == len({corpus for _, corpus in pairs}):
            epoch_of, phase_of = epoch_of.copy(), phase_of.copy()
            for epoch, corpus in pairs:
                all_files = np.flatnonzero(self.corpus_of == corpus)
                epoch_of[all_files], phase_of[all_files] = epoch, self._compute(epoch, corpus, all_files)
            self._last_read[0] = (epoch if (epoch_of == epoch).all() else -1), epoch_of, phase_of
        return phases

    def at(self, ids: Ids, epochs: Ids | int) -> tuple[Ids, Ids]:
        """Returns the file and the first token of each window; after the last token follows token 0.

        Args:
            ids: the ids of windows, in range, shape (n,).
            epochs: the epoch of the source of each, as for `phases`.
        """
        if self.tokens.size == 1:  # a single file needs no look-up
            files, begins, tokens = np.zeros(ids.size, dtype=np.int64), ids * self.seq_len, self.tokens
        else:
            files = self.files_of(ids)
            begins, tokens = (ids - self.starts[files]) * self.seq_len, self.tokens[files]
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
        size, last = self.seq_len, (self.block_len - 1) * self.phase
        ranges = []
        # On the ring, a window continues at the first token after the last one.
        for turn in (0, int(self.tokens[file])) if self.phase else (0,):
            low = max(0, (first + turn - last - size - 1) // size + 1)
            high = min(int(self.windows[file]), -(-(end + turn) // size))
            ranges.append(np.arange(low, max(low, high)))
        windows: Ids = np.unique(np.concatenate(ranges)) + self.starts[file]
        return windows

    @cached_property
    def _last_read(self) -> list[tuple[int, Ids, Ids]]:
        """The epoch of all files, or -1 if they differ; and the last-read epoch and the phase of each file.

        Most batches are read with these. They are one value, so that other threads see a consistent state.
        """
        return [(-1, np.full(self.tokens.size, -1), np.zeros(self.tokens.size, dtype=np.int64))]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_last_read"}

    def _compute(self, epoch: int, corpus: int, files: Ids) -> Ids:
        """Returns the phases of files of a corpus."""
        number, epoch = divmod(epoch, PASS)
        key = Key(self.seed, epoch, 0, "token-phase")
        words = key.words(3, path_number(self.corpora[corpus]), number)
        places = self.place_of[files]
        return scaled(keyed_hash(words, places), self.block_len)
