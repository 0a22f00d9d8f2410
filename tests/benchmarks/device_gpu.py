"""Benchmark of the device loader on a cuda device: seconds a step, relative to the longer of load and step.

Run it with `python -m tests.benchmarks.device_gpu`. It trains a convolutional network in bfloat16 on batches
whose loading takes a given share of a step; then come the ids and batches of `device_orders` there. Without a
cuda device it says so and ends.
"""

import gc
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial

import torch
from torch.utils.data import DataLoader

from samplerkit.loading.device.loader import DeviceLoader
from tests.benchmarks.device_cases import PublishedDesign, epoch_seconds, overlap_ratios
from tests.benchmarks.device_orders import print_all
from tests.benchmarks.timing import print_header, print_row, versions

RATIOS = (0.655, 0.855, 1.0)
STEPS, REPEATS = 100, 3
IMAGES = (64, 3, 224, 224)


class Images(torch.utils.data.Dataset):
    """Whole batches of images; loading one takes a given time."""

    def __init__(self, load: float) -> None:
        self.load = load
        self.images = torch.randint(0, 256, IMAGES, dtype=torch.uint8)

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> torch.Tensor:
        started = time.perf_counter()
        images = self.images.to(torch.bfloat16)
        time.sleep(max(0.0, self.load - (time.perf_counter() - started)))
        return images


def network() -> torch.nn.Module:
    """Some convolutions, enough for a step of about 20 ms."""
    layers: list[torch.nn.Module] = []
    for inner, outer in ((3, 64), (64, 128), (128, 256), (256, 512)):
        layers += [torch.nn.Conv2d(inner, outer, 3, stride=2, padding=1), torch.nn.ReLU()]
        layers += [torch.nn.Conv2d(outer, outer, 3, padding=1), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())


class Training:
    """A model and its step."""

    def __init__(self, device: torch.device) -> None:
        self.model = network().to(device, torch.bfloat16, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)

    def step(self, images: torch.Tensor) -> None:
        images = images.to(memory_format=torch.channels_last) / 255
        self.model(images).float().square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def loaders(images: Images, device: torch.device) -> dict[str, Callable[[], Iterable[torch.Tensor]]]:
    """What is compared."""

    def plain(workers: int) -> DataLoader:
        return DataLoader(images, batch_size=None, num_workers=workers)

    return {
        "sequential": lambda: (batch.to(device) for batch in plain(0)),
        "published design": lambda: PublishedDesign(plain(0), str(device)),
        "DeviceLoader, 0 workers": lambda: DeviceLoader(plain(0), device),
        "DeviceLoader, 1 worker": lambda: DeviceLoader(plain(1), device),
        "DeviceLoader, 4 workers": lambda: DeviceLoader(plain(4), device),
    }


def print_table(device: torch.device) -> None:
    """Measures all ratios, every row in turns."""
    training = Training(device)
    batch_on_device = torch.randint(0, 256, IMAGES, dtype=torch.uint8, device=device).to(torch.bfloat16)
    step = partial(epoch_seconds, [batch_on_device] * STEPS, training.step)
    step_seconds = [step() / STEPS for _ in range(3)][-1]

    def total(make: Callable[[], Iterable[torch.Tensor]]) -> float:
        gc.collect()
        return epoch_seconds(make(), training.step)

    print()
    print_header("T_load / T_train", "T_load", "T_train", *loaders(Images(0), device))
    for ratio in RATIOS:
        images = Images(ratio * step_seconds)
        load = partial(epoch_seconds, DataLoader(images, batch_size=None))
        both = {name: partial(total, make) for name, make in loaders(images, device).items()}
        *alone, ratios = overlap_ratios(load, step, both, REPEATS)
        parts = (f"{taken / STEPS * 1e3:.1f} ms" for taken in alone)
        print_row(ratio, *parts, *(f"{value:.3f}" for value in ratios.values()))


def main() -> None:
    """Measures and prints, or says that it cannot."""
    if not torch.cuda.is_available():
        print("There is no GPU here: nothing was measured.")
        return
    device = torch.device("cuda", torch.cuda.current_device())
    summary = f"{STEPS} steps, medians of {REPEATS}; total / max(T_load, T_train)"
    name = torch.cuda.get_device_name(device)
    print(f"{datetime.now(UTC):%Y-%m-%d}, {name}, {versions('torch', 'samplerkit')}; {summary}")
    print_table(device)
    print_all(device)


if __name__ == "__main__":
    main()
