"""The rows of tests/benchmarks/floor.py: each kind of reading, its floor, and a peer that is cheap to run.

A floor is the least code that does the same work without samplerkit: the dataset and the collate alone; the
same bytes by `pread`; a gather; an `arange`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, cycle
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, default_collate

import samplerkit as sk
from tests.benchmarks.peers.torch_rows import Rows, Sized
from tests.benchmarks.peers.torchdata import loader_of

ALONE = sk.World(1, 0)
Reader = Iterator[int]
"""Reads some with each step, and gives how many."""

Make = Callable[[], Reader]


@dataclass(frozen=True)
class Row:
    """One kind of reading.

    Args:
        name: what is read.
        unit: what is counted.
        ours: makes a reader: each of its steps reads some, and says how many.
        floor: likewise.
        least: what the floor is.
        peer: likewise, of the best peer.
        who: the peer.
        target: the ratio to the floor that is wanted at most.
        reason: why the ratio is above it.
    """

    name: str
    unit: str
    ours: Make
    floor: Make
    least: str
    peer: Make | None = None
    who: str = ""
    target: float = 1.3
    reason: str = ""


def batches_of(make: Callable[[], Any], size: int) -> Make:
    """Reads a batch after another of a loader, epoch after epoch."""

    def reader() -> Reader:
        loader = make()
        while True:
            for _ in loader:
                yield size

    return reader


def calls_of(work: Callable[[Any], Any], arguments: Callable[[], Iterator[Any]], size: int) -> Make:
    """Calls a function with one argument after another."""

    def reader() -> Reader:
        for argument in arguments():
            work(argument)
            yield size

    return reader


def permuted(size: int, batch: int, *, lists: bool = False) -> Callable[[], Iterator[Any]]:
    """Batches of ids in a random order, again and again, made before the clock starts."""

    def batches() -> Iterator[Any]:
        ids = np.random.default_rng(1).permutation(size // batch * batch).reshape(-1, batch)
        return cycle(ids.tolist() if lists else ids)

    return batches


class ListedRows(Rows):
    """Rows in memory by batch, as lists of them."""

    def __getitems__(self, ids: Sequence[int]) -> list[torch.Tensor]:
        return list(self.rows[torch.as_tensor(ids)])


def of_memory() -> Iterator[Row]:
    """Rows of floats, and samples that cost nothing."""
    one, many, size = Rows(20_000), ListedRows(20_000), 64

    def plain(ids: Any) -> Any:
        return default_collate([one[at] for at in ids])

    def together(ids: Any) -> Any:
        return default_collate(many.__getitems__(ids))

    def nothing(ids: Any) -> Any:
        return [data[at] for at in ids]

    def loader(dataset: Any, **more: Any) -> Callable[[], Any]:
        options = {"batch_size": size, "world": ALONE, **more}
        return lambda: sk.Loader(dataset, sk.RandomSampler(seed=7), **options)

    def of_torch(dataset: Any, **more: Any) -> Callable[[], Any]:
        return lambda: DataLoader(dataset, size, shuffle=True, drop_last=True, **more)

    alone = "dataset and collate"
    for title, dataset, floor in (("one by one", one, plain), ("by batch", many, together)):
        for workers, more in (
            (0, {}),
            (2, {"num_workers": 2}),
            (2, {"num_workers": 2, "workers": "threads"}),
        ):
            how = "" if not workers else ", 2 threads" if "workers" in more else ", 2 workers"
            with_torch = of_torch(dataset, num_workers=workers) if "workers" not in more else None
            yield Row(
                f"rows of floats, {title}{how}",
                "sample",
                batches_of(loader(dataset, **more), size),
                calls_of(floor, permuted(len(one), size, lists=True), size),
                f"{alone}, in the loop",
                batches_of(with_torch, size) if with_torch else None,
                "DataLoader" if with_torch else "",
                reason="a batch goes through another process or thread" if workers else "",
            )
    data = Sized(1 << 20)
    yield Row(
        "samples that cost nothing, batches of 32",
        "batch",
        batches_of(
            lambda: sk.Loader(data, sk.RandomSampler(seed=7), batch_size=32, world=ALONE, collate_fn=len), 1
        ),
        calls_of(nothing, permuted(1 << 20, 32, lists=True), 1),
        "a list of the samples",
        batches_of(lambda: DataLoader(data, 32, shuffle=True, collate_fn=len), 1),
        "DataLoader",
        reason="state, draws and figures of each batch",
    )
    yield Row(
        "device loader on the CPU, rows by batch",
        "sample",
        batches_of(lambda: sk.DeviceLoader(loader(many)(), "cpu"), size),
        calls_of(together, permuted(len(many), size, lists=True), size),
        f"{alone}, in the loop",
        reason="a thread hands each batch over",
    )


def numbers(size: int, step: int) -> Iterator[int]:
    return cycle(range(0, size - step, step))


def in_mode(mode: str) -> sk.Sampler:
    """A sampler that reads in a shuffle mode."""
    return sk.SequentialSampler() if mode == "false" else sk.DistributedSampler(1, 0, shuffle=mode, seed=7)


def of_orders() -> Iterator[Row]:
    """Ids in each mode, and mixtures."""
    at_once = 8192

    def ids_of(order: sk.Order) -> Make:
        def work(begin: int) -> Any:
            return order[begin : begin + at_once]

        return calls_of(work, partial(numbers, min(len(order), 1 << 40), at_once), at_once)

    begins = partial(numbers, 1 << 40, at_once)
    table = np.random.default_rng(0).permutation(1 << 20)

    def gathered(begin: int) -> Any:
        return table[np.arange(begin, begin + at_once) & ((1 << 20) - 1)]

    counted = calls_of(lambda begin: np.arange(begin, begin + at_once), begins, at_once)
    gather = calls_of(gathered, begins, at_once)
    reason = "ids are rounds of arithmetic, and a range is none"
    for size, size_name in (
        (10**6, "10^6"),
        (2**31 - 1000, "2^31"),
        (2**31 + 10**6, "above 2^31"),
        (10**12, "10^12"),
    ):
        files = sk.Layout(np.full(1000, size // 1000))
        for mode in ("false", "global", "files", "infile", "partial"):
            yield Row(
                f"ids, {mode.upper()}, n = {size_name}",
                "id",
                ids_of(in_mode(mode).order(files)),
                counted if mode == "false" else gather,
                "an arange" if mode == "false" else "a gather of a table that is there",
                target=1.5,
                reason=reason,
            )
    for sources in (3, 20, 100):
        tree = sk.Layout.tree({f"s{number}": 10**7 for number in range(sources)})
        weights = {f"s{number}": 1 / (number + 1) for number in range(sources)}
        mixture = sk.MixtureSampler(dict.fromkeys(weights), weights=weights, num_samples=10**9)
        yield Row(
            f"ids, a mixture of {sources} sources",
            "id",
            ids_of(mixture.order(tree)),
            gather,
            "a gather of a table that is there",
            target=1.5,
            reason=reason,
        )

        def first(_: int, tree: Any = tree, weights: Any = weights) -> Any:
            sampler = sk.MixtureSampler(dict.fromkeys(weights), weights=weights, num_samples=10**9)
            return sk.Loader(tree, sampler, batch_size=256, world=ALONE).ids(0)

        def drawn(_: int, weights: Any = weights) -> Any:
            shares = np.array([*weights.values()])
            return np.random.default_rng(7).choice(shares.size, 256, p=shares / shares.sum())

        yield Row(
            f"first batch of a mixture of {sources}",
            "batch",
            calls_of(first, count, 1),
            calls_of(drawn, count, 1),
            "256 sources drawn by numpy",
            target=1.5,
            reason="a sampler, its order and the tables of its sources are made",
        )


def of_starts() -> Iterator[Row]:
    """Resuming, and the first batch."""
    for size, size_name in ((10_000, "10^4"), (10**9, "10^9")):
        data = Sized(size)
        make = partial(
            sk.Loader, data, sk.RandomSampler(seed=7), batch_size=256, world=sk.World(8, 3), collate_fn=len
        )
        state = make().state_dict(step=2)

        def resumed(_: int, make: Any = make, state: Any = state) -> Any:
            loader = make()
            loader.load_state_dict(state)
            return next(iter(loader))

        def first(_: int, make: Any = make) -> Any:
            return next(iter(make()))

        def least(_: int, data: Any = data) -> Any:
            return len([data[at] for at in np.random.default_rng(7).integers(0, len(data), 256).tolist()])

        def of_torchdata(_: int, size: int = size) -> Any:
            return next(iter(loader_of(size, 8, 3, 256)))

        peer = calls_of(of_torchdata, count, 1) if size <= 10**6 else None
        reason = "a loader and an order are made"
        for name, work in (("first batch", first), ("resume", resumed)):
            yield Row(
                f"{name}, n = {size_name}",
                "batch",
                calls_of(work, count, 1),
                calls_of(least, count, 1),
                "256 ids drawn, and read",
                peer,
                "torchdata" if peer else "",
                target=1.5,
                reason=reason,
            )
