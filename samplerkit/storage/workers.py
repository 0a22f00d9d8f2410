"""Which worker of a loader this process is."""

from __future__ import annotations

import sys
from typing import Any


def is_worker() -> bool:
    """Whether this process is a worker of a loader.

    Example:
        >>> is_worker()
        False
    """
    return _info() is not None


def this_worker() -> tuple[int, int]:
    """Returns the number of this worker, and how many there are; (0, 1) outside of a worker.

    Example:
        >>> this_worker()
        (0, 1)
    """
    info = _info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def _info() -> Any:
    # Who has not imported torch is no worker of its loader: files are read without waiting for it.
    data: Any = sys.modules.get("torch.utils.data")
    return None if data is None else data.get_worker_info()
