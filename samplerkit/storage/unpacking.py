"""What may come out of what is packed: more than that is made to fill memory or disks."""

from __future__ import annotations

RATIO = 200
"""How many times as large as what is packed may be what it unpacks to, unless a limit is said,"""

FLOOR = 1 << 30
"""and the bytes that it may be in any case: zeros alone shrink a thousandfold, and no data do."""


def most_unpacked(packed: int, said: int | None = None, floor: int = FLOOR) -> int:
    """Gives the bytes that something may unpack to.

    Args:
        packed: its bytes.
        said: a limit that the user says.
        floor: what it may be in any case.

    Example:
        >>> most_unpacked(1000), most_unpacked(10_000_000), most_unpacked(10_000_000, 5)
        (1073741824, 2000000000, 5)
    """
    return max(floor, RATIO * packed) if said is None else said
