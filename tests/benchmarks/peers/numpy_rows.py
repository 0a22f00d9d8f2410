"""Rows in memory, for the peers that read arrays of numpy."""

from typing import Any

import numpy as np

from tests.benchmarks.peers.cases import WIDTH


class Rows:
    """Rows of float32."""

    def __init__(self, count: int) -> None:
        self.rows = np.zeros((count, WIDTH), dtype=np.float32)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]
