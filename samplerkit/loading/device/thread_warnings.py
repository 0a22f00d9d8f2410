"""The warning of loads in a thread that draw from a random generator of the process, once in a process."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from typing import Any, Final

import torch

from samplerkit.loading.generators import generator_states

DRAWS_RANDOM: Final = (
    "loading draws from the process-wide random generator of {}, in a background thread: "
    "what either of them draws then depends on timing; use num_workers of at least 1, or a generator of "
    "your own, such as samplerkit.draw_rng()"
)


class LoadingThreadWarning(RuntimeWarning):
    """Loading in a thread makes training depend on timing."""


def watched_loads() -> Iterator[str]:
    """Looks at what the first two loads of a thread draw.

    It is advanced before each load, and behind it.

    Yields:
        Behind a load what is to be warned of; before one nothing.
    """
    drawn: list[str] = []
    for number in range(2):
        before = generator_states()
        yield ""
        # In the first load, the loop does nothing but wait, but a sampler may draw its whole epoch. In the
        # second one, the loop may draw as well. What draws in both is the dataset.
        found = _drawn(before, but_a_seed=number == 0)
        drawn = [name for name in found if number == 0 or name in drawn]
        yield DRAWS_RANDOM.format(", ".join(drawn)) if number and drawn else ""
    while True:
        yield ""


def warn_once(message: str, stacklevel: int) -> None:
    """Warns of what was found, of the same once in a process.

    Args:
        message: from `watched_loads`.
        stacklevel: as for `warnings.warn`, seen from the caller.
    """
    if message not in _SAID:
        _SAID.add(message)
        warnings.warn(message, LoadingThreadWarning, stacklevel=stacklevel + 1)


_SAID: Final[set[str]] = set()


def _drawn(before: dict[str, Any], *, but_a_seed: bool) -> list[str]:
    """The generators that were drawn from since."""
    after = generator_states()
    found = [name for name in ("numpy", "random") if pickle.dumps(before[name]) != pickle.dumps(after[name])]
    if not torch.equal(before["torch"], after["torch"]):
        # torch's own random sampler draws one seed at the start of an epoch, always at the same point.
        generator = torch.Generator()
        generator.set_state(before["torch"])
        torch.empty((), dtype=torch.int64).random_(generator=generator)
        if not (but_a_seed and torch.equal(generator.get_state(), after["torch"])):
            found.insert(0, "torch")
    return found
