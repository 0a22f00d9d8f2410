"""Where the windows of tokens lie: round each file as a ring, from a phase on. Nothing but arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from samplerkit.order.caching import cached_property
from samplerkit.order.keys import Key, keyed_hash, path_number, scaled
from samplerkit.order.typing import Ids

RULE: Final = "tokens-1"
"""The version of the rules of windows and of phases; another one is another fingerprint."""

PASS: Final = 1 << 40
"""What a further pass over a source within an epoch adds to the number of its epoch."""

_MOST_FILES = 1 << 18
"""Files up to which the phases of all are computed at once, and kept."""


@final
@dataclass(frozen=True, eq=False)
class Rings:
    """The windows of files of tokens.

    Args:
        tokens: how many each file has, T; shape (files,).
        corpora: the names that lead to each corpus of a tree; one empty name where there is one corpus.
        corpus_of: the corpus of each file, shape (files,).
        place_of: the number of each file in its corpus, shape (files,).
        seq_len: tokens of a window, S.
        block_len: tokens of a block, K.
        phase: whether each epoch begins at another token. Else windows stand from the first token on, and
            there is no ring.
        seed: of the phases.
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
        """How many blocks each file has, shape (files,)."""
        return np.maximum(self.tokens - (not self.phase), 0) // self.block_len

    @cached_property
    def windows(self) -> Ids:
        """How many windows each file has, shape (files,)."""
        return self.blocks * (self.block_len // self.seq_len)

    @cached_property
    def starts(self) -> Ids:
        """The first window of each file and, last, how many there are; shape (files + 1,)."""
        return np.cumsum([0, *self.windows.tolist()], dtype=np.int64)

    def of_first(self, corpora: int, files: int) -> Rings:
        """Returns the windows of the first corpora, which have so many files."""
        first = {name: getattr(self, name)[:files] for name in ("tokens", "corpus_of", "place_of")}
        return replace(self, corpora=self.corpora[:corpora], **first)

    def phases(self, files: Ids, epochs: Ids | int) -> Ids:
        """Returns the token at which the first window begins, in [0, K).

        Args:
            files: their numbers, shape (n,).
            epochs: in which epoch of its source each is read, shape (n,), or one for all: the epoch, and 2^40
                for each further pass within it.
        """
        if not self.phase or not files.size:
            return np.zeros(files.size, dtype=np.int64)
        of_all, known, of_files = self._last_read[0]
        if (isinstance(epochs, int) and epochs == of_all) or not np.count_nonzero(known[files] != epochs):
            return of_files[files]
        corpora, epochs = self.corpus_of[files], np.broadcast_to(epochs, files.shape)
        read = {*zip(epochs.tolist(), corpora.tolist(), strict=True)}
        found = np.empty(files.size, dtype=np.int64)
        for epoch, corpus in read:
            mine = (epochs == epoch) & (corpora == corpus)
            found[mine] = self._computed(epoch, corpus, files[mine])
        if self.tokens.size <= _MOST_FILES and len(read) == len({corpus for _, corpus in read}):
            known, of_files = known.copy(), of_files.copy()
            for epoch, corpus in read:
                all_files = np.flatnonzero(self.corpus_of == corpus)
                known[all_files], of_files[all_files] = epoch, self._computed(epoch, corpus, all_files)
            self._last_read[0] = (epoch if (known == epoch).all() else -1), known, of_files
        return found

    def at(self, ids: Ids, epochs: Ids | int) -> tuple[Ids, Ids]:
        """Returns the file and the first token of each window; it continues at token 0 behind the last.

        Args:
            ids: of windows, in range, shape (n,).
            epochs: of the source of each, as for `phases`.
        """
        if self.tokens.size == 1:  # of which there is nothing to look up
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
        """Returns the windows that hold some of the tokens from `first` up to before `end`, at some phase.

        The label of the last token of a window counts, as it is read with it.
        """
        size, last = self.seq_len, (self.block_len - 1) * self.phase
        found = []
        # Round the ring a window behind the last token continues at the first one.
        for turn in (0, int(self.tokens[file])) if self.phase else (0,):
            low = max(0, (first + turn - last - size - 1) // size + 1)
            high = min(int(self.windows[file]), -(-(end + turn) // size))
            found.append(np.arange(low, max(low, high)))
        windows: Ids = np.unique(np.concatenate(found)) + self.starts[file]
        return windows

    @cached_property
    def _last_read(self) -> list[tuple[int, Ids, Ids]]:
        """The epoch of all files, or -1; and of each file the one in which it was read last, and its phase.

        Batches are mostly read by it. It is one value, so that another thread finds all of one moment.
        """
        return [(-1, np.full(self.tokens.size, -1), np.zeros(self.tokens.size, dtype=np.int64))]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_last_read"}

    def _computed(self, epoch: int, corpus: int, files: Ids) -> Ids:
        """Returns the phases of files of a corpus."""
        number, epoch = divmod(epoch, PASS)
        key = Key(self.seed, epoch, 0, "token-phase")
        words = key.words(3, path_number(self.corpora[corpus]), number)
        places = self.place_of[files]
        return scaled(keyed_hash(words, places), self.block_len)
