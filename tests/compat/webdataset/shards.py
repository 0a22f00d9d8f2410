"""Shards for the tests of the drop-in for webdataset, and functions of their samples."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from samplerkit.compat.webdataset import WebDataset
from samplerkit.storage.tar.writer import TarWriter


def write(folder: Path, shards: int, samples: int) -> str:
    """Writes small samples, shard after shard, and returns the pattern of the shards."""
    with TarWriter(f"{folder}/many-%03d.tar", samples_per_shard=-(-samples // shards)) as writer:
        for number in range(samples):
            writer.write({"__key__": f"{number:05}", "txt": str(number), "cls": number % 10})
    assert len(writer.paths) == shards
    return f"{folder}/many-{{000..{shards - 1:03}}}.tar"


def numbers(urls: str, folder: Path, **options: object) -> WebDataset:
    """A dataset whose samples are their numbers."""
    return WebDataset(urls, cache=folder / "cache", **options).decode().map(number_of)


def number_of(sample: dict) -> int:
    return int(sample["txt"])


def is_even(number: int) -> bool:
    return number % 2 == 0


def as_list(samples: list) -> list:
    return samples


def loader(dataset: WebDataset, batch_size: int = 4, **options: Any) -> DataLoader:
    """A DataLoader whose batches are lists."""
    return DataLoader(dataset, batch_size=batch_size, collate_fn=as_list, **options)


def received(batches: Iterable[list]) -> list:
    """Returns the items of all batches, in order."""
    return [item for batch in batches for item in batch]


def once_each(count: int) -> Counter:
    """Returns the counts of a complete epoch of so many samples."""
    return Counter(range(count))
