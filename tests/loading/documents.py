"""Documents whose tokens are all different."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

SIZES = np.clip(np.random.default_rng(0).lognormal(3, 1, 120), 0, 300).astype(np.int64)
SIZES[7] = 0


def document(id: int) -> torch.Tensor:
    """The tokens of a document, which no other one has."""
    return torch.arange(1000 * id + 1, 1000 * id + 1 + int(SIZES[id]))


EVERY_TOKEN = Counter(token for id in range(SIZES.size) for token in document(id).tolist())


class Documents:
    """Documents that are read as a whole."""

    def __init__(self, lengths: Any = SIZES, give: Callable[[int], Any] = document) -> None:
        self.lengths, self.give = lengths, give
        self.read: list[int] = []

    def __len__(self) -> int:
        return SIZES.size

    def __getitem__(self, id: int) -> Any:
        self.read.append(id)
        return self.give(id)


class Parts(Documents):
    """Documents that give the requested parts."""

    def __getsegments__(self, segments: np.ndarray) -> list[torch.Tensor]:
        assert segments.dtype == np.int64
        assert segments.shape[1:] == (3,)
        return [document(id)[start : start + length] for id, start, length in segments.tolist()]


def tokens_of(batch: dict[str, Any]) -> list[int]:
    return batch["input_ids"][batch["segment_ids"] > 0].tolist()
