"""Benchmark of orders on a device: ids a second against `torch.randperm`, and batches of rows on the device.

Run it with `python -m tests.benchmarks.device_orders`; it takes the accelerator of this process, or the cpu.
"""

import statistics
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

import samplerkit as sk
from samplerkit.loading.device.streams import current_device
from tests.benchmarks import timing
from tests.benchmarks.timing import print_header, print_row, versions

READ = 1 << 22
REPEATS = 5
ROWS, WIDTH, BATCH = 1_000_000, 64, 4096
FEWER = 100_000
"""Rows that torch's own loader reads one by one: all of them would take a minute."""


def seconds(device: torch.device, work: Callable[[], Any]) -> float:
    """How long a work takes, until the device has done it: the median after one warm-up."""

    def done() -> None:
        work()
        if device.type != "cpu":
            torch.get_device_module(device).synchronize()

    done()
    return statistics.median(timing.seconds(done) for _ in range(REPEATS))


def print_ids(device: torch.device, randperm_sizes: tuple[int, ...]) -> None:
    """Prints ids a second, of the whole permutation and of a part of an order."""
    print()
    print_header(f"ids on {device.type}", "M ids/s", "first 4,096 of an epoch")
    for size in randperm_sizes:
        every = seconds(device, lambda size=size: torch.randperm(size, device=device))  # type: ignore[misc]
        shown = f"{size / every / 1e6:,.1f}", f"{every * 1e3:,.2f} ms"
        print_row(f"`torch.randperm({size:,})`, whole", *shown)
    for name, size in (("10^6", 10**6), ("10^9", 10**9), ("2^40", 2**40)):
        order = sk.RandomSampler(seed=7).order(size)
        kinds = {"torch operations": of_device(order, device), "numpy and a copy": of_host(order, device)}
        for how, ids in kinds.items():
            count = min(size, READ)
            taken = seconds(device, lambda ids=ids, count=count: ids(count))  # type: ignore[misc]
            first = seconds(device, lambda ids=ids: ids(4096))  # type: ignore[misc]
            shown = f"{count / taken / 1e6:,.1f}", f"{first * 1e3:,.2f} ms"
            print_row(f"GLOBAL, n = {name}, {how}", *shown)


def of_device(order: sk.Order, device: torch.device) -> Callable[[int], torch.Tensor]:
    """The first ids of an order, computed on the device."""
    on_device = sk.order_on(order, device)
    return lambda count: on_device[:count]


def of_host(order: sk.Order, device: torch.device) -> Callable[[int], torch.Tensor]:
    """The same, computed on the host."""
    return lambda count: torch.from_numpy(order[:count]).to(device)


def print_batches(device: torch.device) -> None:
    """Prints epochs of batches of rows that are on the device."""
    data = torch.rand(ROWS, WIDTH, device=device)

    def by_hand() -> Iterator[torch.Tensor]:
        for ids in torch.randperm(ROWS, device=device).split(BATCH):  # type: ignore[no-untyped-call]
            yield data.index_select(0, ids)

    def by_torch() -> Iterator[torch.Tensor]:
        dataset = torch.utils.data.TensorDataset(data[:FEWER])
        for (batch,) in torch.utils.data.DataLoader(dataset, BATCH, shuffle=True):
            yield batch

    sampler = sk.RandomSampler(seed=7)
    by_device = sk.TensorLoader(data, sampler, batch_size=BATCH, evaluate_on="device")
    by_host = sk.TensorLoader(data, sampler, batch_size=BATCH, evaluate_on="host")
    works: dict[str, Callable[[], Iterator[torch.Tensor]]] = {
        f"torch's `TensorDataset` and `DataLoader`, {FEWER:,} of the rows": by_torch,
        "`torch.randperm` and `index_select`, no state": by_hand,
        "`TensorLoader`, ids by torch operations": lambda: iter(by_device),
        "`TensorLoader`, ids by numpy": lambda: iter(by_host),
    }
    print()
    print_header(f"{ROWS:,} rows of {WIDTH} float32 on {device.type}, batches of {BATCH:,}", "M rows/s")
    for name, begin in works.items():
        read = sum(len(batch) for batch in begin())
        taken = seconds(device, lambda begin=begin: deque(begin(), maxlen=0))  # type: ignore[misc]
        print_row(name, f"{read / taken / 1e6:,.2f}")


def print_all(device: torch.device) -> None:
    """Prints both tables; on an accelerator with a larger permutation."""
    print_ids(device, (10**6, 10**7) if device.type == "cpu" else (10**6, 10**8, 10**9))
    print_batches(device)


def main() -> None:
    """Measures and prints."""
    device = current_device()
    torch.set_num_threads(1)
    print(f"{versions('numpy', 'torch')}, {device}")
    print_all(device)


if __name__ == "__main__":
    main()
