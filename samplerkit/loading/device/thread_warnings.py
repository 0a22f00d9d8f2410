"""Warnings of what can go wrong when batches are loaded in a thread: measured, and once in a process."""

from __future__ import annotations

import pickle
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path
from typing import Any, Final, final

import torch

from samplerkit.loading.generators import generator_states

JUDGED_LOADS = 8
"""Loads over which the thread's use of the processor is judged, again and again, but for the first one."""

BUSY_SHARE = 0.25
"""Share of the time, loop and all, that a thread may compute before it is looked at."""

HELD_SHARE = 0.5
"""Share of a load in which others wait for the interpreter, from which on the load holds it."""

PROBED_SECONDS = 0.1
_NAP_SECONDS = 0.0005
_MOST_INTERVALS = 4
"""Turns of the interpreter that one wait counts for at most, so that one alone proves nothing."""

HOLDS_INTERPRETER: Final = (
    "loading in this process computes in Python, and takes the interpreter from the training loop: "
    "the steps get slower by about as much as loading takes; use num_workers of at least 1"
)
DRAWS_RANDOM: Final = (
    "loading draws from the process-wide random generator of {}, in a background thread: "
    "what either of them draws then depends on timing; use num_workers of at least 1, or a generator of "
    "your own, such as samplerkit.draw_rng()"
)


class LoadingThreadWarning(RuntimeWarning):
    """Loading in a thread slows training down, or makes it depend on timing."""


def watched_loads() -> Generator[tuple[str, ...], float, None]:
    """Measures loads in the thread that runs them.

    It is resumed before each load, and behind it, then with the seconds that this thread computed in it.

    Yields:
        Behind a load what was found, as messages; before one nothing.
    """
    drawn: list[str] = []
    for number in range(2):
        before = generator_states()
        yield ()
        # In the first load, the loop does nothing but wait, but a sampler may draw its whole epoch. In the
        # second one, the loop may draw as well. What draws in both is the dataset.
        found = _drawn(before, but_a_seed=number == 0)
        drawn = [name for name in found if number == 0 or name in drawn]
        yield (DRAWS_RANDOM.format(", ".join(drawn)),) if number and drawn else ()
    is_busy = False
    while not is_busy:
        since, waited, computed = time.perf_counter(), _waited(), 0.0
        for _ in range(JUDGED_LOADS):
            computed += yield ()
            yield ()
        # On a busy machine everything takes longer, but the thread computes no less.
        is_busy = computed >= BUSY_SHARE * (time.perf_counter() - since - (_waited() - waited))
    # That a thread computes says little: torch and numpy let go of the interpreter while they do. So one asks
    # for the interpreter while a load runs, and sees how long that takes.
    held = looked = probed = 0.0
    while probed < PROBED_SECONDS:
        probe = _Probe()
        yield ()
        seconds = probe.stop()
        held, looked, probed = held + seconds[0], looked + seconds[1], probed + seconds[1] + _NAP_SECONDS
        is_judged = probed >= PROBED_SECONDS
        yield (HOLDS_INTERPRETER,) if is_judged and held > HELD_SHARE * looked else ()
    while True:
        yield ()


def warn_once(messages: tuple[str, ...], stacklevel: int) -> None:
    """Warns of what was found, of each thing once in a process.

    Args:
        messages: from `watched_loads`.
        stacklevel: as for `warnings.warn`, seen from the caller.
    """
    for message in messages:
        if message not in _SAID:
            _SAID.add(message)
            warnings.warn(message, LoadingThreadWarning, stacklevel=stacklevel + 1)


_SAID: Final[set[str]] = set()


@final
class _Probe:
    """A thread that naps, and measures how much later than it asked it gets the interpreter back.

    It counts as held for as long as the thread that began this computed meanwhile: one that lost its
    processor while it had the interpreter, or waits with all others, computes nothing.
    """

    def __init__(self) -> None:
        self._held = self._looked = 0.0
        self._is_over = False
        self._computed = _own_clock()
        self._naps = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samplerkit-probe", daemon=True)
        self._thread.start()
        self._naps.wait()

    def stop(self) -> tuple[float, float]:
        """Gives the seconds in which the interpreter was held, and those that were looked at."""
        self._is_over = True
        self._thread.join()
        return self._held, self._looked

    def _run(self) -> None:
        # Who holds the interpreter keeps it for this long at least.
        interval = 0.9 * sys.getswitchinterval()
        most = _MOST_INTERVALS * sys.getswitchinterval()
        while True:
            waited = _waited()
            self._naps.set()
            asked, computed = time.perf_counter(), self._computed()
            time.sleep(_NAP_SECONDS)
            took, computed = time.perf_counter() - asked, self._computed() - computed
            if self._is_over:
                return  # the load ended in between: who held the interpreter last is not known
            # To read a file lets go of the interpreter, and the load may end before this has it again.
            took = max(0.0, took - (_waited() - waited))
            if took - _NAP_SECONDS >= interval:
                held = min(took - _NAP_SECONDS, computed, most)
                self._held += held
                took = _NAP_SECONDS + held
            self._looked += took


def _own_clock() -> Callable[[], float]:
    """Gives a clock, for any thread, of what this one has computed; of its process where there is none."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.process_time
    return partial(time.clock_gettime, time.pthread_getcpuclockid(threading.get_ident()))


def _waited() -> float:
    """Seconds in which this thread was ready, but had no processor; 0 where the system does not report it."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


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
