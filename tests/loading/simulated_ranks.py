"""How many requests the agreement of ranks makes to the job's store, counted in virtual time.

`python -m tests.benchmarks.scale` prints them. Some ranks run the real code against a store that counts
their requests; the others of a large job are entered in the store as ranks that have joined.
"""

import heapq
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import torch.distributed

import samplerkit as sk
from samplerkit.loading.agreement import IN_PLACE, Agreement, Group
from samplerkit.loading.state.state import digest

ORDER = {"dataset": "10 samples", "sampler": "RandomSampler()", "seed": [0], "epoch": 0, "position": 0}


class CountingStore:
    """Counts the requests to a store, their bytes, and the keys that each reads or writes."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.requests: Counter[str] = Counter()
        self.most_keys = 0
        self.bytes = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.store, name)

        def counted(*arguments: Any) -> Any:
            self.requests[name] += 1
            keys = arguments[0] if isinstance(arguments[0], list) else [arguments[0]]
            self.most_keys = max(self.most_keys, len(keys))
            answer = method(*arguments)
            self.bytes += sum(map(_size, (*arguments, answer)))
            return answer

        return counted


def _size(value: Any) -> int:
    """How many bytes of a request a value is; a number has eight."""
    if isinstance(value, list):
        return sum(map(_size, value))
    return 0 if value is None else len(value) if isinstance(value, str | bytes) else 8


class VirtualTime:
    """A clock whose pauses cost nothing. Of the threads that it runs, one runs at a time."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._waiting: list[tuple[float, int, threading.Event]] = []

    def monotonic(self) -> float:
        """Returns the seconds since the beginning."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Lets the other threads run until it is later."""
        woken = self._enter(self.now + seconds)
        self._wake_next()
        woken.wait()

    def run(self, works: Iterable[tuple[float, Callable[[], None]]]) -> None:
        """Runs functions, each from its second on, to the end of all."""
        threads = []
        for begin, work in works:
            threads.append(threading.Thread(target=self._run, args=(self._enter(begin), work), daemon=True))
            threads[-1].start()
        self._wake_next()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()

    def _enter(self, seconds: float) -> threading.Event:
        woken = threading.Event()
        heapq.heappush(self._waiting, (seconds, next(self._order), woken))
        return woken

    def _wake_next(self) -> None:
        if self._waiting:
            self.now, _, woken = heapq.heappop(self._waiting)
            woken.set()

    def _run(self, woken: threading.Event, work: Callable[[], None]) -> None:
        woken.wait()
        try:
            work()
        finally:
            self._wake_next()


class Outcome:
    """What happened to one rank.

    Attributes:
        seconds: when it continued, or got an error.
        error: its text; empty where there was none.
        store: its requests.
    """

    def __init__(self, store: Any) -> None:
        self.seconds = 0.0
        self.error = ""
        self.store = CountingStore(store)

    @property
    def requests(self) -> int:
        """All requests of the rank."""
        return self.store.requests.total()


def simulate(
    ranks: int,
    begins: dict[int, tuple[float, dict[str, Any]]],
    others: dict[str, Any] | None = None,
    seconds: float = 10.0,
    dead: int = 0,
) -> dict[int, Outcome]:
    """Lets ranks begin an order.

    Args:
        ranks: of the job.
        begins: for each rank that runs the real code, when it begins, and what.
        others: the order that all other ranks begin after 0.001 s.
        seconds: the time limit.
        dead: how many of the other ranks never come.
    """
    store, time = torch.distributed.HashStore(), VirtualTime()
    outcomes = {rank: Outcome(store) for rank in begins}

    def begin(rank: int) -> None:
        agreement = Agreement(outcomes[rank].store, rank, ranks, time)
        try:
            agreement.require(begins[rank][1], seconds)
        except sk.DisagreementError as error:
            outcomes[rank].error = str(error)
        outcomes[rank].seconds = time.now

    def enter_others() -> None:
        joined = [rank for rank in range(ranks) if rank not in begins][dead:]
        group = Group(digest(json.dumps(others, sort_keys=True)), 0)
        store.append(group.key("members"), "".join(f"{rank} {ranks} {rank}," for rank in joined))
        store.add(group.key("joined"), len(joined) * (1 + IN_PLACE))

    works = [(start, lambda rank=rank: begin(rank)) for rank, (start, _) in begins.items()]
    time.run(works if others is None else [*works, (0.001, enter_others)])
    return outcomes
