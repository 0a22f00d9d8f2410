"""The readers of the data, by kind and number of workers: functions that start an epoch.

A peer is imported when it is measured, in an environment that has it.
"""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.workers.data import BATCHES, SHARDS, SIZES, decoded, small

Begin = Callable[[], Iterator[Any]]


def dataset_of(data: str, folder: Path) -> Any:
    """The map-style dataset that all loaders read which take one."""
    sk: Any = import_module("samplerkit")

    if data == "rows":
        return import_module("tests.benchmarks.peers.torch_rows").Rows(SIZES["rows"])
    if data == "tar":
        return sk.TarDataset(f"{folder}/small-*.tar", progress=False).to_tuple("bin", "cls").map(small)
    if data == "jpeg":
        return sk.TarDataset(f"{folder}/jpeg-*.tar", progress=False).to_tuple("jpg", "cls").map(decoded)
    if data == "npz":
        return sk.FileDataset(f"{folder}/*.npz", "npz", max_files=SHARDS, progress=False)
    return sk.ParquetDataset(f"{folder}/*.parquet", max_chunks=SIZES["parquet"] // 2000, progress=False)


def ours(data: str, folder: Path, workers: int, kind: str) -> Begin:
    """samplerkit's `Loader`, GLOBAL."""
    sk: Any = import_module("samplerkit")

    loader = sk.Loader(
        dataset_of(data, folder),
        sk.RandomSampler(seed=7),
        batch_size=BATCHES[data],
        num_workers=workers,
        workers=kind,
    )
    return lambda: iter(loader)


def of_torch(data: str, folder: Path, workers: int, module: str, name: str) -> Begin:
    """torch's DataLoader, or torchdata's that takes its place."""
    make = getattr(import_module(module), name)
    loader = make(dataset_of(data, folder), BATCHES[data], shuffle=True, num_workers=workers)
    return lambda: iter(loader)


def batch_of(dataset: Any, ids: list[int]) -> Any:
    """What a thread of a pipeline does for one batch."""
    collate: Any = import_module("samplerkit.loading.sample_fields").batch_of

    read = getattr(dataset, "__getitems__", None)
    return collate([dataset[index] for index in ids] if read is None else read(ids))


def shuffled(data: str) -> list[list[int]]:
    """The ids of the batches of an epoch."""
    order = np.random.default_rng(7).permutation(SIZES[data]).tolist()
    return [order[at : at + BATCHES[data]] for at in range(0, len(order), BATCHES[data])]


def nodes(data: str, folder: Path, workers: int) -> Begin:
    """torchdata's nodes, a mapper with threads."""
    kinds: Any = import_module("torchdata.nodes")
    dataset = dataset_of(data, folder)

    def begin() -> Iterator[Any]:
        source = kinds.IterableWrapper(shuffled(data))
        read = partial(batch_of, dataset)
        mapped = kinds.ParallelMapper(source, read, num_workers=workers, in_order=True, method="thread")
        return iter(kinds.Loader(mapped))

    return begin


def spdl(data: str, folder: Path, workers: int) -> Begin:
    """SPDL's pipeline: batches in threads, in the order of the requests."""
    builder: Any = import_module("spdl.pipeline").PipelineBuilder
    dataset = dataset_of(data, folder)

    def begin() -> Iterator[Any]:
        read = partial(batch_of, dataset)
        pipeline = (
            builder()
            .add_source(iter(shuffled(data)))
            .pipe(read, concurrency=workers, output_order="input")
            .add_sink(2 * workers)
            .build(num_threads=workers)
        )
        with pipeline.auto_stop():
            yield from pipeline.get_iterator(timeout=60)

    return begin


def webdataset(data: str, folder: Path, workers: int) -> Begin:
    """webdataset's own reading of the shards, in a buffer of 1,000."""
    kinds: Any = import_module("webdataset")
    urls = sorted(map(str, folder.glob("small-*.tar" if data == "tar" else "jpeg-*.tar")))
    names, make = (("bin", "cls"), small) if data == "tar" else (("jpg", "cls"), decoded)
    dataset = kinds.WebDataset(urls, shardshuffle=len(urls), seed=7).shuffle(1000).to_tuple(*names).map(make)
    loader = kinds.WebLoader(dataset.batched(BATCHES[data]), batch_size=None, num_workers=workers)
    return lambda: iter(loader)


def grain(data: str, workers: int, threads: int) -> Begin:
    """Grain's MapDataset of arrays in memory, with threads or processes."""
    kinds: Any = import_module("grain")
    rows = import_module("tests.benchmarks.peers.numpy_rows").Rows(SIZES["rows"])
    batches = kinds.MapDataset.source(rows).shuffle(seed=7).batch(BATCHES[data])
    dataset = batches.to_iter_dataset(kinds.ReadOptions(num_threads=threads, prefetch_buffer_size=4))
    if workers:
        dataset = dataset.mp_prefetch(kinds.multiprocessing.MultiprocessingOptions(num_workers=workers))
    return lambda: iter(dataset)


def mosaic(folder: Path, workers: int) -> Begin:
    """MosaicML's StreamingDataset over MDS files of the same rows."""
    peer = import_module("tests.benchmarks.peers.streaming").Streaming(folder)
    rows = peer.rows(20_000, workers, "MDS files")
    return lambda: iter(rows())


TORCH, DATA = ("torch.utils.data", "DataLoader"), ("torchdata.stateful_dataloader", "StatefulDataLoader")
ALL = tuple(SIZES)

CASES: dict[str, tuple[tuple[str, ...], Callable[[str, Path], Begin]]] = {
    "samplerkit, 0 workers": (ALL, lambda data, folder: ours(data, folder, 0, "processes")),
    "samplerkit, 2 processes": (ALL, lambda data, folder: ours(data, folder, 2, "processes")),
    "samplerkit, 2 threads": (ALL, lambda data, folder: ours(data, folder, 2, "threads")),
    "torch, 0 workers": (ALL, lambda data, folder: of_torch(data, folder, 0, *TORCH)),
    "torch, 2 processes": (ALL, lambda data, folder: of_torch(data, folder, 2, *TORCH)),
    "torchdata, 2 processes": (ALL, lambda data, folder: of_torch(data, folder, 2, *DATA)),
    "torchdata nodes, 2 threads": (ALL, lambda data, folder: nodes(data, folder, 2)),
    "SPDL, 2 threads": (ALL, lambda data, folder: spdl(data, folder, 2)),
    "webdataset, 0 workers": (("tar", "jpeg"), lambda data, folder: webdataset(data, folder, 0)),
    "webdataset, 2 processes": (("tar", "jpeg"), lambda data, folder: webdataset(data, folder, 2)),
    "Grain, 2 threads": (("rows",), lambda data, _: grain(data, 0, 2)),
    "Grain, 2 processes": (("rows",), lambda data, _: grain(data, 2, 1)),
    "MosaicML streaming, 0 workers": (("rows",), lambda _, folder: mosaic(folder, 0)),
    "MosaicML streaming, 2 processes": (("rows",), lambda _, folder: mosaic(folder, 2)),
}
"""By who reads: what of the data, and how."""
