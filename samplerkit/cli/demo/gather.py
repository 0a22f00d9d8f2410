"""Arrays of different lengths from all ranks to all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.distributed

Ids = np.ndarray[Any, np.dtype[np.int64]]


def gather(mine: Ids, device: torch.device) -> list[Ids]:
    """Collects an int64 array of each rank on every rank.

    torch's `all_gather_object` would do it in one line, by pickle, which we do not use.

    Args:
        mine: this rank's array, of shape (length,).
        device: where the process group's tensors live.

    Returns:
        The arrays, rank by rank.
    """
    lengths = _gather_equal(torch.tensor([mine.size], device=device))
    padded = torch.zeros(max(int(length) for length in lengths), dtype=torch.int64)
    padded[: mine.size] = torch.from_numpy(mine)
    rows = _gather_equal(padded.to(device))
    return [row[: int(length)].cpu().numpy() for row, length in zip(rows, lengths, strict=True)]


def _gather_equal(mine: torch.Tensor) -> list[torch.Tensor]:
    rows = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(rows, mine)
    return rows
