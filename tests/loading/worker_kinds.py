"""How tests write the workers of a loader: processes by their number, threads as in "2 threads"."""

from __future__ import annotations

from typing import Any

import pytest

THREADS: dict[str, Any] = {"num_workers": 2, "workers": "threads"}

over_threads_too = pytest.mark.usefixtures("beside_or_not")
"""Of a test whose loaders of numbers are told no workers: it runs in the loop, over threads, over both."""


def beside(workers: int | str) -> dict[str, Any]:
    """The options of a loader with these workers."""
    if isinstance(workers, int):
        return {"num_workers": workers}
    return {**THREADS, "num_workers": int(workers.split()[0])}
