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

    def phases(self, files: Ids, epoch: int, passes: Ids | None = None) -> Ids:
        """Gives the token at which the first window begins, in [0, K).

        Args:
            files: their numbers, shape (n,).
            epoch: the epoch.
            passes: in which pass over its source each is, shape (n,); None for 0.
        """
        if not self.phase:
            return np.zeros(files.size, dtype=np.int64)
        if passes is not None and not passes.any():
            passes = None
        if passes is None and len(self.corpora) == 1:
            words = _words(self.seed, epoch, 0, self.corpora[0])
            return scaled(keyed_hash(words, self.place_of[files]), self.block_len)
        corpora, found = self.corpus_of[files], np.empty(files.size, dtype=np.int64)
        pairs = corpora if passes is None else corpora + passes * len(self.corpora)
        for pair in np.unique(pairs).tolist():
            number, corpus = divmod(pair, len(self.corpora))
            mine = pairs == pair
            words = _words(self.seed, epoch, number, self.corpora[corpus])
            found[mine] = scaled(keyed_hash(words, self.place_of[files[mine]]), self.block_len)
        return found

    def at(self, ids: Ids, epoch: int, passes: Ids | None = None) -> tuple[Ids, Ids]:
        """Gives the file and the first token of each window; the window goes on at token 0 behind the last.

        Args:
            ids: of windows, in range, shape (n,).
            epoch: the epoch.
            passes: in which pass over its source each is, shape (n,); None for 0.
        """
        files = interval_of(self.starts, ids)
        begins = self.phases(files, epoch, passes) + (ids - self.starts[files]) * self.seq_len
        tokens = self.tokens[files]
        return files, np.where(begins < tokens, begins, begins - tokens)


@lru_cache(maxsize=4096)
def _words(seed: int, epoch: int, number: int, corpus: tuple[str, ...]) -> Words:
    """The key of the phases of a corpus, in a pass over it."""
    return Key(seed, epoch, 0, "token-phase").words(3, path_number(corpus), number)
