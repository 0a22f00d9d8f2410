"""Shards for tests of remote reading, and what is expected of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import samplerkit as sk
from tests.storage.remote.server import Server
from tests.storage.remote.test_privacy import private
from tests.storage.tar.shards import jpeg_tiles, write

SHARDS, EACH = 8, 12
NUMBERS = range(SHARDS * EACH)
PATTERN = f"train-{{00..{SHARDS - 1:02}}}.tar"
NAMES = [f"train-{number:02}.tar" for number in range(SHARDS)]
LENGTHS = [EACH] * SHARDS


def write_shards(folder: Path, *, index: bool = True, text: str = "number", size: int = 0) -> str:
    """Writes shards of small samples; gives the pattern of their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    with sk.TarWriter(
        f"{folder}/train-%02d.tar", samples_per_shard=EACH, index=index, overwrite=True
    ) as writer:
        for number in NUMBERS:
            padding = "." * (size + number % 7)
            writer.write({"__key__": f"{number:05}", "txt": f"{text} {number} {padding}", "cls": number})
    return f"{folder}/{PATTERN}"


def remote(server: Server, cache: Path, **options: Any) -> sk.TarDataset:
    """The dataset of these shards on a server, by URLs with secrets."""
    return sk.TarDataset(private(f"{server.url}/{PATTERN}"), cache=cache, progress=False, **options)


def write_tiles(folder: Path, suffix: str) -> list[str]:
    """Writes three shards of real JPEG tiles, compressed or not; gives their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"tiles-{number}{suffix}" for number in range(3)]
    files = jpeg_tiles()
    for number, name in enumerate(names):
        write(folder / name, files[60 * number : 60 * number + 60])
    return names


def without_place(samples: Any) -> list[dict[str, Any]]:
    """Samples without what tells where they come from."""
    return [{name: value for name, value in sample.items() if name != "__url__"} for sample in samples]


def as_list(batch: Any) -> Any:
    return batch


def keys_of(loader: Any) -> list[list[str]]:
    return [[sample["__key__"] for sample in batch] for batch in loader]
