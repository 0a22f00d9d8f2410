"""Which worker of a loader this process is."""

from __future__ import annotations

import sys
from typing import Any


def this_worker() -> tuple[int, int]:
    """Gives the number of this worker, and how many there are; (0, 1) outside of a worker.

    Example:
        >>> this_worker()
        (0, 1)
    """
    # Who has not imported torch is no worker of its loader: files are read without waiting for it.
    data: Any = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)
