"""Stages: the steps of a delivery whose global batch changes on the way."""

from __future__ import annotations

from typing import NamedTuple

from samplerkit.order.typing import Ids

Ramp = tuple[tuple[int, int], ...]
"""Positions of an epoch, ascending, each with the samples of all ranks in steps from there on."""


class SameSteps(NamedTuple):
    """Steps of one size, one after another.

    Args:
        begin: the position at which the first one begins.
        step: its number.
        size: the samples of all ranks in each.
    """

    begin: int
    step: int
    size: int


class StepsOf(NamedTuple):
    """Some steps, as int64 arrays of one length.

    Args:
        steps: their numbers.
        firsts: the positions at which they begin.
        sizes: how many positions they cover.
    """

    steps: Ids
    firsts: Ids
    sizes: Ids


def stages_of(start: int, size: int, ramp: Ramp) -> tuple[SameSteps, ...]:
    """Gives the stages from a position on: a step that has begun ends by its own size.

    Args:
        start: the position.
        size: the samples of all ranks in a step, where the ramp says nothing else.
        ramp: what it says.

    Example:
        >>> stages_of(0, 4, ((6, 8),))
        (SameSteps(begin=0, step=0, size=4), SameSteps(begin=8, step=2, size=8))
        >>> stages_of(8, 4, ((6, 8), (7, 16)))
        (SameSteps(begin=8, step=0, size=16),)
    """
    stages = [SameSteps(start, 0, size)]
    for at, changed in ramp:
        last = stages[-1]
        steps = max(0, -(-(at - last.begin) // last.size))
        if not steps:
            stages.pop()
        stages.append(SameSteps(last.begin + steps * last.size, last.step + steps, changed))
    return tuple(stages)
