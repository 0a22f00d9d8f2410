"""Which worker of a loader this process is."""

from __future__ import annotations

import torch.utils.data


def this_worker() -> tuple[int, int]:
    """Gives the number of this worker, and how many there are; (0, 1) outside of a worker.

    Example:
        >>> this_worker()
        (0, 1)
    """
    info = torch.utils.data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)
