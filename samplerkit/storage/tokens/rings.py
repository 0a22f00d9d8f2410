"""Where the windows of tokens lie: round each file as a ring, from a phase on. Nothing but arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

import numpy as np

from samplerkit.order.intervals import interval_of
from samplerkit.order.keys import Key, keyed_hash, path_number, scaled
from samplerkit.order.once import once
from samplerkit.order.typing import Ids, Words

RULE: Final = "tokens-1"
"""The version of the rules of windows and of phases; another one is another fingerprint."""

PASS: Final = 1 << 40
"""What a further pass over a source within an epoch adds to the number of its epoch."""


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

    @once
    def blocks(self) -> Ids:
        """How many blocks each file has, shape (files,)."""
        return np.maximum(self.tokens - (not self.phase), 0) // self.block_len

    @once
    def windows(self) -> Ids:
        """How many windows each file has, shape (files,)."""
        return self.blocks * (self.block_len // self.seq_len)

    @once
    def starts(self) -> Ids:
        """The first window of each file and, last, how many there are; shape (files + 1,)."""
        return np.cumsum([0, *self.windows.tolist()], dtype=np.int64)

    def phases(self, files: Ids, epochs: Ids) -> Ids:
        """Gives the token at which the first window begins, in [0, K).

        Args:
            files: their numbers, shape (n,).
            epochs: in which epoch of its source each is read, shape (n,): the epoch, and 2^40 for each
                further pass within it.
        """
        if not self.phase or not files.size:
            return np.zeros(files.size, dtype=np.int64)
        if len(self.corpora) == 1 and (epochs == epochs[0]).all():
            words = _words(self.seed, int(epochs[0]), self.corpora[0])
            return scaled(keyed_hash(words, self.place_of[files]), self.block_len)
        corpora, found = self.corpus_of[files], np.empty(files.size, dtype=np.int64)
        for epoch, corpus in {*zip(epochs.tolist(), corpora.tolist(), strict=True)}:
            mine = (epochs == epoch) & (corpora == corpus)
            words = _words(self.seed, epoch, self.corpora[corpus])
            found[mine] = scaled(keyed_hash(words, self.place_of[files[mine]]), self.block_len)
        return found

    def at(self, ids: Ids, epochs: Ids) -> tuple[Ids, Ids]:
        """Gives the file and the first token of each window; the window goes on at token 0 behind the last.

        Args:
            ids: of windows, in range, shape (n,).
            epochs: of the source of each, as for `phases`.
        """
        files = interval_of(self.starts, ids)
        begins = self.phases(files, epochs) + (ids - self.starts[files]) * self.seq_len
        tokens = self.tokens[files]
        return files, np.where(begins < tokens, begins, begins - tokens)


@lru_cache(maxsize=4096)
def _words(seed: int, epoch: int, corpus: tuple[str, ...]) -> Words:
    """The key of the phases of a corpus, in an epoch of it."""
    number, epoch = divmod(epoch, PASS)
    return Key(seed, epoch, 0, "token-phase").words(3, path_number(corpus), number)
