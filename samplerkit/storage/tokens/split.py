"""Splits as Megatron says them: "969,30,1" for training, validation and test."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final, Literal, get_args

import numpy as np

from samplerkit.errors import ArgumentTypeError, ArgumentValueError

SplitPart = Literal["train", "valid", "test"]
PARTS: Final[tuple[SplitPart, ...]] = get_args(SplitPart)

Extent = tuple[float, float]
"""Where a part begins and ends, as shares of the whole."""


def shares_of(split: Any) -> tuple[Extent | None, Extent | None, Extent | None]:
    """Gives the shares that the three parts have; None for a part that does not exist.

    Args:
        split: up to three numbers in a text, which are divided by their sum.

    Raises:
        ArgumentTypeError: no text.
        ArgumentValueError: no numbers, more than three, or only zeros.

    Example:
        >>> shares_of("3,1")
        ((0, 0.75), (0.75, 1.0), None)

    Source: Megatron-LM's `--split`.
    """
    if not isinstance(split, str):
        raise ArgumentTypeError("split", "must be a text such as '969,30,1'", split)
    try:
        numbers = [float(number) for number in re.findall(r"[.0-9]+", split)]
    except ValueError:
        numbers = []
    if not 1 <= len(numbers) <= len(PARTS) or not sum(numbers) > 0 or not np.isfinite(sum(numbers)):
        raise ArgumentValueError("split", "must be up to three numbers", split, mend="as in '969,30,1'")
    numbers += [0.0] * (len(PARTS) - len(numbers))
    weights = (np.array(numbers) / np.sum(numbers)).tolist()
    # The first border is the integer 0, as Megatron adds them up.
    borders: list[float] = [0]
    for weight in weights:
        borders.append(borders[-1] + weight)
    train, valid, test = ((begin, end) if end > begin else None for begin, end in pairwise(borders))
    return train, valid, test


def range_of(share: Extent | None, count: int) -> tuple[int, int]:
    """Gives the first and the last but one of `count` things, sequences or tokens, that a share holds.

    Example:
        >>> range_of((0.969, 0.999), 400), range_of((0.999, 1.0), 400)
        ((388, 400), (400, 400))
    """
    if share is None:
        return 0, 0
    # Halves go to the even number.
    return round(share[0] * count), min(count, round(share[1] * count))
