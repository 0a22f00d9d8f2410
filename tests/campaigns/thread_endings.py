"""Iterations over threads that end at random: the samples handed out, and those read afterwards.

In half of them one thread at a time makes batches, or all do, at random.
`python -m tests.campaigns.thread_endings 2000` ends so many, and looks for threads and descriptors that they
leave: some minutes.
"""

import random
import signal
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import samplerkit as sk
from tests.loading.worker_kinds import RandomSchedule
from tests.waiting import wait_until

ENDS = ("break", "error of the loop", "error of the dataset", "signal", "close", "the end")


class EndError(Exception):
    """Raised by a loop, a dataset or a signal handler."""


@dataclass
class Numbers:
    """Sample i is i; one of them may be an error."""

    size: int
    broken: int | None = None

    def __len__(self) -> int:
        return self.size

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getitem__(self, index: int) -> int:
        if index == self.broken:
            raise EndError
        return index


def _raise() -> None:
    raise EndError


def _received(loader: sk.Loader, end: str, at: int, seconds: float) -> list[int]:
    """Reads until the end: after some samples, or some seconds."""
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
    except (EndError, sk.StateError):
        pass
    finally:
        signal.signal(signal.SIGALRM, before)
    return received


def ended_at_random(seed: int) -> tuple[str, list[str]]:
    """Ends one iteration, and reads the rest of its epoch by a loader of any kind.

    Returns:
        How it ended, and the errors.
    """
    rng = random.Random(seed)
    size, batch, end = rng.randint(1, 60), rng.randint(1, 7), rng.choice(ENDS)
    sampler = sk.RandomSampler(seed=seed)
    broken = rng.randrange(size) if end == "error of the dataset" else None
    options: dict[str, Any] = {
        "persistent_workers": rng.random() < 0.3,
        "run_ahead": rng.random() < 0.3,
        "device": "cpu" if rng.random() < 0.2 else None,
        "prefetch_factor": rng.randint(1, 3),
    }

    def loader(dataset: Numbers, **more: Any) -> sk.Loader:
        return sk.Loader(dataset, sampler, batch_size=batch, tail="ragged", **more)

    threads = {"num_workers": rng.randint(1, 4), "workers": "threads", **options}
    first, at = loader(Numbers(size, broken), **threads), rng.randint(0, size // batch) * batch
    if rng.random() < 0.5:
        first._workers._schedule = RandomSchedule(threads["num_workers"], 4, seed)
    received = _received(first, end, at, rng.uniform(1e-5, 5e-3))
    state = first.state_dict()
    order, wrong = sampler.order(size)[:].tolist(), []
    is_over = (state["epoch"], state["position"]) == (1, 0)
    # A signal may come between a batch and the line that notes it: that batch was handed out.
    if not is_over and not 0 <= state["position"] - len(received) <= batch:
        wrong.append(f"position {state['position']} after {len(received)} samples")
    first.close()
    kind = rng.choice([{}, {"num_workers": 2, "workers": "threads"}])
    with loader(Numbers(size), **kind) as second:
        second.load_state_dict(state)
        handed_out = order[: len(order) if is_over else state["position"]]
        rest = [] if is_over else [index for ids in second for index in ids.tolist()]
    if handed_out[: len(received)] != received or len(handed_out) - len(received) > batch:
        wrong.append(f"{len(received)} samples noted, {len(handed_out)} counted")
    if handed_out + rest != order:
        wrong.append(f"{len(handed_out)} and {len(rest)} samples are not the {len(order)} of the epoch")
    # A thread whose start a signal has interrupted is listed for ever, and never runs.
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("samplerkit")]
    wait_until(lambda: not any(thread.is_alive() for thread in ours))
    return end, [f"seed {seed}, {end}: {problem}" for problem in wrong]


WARM_UP = 60
"""Endings after which torch has started the threads that it keeps."""


def held() -> list[int]:
    """The threads and the descriptors of this process."""
    return [len(list(Path(f"/proc/self/{name}").iterdir())) for name in ("task", "fd")]


def main(endings: int) -> None:
    """Ends so many iterations, and prints the results."""
    for seed in range(WARM_UP):
        ended_at_random(10**6 + seed)
    before = held()
    results = [ended_at_random(seed) for seed in range(endings)]
    wrong = [problem for _, problems in results for problem in problems]
    print(f"{endings} endings, {dict(Counter(end for end, _ in results))}: wrong {wrong or 0}", flush=True)
    # A thread that was joined may leave a little later.
    wait_until(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main(int(sys.argv[1]))
