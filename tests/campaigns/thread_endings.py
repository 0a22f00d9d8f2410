"""Iterations over threads that end at random: what was delivered, and what another loader reads next.

In half of them the loop makes some of the batches. `python -m tests.campaigns.thread_endings 2000` ends
that many, and checks for threads and descriptors that they leave: some minutes.
"""

from __future__ import annotations

import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import samplerkit as sk
from tests.loading.worker_kinds import RandomSchedule
from tests.numbers import Damaged
from tests.waiting import new_threads, wait_until

ENDS = ("break", "error of the loop", "error of the dataset", "signal", "close", "the end")


class EndError(Exception):
    """Is raised by the loop or a signal handler."""


def _raise() -> None:
    raise EndError


def _received(loader: sk.Loader, end: str, at: int, seconds: float) -> list[int]:
    """Reads until an end after some samples, or after some seconds."""
    received: list[int] = []
    ends = {"error of the loop": _raise, "close": loader.close}
    before = signal.signal(signal.SIGALRM, lambda *_: _raise())
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds if end == "signal" else 0)
            for ids in loader:
                # One call: a handler runs after calls, so the batch is noted before one can raise.
                received.extend(ids.tolist())
                if len(received) >= at and end == "break":
                    break
                if len(received) >= at and end in ends:
                    ends[end]()
        finally:
            # The signal may come as late as in here; it comes once.
            signal.setitimer(signal.ITIMER_REAL, 0)
    except (EndError, OSError, sk.StateError):
        pass
    finally:
        signal.signal(signal.SIGALRM, before)
    return received


def ended_at_random(seed: int) -> tuple[str, list[str]]:
    """Ends one iteration, and reads the rest of its epoch by a loader of any kind.

    Returns:
        How it ended, and what was wrong.
    """
    dice = random.Random(seed)
    size, batch, end = dice.randint(1, 60), dice.randint(1, 7), dice.choice(ENDS)
    sampler = sk.RandomSampler(seed=seed)
    broken = [dice.randrange(size)] if end == "error of the dataset" else []
    options: dict[str, Any] = {
        "persistent_workers": dice.random() < 0.3,
        "run_ahead": dice.random() < 0.3,
        "device": "cpu" if dice.random() < 0.2 else None,
        "prefetch_factor": dice.randint(1, 3),
    }

    def loader(broken: list[int], **more: Any) -> sk.Loader:
        data = Damaged(sk.Layout(size), broken)
        return sk.Loader(data, sampler, batch_size=batch, tail="ragged", **more)

    threads = {"num_workers": dice.randint(1, 4), "workers": "threads", **options}
    first, at = loader(broken, **threads), dice.randint(0, size // batch) * batch
    if dice.random() < 0.5:
        first._workers._schedule = RandomSchedule(threads["num_workers"], 4, seed)
    received = _received(first, end, at, dice.uniform(1e-5, 5e-3))
    state = first.state_dict()
    order, wrong = sampler.order(size)[:].tolist(), []
    is_over = (state["epoch"], state["position"]) == (1, 0)
    # A signal may come between a batch and the line that notes it: that batch was handed out.
    if not is_over and not 0 <= state["position"] - len(received) <= batch:
        wrong.append(f"position {state['position']} after {len(received)} samples")
    first.close()
    kind = dice.choice([{}, {"num_workers": 2, "workers": "threads"}])
    with loader([], **kind) as second:
        second.load_state_dict(state)
        handed_out = order[: len(order) if is_over else state["position"]]
        rest = [] if is_over else [index for ids in second for index in ids.tolist()]
    if handed_out[: len(received)] != received or len(handed_out) - len(received) > batch:
        wrong.append(f"{len(received)} samples noted, {len(handed_out)} counted")
    if handed_out + rest != order:
        wrong.append(f"{len(handed_out)} and {len(rest)} samples are not the {len(order)} of the epoch")
    # A thread whose start was interrupted stays in the list, and never runs.
    wait_until(lambda: not any(thread.is_alive() for thread in new_threads(set())))
    return end, [f"seed {seed}, {end}: {problem}" for problem in wrong]


WARM_UP = 60
"""Endings after which torch has begun the threads that it keeps."""


def held() -> list[int]:
    """The threads and the descriptors of this process."""
    return [len(list(Path(f"/proc/self/{name}").iterdir())) for name in ("task", "fd")]


def main(endings: int) -> None:
    """Ends so many iterations, and prints what came of it."""
    for seed in range(WARM_UP):
        ended_at_random(10**6 + seed)
    before = held()
    ended = [ended_at_random(seed) for seed in range(endings)]
    wrong = [problem for _, every in ended for problem in every]
    print(f"{endings} endings, {dict(Counter(end for end, _ in ended))}: wrong {wrong or 0}", flush=True)
    # A thread that was joined may leave a little later.
    wait_until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main(int(sys.argv[1]))
