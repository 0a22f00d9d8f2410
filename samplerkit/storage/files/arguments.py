"""What a dataset of files is given, checked: numbers, ids, and how URLs are fetched."""

from __future__ import annotations

from typing import Any

import numpy as np

from samplerkit.errors import ArgumentTypeError
from samplerkit.order.typing import Ids
from samplerkit.storage.remote.options import RemoteOptions


def checked_ids(ids: Any) -> Ids:
    """Takes the ids of a batch.

    Raises:
        ArgumentTypeError: no flat list of integers.
    """
    wanted = np.asarray(ids)
    if wanted.size == 0:
        return np.zeros(0, dtype=np.int64)
    if wanted.ndim != 1 or wanted.dtype.kind not in "iu":
        raise ArgumentTypeError("ids", "must be a flat list of integers", ids)
    return wanted.astype(np.int64, copy=False)


def checked_remote(remote: Any) -> RemoteOptions | None:
    """Takes what a user says of URLs: options, a mapping of them, None for the defaults, or False.

    Returns:
        The options; None where URLs are to be left alone.

    Raises:
        ArgumentTypeError: something else.
        ArgumentValueError: the mapping has an unknown key.
    """
    return None if remote is False else RemoteOptions.of(remote)
