"""What `at` and `when` tell of a run, compared with what the loaders of all its ranks read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from samplerkit.inspect.time_machine import StepRead, at, when
from samplerkit.inspect.view import RunView


def told_steps(
    make: Callable[[int], Any], ranks: int, epochs: int = 1
) -> Iterator[tuple[Any, StepRead, Any]]:
    """Yields each step as it is told, with the loader that was asked and the batch that a loop received.

    Behind the last one, `when` is asked for all samples: each time that one was read, and no other.

    Args:
        make: gives the loader of a rank, whichever kind it is.
        ranks: how many there are.
        epochs: how many each of them reads.
    """
    asked, seen = make(0), defaultdict(list)
    for rank in range(ranks):
        loader = make(rank)
        for epoch in range(epochs):
            for step, batch in enumerate(loader):
                told = at(asked, epoch, step, rank)
                if hasattr(loader, "pads"):
                    assert told.pads.tolist() == loader.pads(step).tolist()
                for place, sample in enumerate(told.ids.tolist()):
                    seen[epoch, sample].append((rank, step, place, bool(told.pads[place])))
                yield asked, told, batch
            assert told.num_steps == step + 1
    view = RunView.of(asked)
    leaves_out = view.run.tail == "drop" or view.drops_last or view.start > 0
    for sample in range(view.layout.num_samples):
        for found in when(asked, sample, range(epochs)):
            times = [(time.rank, time.step, time.place, time.is_pad) for time in found.occurrences]
            assert sorted(times) == sorted(seen[found.epoch, sample])
            assert leaves_out or not found.unread
