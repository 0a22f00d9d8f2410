"""Orders that carry over: each epoch rearranges what the epoch before it left."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from weakref import WeakValueDictionary

from samplerkit.order.sequences import Table
from samplerkit.order.typing import Ids

# Without a lock, which a child forked while it is held would wait for: two threads may arrange the same ids.
_tables: WeakValueDictionary[tuple[Hashable, int], Table] = WeakValueDictionary()


def carried(name: Hashable, epoch: int, arrange: Callable[[int, int], Ids]) -> Table:
    """Gives the ids of an epoch, each epoch arranged out of the ids of the one before.

    The latest earlier epoch that somebody still holds is where the work starts; without one it starts at
    epoch 0, so that epoch e costs e + 1 arrangements. Nothing is kept here.

    Args:
        name: tells this sequence of epochs from all others.
        epoch: the epoch, from 0.
        arrange: given the epoch, and how many ids there were in the one before (0 for epoch 0), gives which
            of those comes when.

    Returns:
        The ids of the epoch.
    """
    start, table = _latest_held(name, epoch) or (0, _table(arrange(0, 0)))
    for number in range(start + 1, epoch + 1):
        table = _table(table.ids_at(arrange(number, len(table))))
    _tables[name, epoch] = table
    return table


def _latest_held(name: Hashable, epoch: int) -> tuple[int, Table] | None:
    for number in range(epoch, -1, -1):
        table = _tables.get((name, number))
        if table is not None:
            return number, table
    return None


def _table(ids: Ids) -> Table:
    # A read-only array is kept as it is, and not copied.
    ids.flags.writeable = False
    return Table(ids)
