"""How one document lies in packs: the parts that fill one, and what is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, final, get_args

import numpy as np

from samplerkit.order.typing import Ids

LongDocument = Literal["split", "raise", "drop", "truncate"]
"""What becomes of a document that is longer than a pack."""

LONG_DOCUMENTS: Final = get_args(LongDocument)


@final
@dataclass(frozen=True)
class Fit:
    """How documents lie in packs.

    Args:
        seq_len: tokens of a pack.
        multiple: lengths are rounded up to it, which divides `seq_len`.
        long: what becomes of a document that is longer than a pack.

    Example:
        >>> Fit(8, 2, "split").parts(np.array([3, 8, 16, 17, 0]))
        (array([0, 0, 1, 2, 0]), array([3, 8, 8, 1, 0]))
    """

    seq_len: int
    multiple: int
    long: LongDocument

    @property
    def capacity(self) -> int:
        """How many multiples a pack holds."""
        return self.seq_len // self.multiple

    def parts(self, lengths: Ids) -> tuple[Ids, Ids]:
        """Gives how many packs a document of each length fills alone, and the tokens that are left of it.

        Nothing is left of one that is left out: without tokens, or too long.
        """
        whole = np.maximum(lengths - 1, 0) // self.seq_len
        if self.long == "split":
            return whole, lengths - whole * self.seq_len
        left = np.minimum(lengths, self.seq_len) if self.long == "truncate" else np.where(whole, 0, lengths)
        return np.zeros_like(whole), left

    def is_last(self, lengths: Ids) -> np.ndarray[Any, Any]:
        """Tells whether a document ends with what is left of it: not where it is truncated."""
        return (
            np.asarray(lengths <= self.seq_len) if self.long == "truncate" else np.ones(lengths.shape, bool)
        )

    def sizes(self, lengths: Ids) -> Ids:
        """Gives how many multiples each length takes in a pack."""
        return -(-lengths // self.multiple)
