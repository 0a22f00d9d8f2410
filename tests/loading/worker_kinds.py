"""How tests write the workers of a loader: processes by their number, threads as in "2 threads"."""

from __future__ import annotations

from typing import Any

THREADS: dict[str, Any] = {"num_workers": 2, "workers": "threads"}


def beside(workers: int | str) -> dict[str, Any]:
    """The options of a loader with these workers."""
    if isinstance(workers, int):
        return {"num_workers": workers}
    return {**THREADS, "num_workers": int(workers.split()[0])}
