"""webdataset: samples streamed from tar shards, with neither ids nor state."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import webdataset
from torch.utils.data import DataLoader

from tests.benchmarks.peers.cases import BATCH, WIDTH
from tests.benchmarks.peers.measuring import Iteration, Peer, main

SHARDS = 12
"""Tar files; a number that 2, 3 and 4 ranks divide."""


def write(folder: Path, count: int, content: bytes) -> list[str]:
    """Writes samples whose keys are their ids."""
    paths = [str(folder / f"{count}-{number:02}.tar") for number in range(SHARDS)]
    for number, path in enumerate(paths):
        with webdataset.TarWriter(path, encoder=False) as writer:
            for id in range(number, count, SHARDS):
                writer.write({"__key__": f"{id:09}", "bin": content})
    return paths


def row_of(sample: dict[str, Any]) -> torch.Tensor:
    """Decodes a row of float32."""
    return torch.from_numpy(np.frombuffer(sample["bin"], dtype=np.float32).copy())


class Webdataset(Peer):
    """What webdataset offers."""

    packages = ("webdataset", "torch")
    variants = ("tar files, `shuffle(1000)`",)
    rules = ("no state: the epoch again",)
    lacks: Mapping[str, str] = {
        **dict.fromkeys(("epoch", "seek"), "streams tar files; no ids"),
        "resume": "no state",
    }

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def rows(self, count: int, workers: int, variant: str) -> Callable[[], Iterable[Any]]:
        paths = write(self.folder, count, np.zeros(WIDTH, dtype=np.float32).tobytes())
        dataset = webdataset.WebDataset(paths, shardshuffle=SHARDS).shuffle(1000).map(row_of)
        loader = DataLoader(dataset, BATCH, num_workers=workers)
        return lambda: loader

    def iterate(self, rule: str, size: int, ranks: int, rank: int, batch: int, state: Any) -> Iteration:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks))
        dataset = webdataset.WebDataset(
            write(self.folder, size, b""), shardshuffle=SHARDS, nodesplitter=webdataset.split_by_node, seed=7
        ).shuffle(100, seed=7)
        ids = [int(sample["__key__"]) for sample in dataset]
        return [ids[at : at + batch] for at in range(0, len(ids), batch)], None


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        main(Webdataset(Path(temporary)))
