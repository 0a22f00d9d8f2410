"""What `at` and `when` report of a run, compared with what the loaders of all its ranks read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from samplerkit.inspect.time_machine import StepRead, at, when
from samplerkit.inspect.view import RunView


def reported_steps(
    make: Callable[[int], Any], ranks: int, epochs: Sequence[int] = (0,)
) -> Iterator[tuple[Any, StepRead, Any]]:
    """Yields each step as `at` reports it, with the inspected loader and the batch that a loop received.

    After the last one, `when` must report each time that a sample was read, and no other, for all samples.

    Args:
        make: returns the loader of a rank, of any kind.
        ranks: the number of ranks.
        epochs: the epochs that each of them reads.
    """
    inspected, seen = make(0), defaultdict(list)
    for rank in range(ranks):
        loader = make(rank)
        for epoch in epochs:
            steps = num_steps = 0
            for step, batch in enumerate(loader):
                reported = at(inspected, epoch, step, rank)
                steps, num_steps = step + 1, reported.num_steps
                if hasattr(loader, "pads"):
                    assert reported.pads.tolist() == loader.pads(step).tolist()
                for place, sample in enumerate(reported.ids.tolist()):
                    seen[epoch, sample].append((rank, step, place, bool(reported.pads[place])))
                yield inspected, reported, batch
            assert steps == num_steps
    view = RunView.of(inspected)
    leaves_out = view.run.tail == "drop" or view.drops_last or view.start > 0
    for sample in range(view.layout.num_samples):
        for result in when(inspected, sample, epochs):
            times = [(time.rank, time.step, time.place, time.is_pad) for time in result.occurrences]
            assert sorted(times) == sorted(seen[result.epoch, sample])
            assert leaves_out or not result.unread
