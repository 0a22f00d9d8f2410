"""Datasets whose samples nobody has counted, for their files lie elsewhere and would have to be fetched."""

from __future__ import annotations

from typing import Any

from samplerkit.errors import DatasetError

MEND = (
    "call dataset.save_lengths('lengths.json') once, or of tar shards samplerkit index, which writes it too, "
    "and say lengths: lengths.json"
)


def is_counted(dataset: Any) -> bool:
    """Whether a dataset can tell how many samples it has without fetching files that lie elsewhere."""
    return bool(getattr(dataset, "is_layout_known", True)) or not getattr(dataset, "is_remote", True)


def require_counted(dataset: Any) -> None:
    """Lets a dataset pass whose samples are counted, or can be where they lie.

    What is planned, looked up or checked is computed from numbers; to fetch all files for these is not what
    anyone expects of it.

    Raises:
        DatasetError: files would have to be fetched.
    """
    if not is_counted(dataset):
        problem = "are not told, and to count the samples all files would have to be fetched"
        raise DatasetError("lengths", problem, mend=MEND)
