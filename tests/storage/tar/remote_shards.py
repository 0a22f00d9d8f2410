"""Shards for tests of remote reading, and helpers that read them."""

from pathlib import Path
from typing import Any

import samplerkit as sk
from tests.storage.remote.server import Server, private
from tests.storage.tar.shards import jpeg_tiles, write, write_tar

SHARDS, EACH = 8, 12
NUMBERS = range(SHARDS * EACH)
PATTERN = f"train-{{00..{SHARDS - 1:02}}}.tar"
NAMES = [f"train-{number:02}.tar" for number in range(SHARDS)]
LENGTHS = [EACH] * SHARDS


def sample_of(number: int, text: str = "number", size: int = 0, key: str = "{:05}") -> dict[str, Any]:
    """A small sample, of seven lengths in turn."""
    padding = "." * (size + number % 7)
    return {"__key__": key.format(number), "txt": f"{text} {number} {padding}", "cls": number}


def write_shards(
    folder: Path, shards: int = SHARDS, *, index: bool = True, text: str = "number", size: int = 0
) -> str:
    """Writes shards of small samples; returns the pattern of their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    last = f"{shards - 1:02}"
    names = f"{folder}/train-%0{len(last)}d.tar"
    samples = (sample_of(number, text, size) for number in range(shards * EACH))
    write_tar(names, samples, samples_per_shard=EACH, index=index, overwrite=True)
    return f"{folder}/train-{{{'0' * len(last)}..{last}}}.tar"


def remote(server: Server, cache: Path, **options: Any) -> sk.TarDataset:
    """The dataset of these shards on a server, by URLs with secrets."""
    return sk.TarDataset(private(f"{server.url}/{PATTERN}"), cache=cache, progress=False, **options)


def write_tiles(folder: Path, suffix: str) -> list[str]:
    """Writes three shards of real JPEG tiles, compressed or not; returns their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"tiles-{number}{suffix}" for number in range(3)]
    files = jpeg_tiles()
    for number, name in enumerate(names):
        write(folder / name, files[60 * number : 60 * number + 60])
    return names


def without_url(samples: Any) -> list[dict[str, Any]]:
    """Samples without the URL of their shard."""
    return [{name: value for name, value in sample.items() if name != "__url__"} for sample in samples]


def keys_of(loader: Any) -> list[list[str]]:
    return [[sample["__key__"] for sample in batch] for batch in loader]
