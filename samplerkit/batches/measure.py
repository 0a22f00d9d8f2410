"""How samples are measured in a plan: their lengths as they are counted, and what they are padded to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.batches.lengths import SampleLengths
from samplerkit.order.typing import Ids


@final
@dataclass(frozen=True, eq=False, repr=False)
class Measure:
    """What a plan knows of its samples.

    Args:
        lengths: of the samples; the numbers of their keys for batches by keys; None where nothing is known.
        padded: rounds lengths up to what they are padded to; None where they are not rounded.
        longest: to which longer samples are truncated; None where none are.
        upper: gives the upper end of the bucket in which a length lies; None where there are none. What is
            longer than all of them stays as it is.
        most: gives how many samples a batch may hold whose longest is so long; None where nothing limits it.
        keys: by their numbers, for batches by keys.
        labels: of the samples, for batches by classes.
        pack: the tokens of a pack; None where batches are no packs.
        multiple: to a multiple of it the parts in a pack are rounded up.
    """

    lengths: SampleLengths | None = None
    padded: Callable[[Ids], Ids] | None = None
    longest: int | None = None
    upper: Callable[[Ids], Ids] | None = None
    most: Callable[[Ids], Ids] | None = None
    keys: tuple[Any, ...] | None = None
    labels: np.ndarray[Any, Any] | None = None
    pack: int | None = None
    multiple: int = 1

    def counted(self, ids: Ids) -> Ids:
        """Gives the lengths of samples as they are counted: truncated ones as what is left of them."""
        if self.lengths is None:
            return np.ones(ids.size, dtype=np.int64)
        found = self.lengths.at(ids)
        return found if self.longest is None else np.minimum(found, self.longest)

    def tokens(self, ids: Ids) -> Ids:
        """Gives the tokens of each sample; 1 where no lengths are known."""
        if self.lengths is None or self.keys is not None:
            return np.ones(ids.size, dtype=np.int64)
        found = self.counted(ids)
        return found if found.ndim == 1 else found.sum(axis=1)

    def padded_tokens(self, ids: Ids, edges: Ids) -> Ids:
        """Gives the padded tokens of batches, whose samples stand one batch after another."""
        counts = np.diff(edges)
        if not ids.size or self.lengths is None or self.keys is not None:
            return counts
        longest = self.rounded(np.maximum.reduceat(self.counted(ids), edges[:-1]))
        return counts * (longest if longest.ndim == 1 else longest.sum(axis=1))

    def shape(self, ids: Ids, *, of_bucket: bool = False) -> tuple[Any, ...]:
        """Gives the number of samples of a batch, and what they are padded to, there or in its bucket."""
        if self.lengths is None:
            return (ids.size,)
        if self.keys is not None:
            key = self.keys[int(self.lengths.at(ids[:1])[0])]
            return (ids.size, *key) if isinstance(key, tuple) else (ids.size, key)
        longest = self.counted(ids).max(axis=0, keepdims=True)
        if of_bucket and self.upper is not None:
            longest = self.upper(longest)
        longest = self.rounded(longest)
        return (ids.size, *longest.reshape(-1).tolist())

    def rounded(self, lengths: Ids) -> Ids:
        """Rounds lengths up to what they are padded to."""
        return lengths if self.padded is None else self.padded(lengths)

    def __repr__(self) -> str:
        return "no lengths" if self.lengths is None else f"lengths {self.lengths.digest}"
