"""The shuffle modes, by MindSpore's names."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np

from samplerkit.errors import ArgumentTypeError


class Shuffle(str, Enum):
    """How the samples of a dataset are shuffled.

    The values are MindSpore's. Wherever a mode is taken, `True` means GLOBAL, `False` means FALSE, and a
    mode's value ("files") does as well.

    Attributes:
        FALSE: as they stand.
        GLOBAL: all samples, over all files.
        PARTIAL: the files are shuffled, then consecutive blocks of `partial_size` samples of each lane.
        FILES: the files are shuffled, the samples in a file stand in order.
        INFILE: the files stand in order, the samples in each file are shuffled.
        ADAPTIVE: GLOBAL up to `adaptive_threshold` samples, PARTIAL above.

    Example:
        >>> Shuffle.parse(True), Shuffle.parse("files")
        (<Shuffle.GLOBAL: 'global'>, <Shuffle.FILES: 'files'>)
    """

    FALSE = "false"
    GLOBAL = "global"
    PARTIAL = "partial"
    FILES = "files"
    INFILE = "infile"
    ADAPTIVE = "adaptive"

    @classmethod
    def parse(cls, value: Any, place: str = "shuffle") -> Shuffle:
        """Understands a mode, a mode's value, or a bool.

        Raises:
            ArgumentTypeError: it is none of these.
        """
        if isinstance(value, bool | np.bool_):
            return cls.GLOBAL if value else cls.FALSE
        if isinstance(value, str):
            for mode in cls:
                if mode.value == value:
                    return mode
        modes = ", ".join(mode.value for mode in cls)
        raise ArgumentTypeError(place, f"must be a bool or one of {modes}", value)


DEFAULT_PARTIAL_SIZE = 1_000_000
"""Samples in a block of PARTIAL, as in MindSpore."""

DEFAULT_ADAPTIVE_THRESHOLD = 100_000_000
"""The largest dataset that ADAPTIVE shuffles GLOBAL, as in MindSpore."""
