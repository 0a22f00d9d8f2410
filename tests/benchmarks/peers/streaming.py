"""MosaicML streaming: ids from what its iterator calls, epochs and changes of ranks through its loader."""

import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from tests.benchmarks.peers.torchvision_operators import declare

declare()

import numpy as np  # noqa: E402
import streaming  # noqa: E402
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402
from streaming.base.batching import generate_work  # noqa: E402
from streaming.base.world import World  # noqa: E402

from tests.benchmarks.peers.cases import BATCH, SEED, SHARD, SHARDS, WIDTH  # noqa: E402
from tests.benchmarks.peers.mds_index import shard_of, write_index  # noqa: E402
from tests.benchmarks.peers.measuring import Peer, main  # noqa: E402

MAX_FILES = 1000


def index_of(folder: Path, size: int) -> str:
    """Writes the index of a dataset without its files: no sample of it is read."""
    files = min(MAX_FILES, -(-size // BATCH))
    per_file, rest = divmod(size, files)
    meta = {"column_encodings": ["int"], "column_names": ["id"], "column_sizes": [8], "size_limit": 1 << 30}
    shards = [
        shard_of(f"{number}.mds", 12 * (per_file + 1), per_file + (number < rest), **meta)
        for number in range(files)
    ]
    write_index(folder, shards)
    return str(folder)


def write_samples(folder: Path, samples: Iterable[dict[str, Any]], columns: dict[str, str]) -> str:
    """Writes a dataset."""
    if not folder.exists():
        with MDSWriter(out=str(folder), columns=columns, size_limit=1 << 21) as writer:
            for sample in samples:
                writer.write(sample)
    return str(folder)


def dataset_of(folder: str, batch: int) -> Any:
    """Opens a dataset, shuffled as it is by default."""
    streaming.base.util.clean_stale_shared_memory()
    return StreamingDataset(local=folder, batch_size=batch, shuffle=True, shuffle_seed=SEED)


def ids_from(dataset: Any, state: dict[str, Any] | None) -> Any:
    """Gives the ids of this rank's epoch, from a state on, as its iterator computes them."""
    world = World(1, SHARDS, 1, SHARD)
    if state is not None:
        dataset.load_state_dict(state)
    epoch, sample = dataset._resume(world, 0)
    return generate_work(dataset.batching_method, dataset, world, epoch, sample)[0, SHARD, 0]


def rank_reads(
    folder: str, ranks: int, rank: int, port: int, batch: int, state: Any, steps: int | None, pipe: Any
) -> None:
    """Reads as one rank of a job, in a process of its own."""
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(ranks),
        LOCAL_WORLD_SIZE=str(ranks),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    torch.distributed.init_process_group("gloo")
    dataset = StreamingDataset(local=folder, batch_size=batch, shuffle=True, shuffle_seed=SEED)
    loader = StreamingDataLoader(dataset, batch_size=batch)
    if state is not None:
        loader.load_state_dict(json.loads(state))
    received: list[int] = []
    for step, samples in enumerate(loader, start=1):
        received += samples["id"].tolist()
        if step == steps:
            break
    torch.distributed.barrier()
    pipe.send((received, json.dumps(loader.state_dict())))
    torch.distributed.barrier()
    # Its threads wait for the rest of the epoch.
    os._exit(0)


class Streaming(Peer):
    """What streaming offers."""

    packages = ("streaming", "numpy", "torch")
    variants = ("MDS files",)
    rules = ("`StreamingDataLoader`",)
    lacks: Mapping[str, str] = {"seek": "by its state only"}

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def batches(self, size: int) -> Iterator[Any]:
        dataset = dataset_of(index_of(self.folder / f"index-{size}", size), BATCH)
        return iter(ids_from(dataset, None))

    def resume(self, size: int) -> Callable[[], Any]:
        folder = index_of(self.folder / f"index-{size}", size)
        state = {
            "epoch": 0,
            "sample_in_epoch": size // 2 // (SHARDS * BATCH) * (SHARDS * BATCH),
            "num_canonical_nodes": 1,
            "shuffle_seed": SEED,
            "initial_physical_nodes": 1,
        }
        return lambda: ids_from(dataset_of(folder, BATCH), state)[0]

    def rows(self, count: int, workers: int, variant: str) -> Callable[[], Iterable[Any]]:
        row = np.zeros(WIDTH, dtype=np.float32)
        folder = write_samples(
            self.folder / f"rows-{count}", ({"row": row} for _ in range(count)), {"row": "ndarray"}
        )
        dataset = dataset_of(folder, BATCH)
        loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=workers)
        return lambda: loader

    def read(
        self, rule: str, size: int, ranks: int, batch: int, states: list[Any] | None, steps: int | None
    ) -> tuple[list[int], list[Any]]:
        folder = write_samples(self.folder / f"ids-{size}", ({"id": id} for id in range(size)), {"id": "int"})
        streaming.base.util.clean_stale_shared_memory()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = get_context("fork")
        pipes = [context.Pipe(duplex=False) for _ in range(ranks)]
        # The state is saved on rank 0 and given to all.
        state = None if states is None else states[0]
        processes = [
            context.Process(
                target=rank_reads,
                args=(folder, ranks, rank, port, batch, state, steps, pipes[rank][1]),
                daemon=True,
            )
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        for _, sender in pipes:
            sender.close()
        answers = [receiver.recv() for receiver, _ in pipes]
        for process in processes:
            process.join()
        return [id for ids, _ in answers for id in ids], [after for _, after in answers]


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        main(Streaming(Path(temporary)))
