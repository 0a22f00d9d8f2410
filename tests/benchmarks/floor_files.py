"""The rows of tests/benchmarks/floor.py that read files: shards, formats, tokens."""

import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import count, cycle, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

import samplerkit as sk
from samplerkit.storage.files.stored import Stored
from samplerkit.storage.tar.index.find_or_make import Cache, make_index
from tests.benchmarks.floor_rows import (
    ALONE,
    Make,
    Row,
    batches_of,
    calls_of,
    in_mode,
    numbers,
    of_memory,
    of_orders,
    of_starts,
    permuted,
)
from tests.benchmarks.peers.mds_index import shard_of, write_index
from tests.storage.formats.mds_shards import shard


@cache
def opened(path: str) -> int:
    """A descriptor of a file, the same one for all floors."""
    return os.open(path, os.O_RDONLY)


def preads(places: Sequence[tuple[str, int, int]], batch: int) -> Make:
    """Reads parts of files in a random order: their path, first byte and length."""
    parts = [(opened(path), size, begin) for path, begin, size in places]

    def read(numbers: list[int]) -> None:
        for number in numbers:
            os.pread(*parts[number])

    return calls_of(read, permuted(len(parts), batch, lists=True), batch)


def of_tar(folder: Path) -> Iterator[Row]:
    """Shards: the index, and samples in each mode."""
    each, shards = 500, 8
    pattern = f"{folder}/train-{{0..{shards - 1}}}.tar"
    rng = np.random.default_rng(0)
    with sk.TarWriter(f"{folder}/train-%d.tar", samples_per_shard=each) as writer:
        for number in range(shards * each):
            writer.write({"__key__": f"{number:06}", "bin": rng.bytes(2000), "cls": number % 10})
    data = sk.TarDataset(pattern, cache=folder / "cache", progress=False)
    paths = [f"{folder}/train-{number}.tar" for number in range(shards)]
    # A sample is a header, its bytes, and another header.
    places = [(paths[at // each], at % each * 4096, 3072) for at in range(shards * each)]
    for batch in (64, 256):
        for mode in ("false", "files", "partial", "global"):
            make = partial(sk.Loader, data, in_mode(mode), batch_size=batch, world=ALONE, collate_fn=list)
            yield Row(
                f"tar, {mode.upper()}, batches of {batch}",
                "sample",
                batches_of(make, batch),
                preads(places, batch),
                "a pread a sample",
                reason="fields are cut out, named, and cls is decoded",
            )

    def index(path: str) -> int:
        return make_index(Stored.of(path), Cache.of(folder / "cache"), checksums=False).num_members

    yield Row(
        "tar, index of a shard",
        "member",
        calls_of(index, lambda: cycle(paths), 2 * each),
        calls_of(lambda path: Path(path).read_bytes(), lambda: cycle(paths), 2 * each),
        "the shard read",
        reason="each header is checked, and keys are joined",
    )


EACH, BATCH = 2000, 64
"""Samples of a file, and of a batch, of the formats."""


def by_blocks(dataset: Any) -> Make:
    """Reads a dataset in blocks of two files."""
    sampler = sk.RandomSampler(shuffle="partial", partial_size=2 * EACH, seed=7)
    make = partial(sk.Loader, dataset, sampler, batch_size=BATCH, world=ALONE, collate_fn=len)
    return batches_of(make, BATCH)


def of_formats(folder: Path) -> Iterator[Row]:
    """Files with a reader, Parquet and JSONL."""
    import pyarrow as pa  # noqa: PLC0415  # an extra
    import pyarrow.parquet as pq  # noqa: PLC0415

    each, files = EACH, 8
    rows = np.random.default_rng(0).random((each, 32), np.float32)
    for number in range(files):
        np.savez(folder / f"{number}.npz", x=rows)
        pq.write_table(
            pa.table({"id": range(each), "text": [f"row {at}" for at in range(each)]}),
            folder / f"{number}.parquet",
            row_group_size=each // 2,
        )
        lines = (json.dumps({"id": at, "text": f"row {at}"}) for at in range(each))
        (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n")

    def files_of(read: Callable[[str], list[Any]], suffix: str) -> Make:
        """Reads whole files, and their samples in a random order."""
        order = np.random.default_rng(1).permutation(each).tolist()

        def work(number: int) -> Any:
            samples = read(f"{folder}/{number % files}.{suffix}")
            return [samples[at] for at in order]

        return calls_of(work, count, each)

    def npz(path: str) -> list[Any]:
        with np.load(path) as arrays:
            return [{"x": row} for row in arrays["x"]]

    ahead = {"max_files": 4, "read_ahead": 1}
    yield Row(
        "npz, PARTIAL",
        "sample",
        by_blocks(sk.FileDataset(f"{folder}/*.npz", "npz", **ahead)),
        files_of(npz, "npz"),
        "np.load, and its rows",
        reason="rows are copied, and one thread reads ahead",
    )
    parquet = sk.ParquetDataset(f"{folder}/*.parquet", progress=False)
    yield Row(
        "Parquet, PARTIAL",
        "sample",
        by_blocks(parquet),
        files_of(lambda path: pq.read_table(path).to_pylist(), "parquet"),
        "pyarrow, and its rows",
        reason="batches of few rows of many files: a take of pyarrow for each column and file",
    )
    lines = sk.JsonlDataset(f"{folder}/*.jsonl", progress=False)
    yield Row(
        "JSONL, PARTIAL",
        "sample",
        by_blocks(lines),
        files_of(lambda path: [json.loads(line) for line in Path(path).read_bytes().splitlines()], "jsonl"),
        "json.loads of each line",
        reason="a quarter preads each line, a third parses and checks it, the rest is the loader",
    )


def of_mds(folder: Path) -> Iterator[Row]:
    """A shard of MDS."""
    each = EACH
    (folder / "mds").mkdir()
    raw, config = shard(range(each))
    (folder / "mds/shard.00000.mds").write_bytes(raw)
    write_index(folder / "mds", [shard_of("shard.00000.mds", len(raw), each, **config)])

    def unpacked(_: int) -> Any:
        data = (folder / "mds/shard.00000.mds").read_bytes()
        ends = np.frombuffer(data, "<u4", each + 1, 4).tolist()
        samples = []
        for begin, end in pairwise(ends):
            _, number = struct.unpack_from("<Iq", data, begin)
            samples.append({"id": number, "text": data[begin + 12 : end].decode()})
        return samples

    yield Row(
        "MDS, PARTIAL",
        "sample",
        by_blocks(sk.MdsDataset(f"{folder}/mds")),
        calls_of(unpacked, count, each),
        "struct of the whole shard",
        reason="half cuts each sample into its columns in Python, a quarter decodes them",
    )


def of_lmdb(folder: Path) -> Iterator[Row]:
    """A store of LMDB."""
    import lmdb  # noqa: PLC0415  # an extra

    each, batch = EACH, BATCH
    environment = lmdb.open(f"{folder}/all.lmdb", map_size=1 << 28, subdir=False)
    with environment.begin(write=True) as writing:
        for at in range(each * 4):
            writing.put(b"%06d" % at, b"x" * 500)
    environment.close()
    shutil.copy(f"{folder}/all.lmdb", f"{folder}/floor.lmdb")  # a process opens a file once

    reading = lmdb.open(f"{folder}/floor.lmdb", readonly=True, lock=False, subdir=False)

    def got(ids: list[int]) -> Any:
        with reading.begin() as transaction:
            return [transaction.get(b"%06d" % at) for at in ids]

    store = sk.LmdbDataset(f"{folder}/all.lmdb")
    yield Row(
        "LMDB, GLOBAL",
        "sample",
        batches_of(
            lambda: sk.Loader(store, sk.RandomSampler(seed=7), batch_size=batch, world=ALONE, collate_fn=len),
            batch,
        ),
        calls_of(got, permuted(each * 4, batch, lists=True), batch),
        "get of each key",
        reason="a third is the get, the rest the loader: requests, draws, figures",
    )


class Memmap:
    """Windows of a file of tokens, as torch users write it."""

    def __init__(self, path: str, seq_len: int) -> None:
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")
        self.seq_len = seq_len

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.seq_len

    def __getitem__(self, index: int) -> torch.Tensor:
        begin = index * self.seq_len
        return torch.from_numpy(self.tokens[begin : begin + self.seq_len + 1].astype(np.int64))


def of_tokens(folder: Path) -> Iterator[Row]:
    """Windows of one corpus and of three; token batches and packs."""
    rng, each = np.random.default_rng(0), 1 << 23
    for name, size in (("one", 3 * each), ("a", each), ("b", each), ("c", each)):
        with sk.TokenWriter(folder / name, "uint16") as writer:
            writer.write(rng.integers(1, 50_000, size, dtype=np.uint16))
    for seq_len, batch in ((1024, 32), (4096, 16)):
        one = sk.TokenDataset(folder / "one", seq_len)
        three = sk.TokenDataset({name: folder / name for name in "abc"}, seq_len)
        tree = sk.TreeDataset({name: sk.TokenDataset(folder / name, seq_len) for name in "abc"})
        mixture = sk.MixtureSampler(dict.fromkeys("abc"), weights={"a": 5, "b": 3, "c": 2})
        plain = Memmap(f"{folder}/one.bin", seq_len)
        peer = batches_of(partial(DataLoader, plain, batch, shuffle=True, drop_last=True), batch)
        floor = calls_of_tokens(folder / "one", batch, seq_len)
        for title, dataset, sampler in (
            ("tokens of one corpus", one, sk.RandomSampler(seed=7)),
            ("tokens of three corpora, mixed", three, mixture),
            ("a tree of three corpora, mixed", tree, mixture),
        ):
            make = partial(sk.Loader, dataset, sampler, batch_size=batch, world=ALONE)
            yield Row(
                f"{title}, S = {seq_len:,}, {batch} a batch",
                "window",
                batches_of(make, batch),
                floor,
                "preads, and int64",
                peer,
                "DataLoader over a memmap",
                reason="each part of a tree is read by itself, and its windows are collated one by one"
                if dataset is tree
                else "half of it is the loader: requests, state, figures, collate",
            )
    # Web text in tokens, as in C4.
    lengths = np.clip(rng.lognormal(5.65, 1.02, 1_000_000), 8, 4096).astype(np.int64)
    for name, recipe in (
        ("token batches, n = 10^6", sk.TokenBatches(32_768, lengths=lengths)),
        ("packs of 8,192, n = 10^6", sk.PackBatches(8192, lengths=lengths)),
    ):
        plan = recipe.over(sk.RandomSampler(seed=7), lengths.size).plan(0)
        mean = lengths.size // len(plan)

        def some(begin: int, plan: Any = plan) -> Any:
            return plan.samples(np.arange(begin, begin + 128))

        yield Row(
            name,
            "sample",
            calls_of(some, partial(numbers, len(plan), 128), 128 * mean),
            calls_of(lambda ids: lengths[ids].cumsum(), permuted(lengths.size, 128 * mean), 128 * mean),
            "a gather of lengths, and their sum",
            target=1.5,
            reason="samples are sorted into buckets, and ids are permuted by arithmetic",
        )


def calls_of_tokens(prefix: Path, batch: int, seq_len: int) -> Make:
    """The floor of windows: as many tokens at random places by pread, made int64."""
    size = 2 * seq_len + 2
    descriptor = opened(f"{prefix}.bin")
    count = os.fstat(descriptor).st_size // (2 * seq_len) - 1

    def read(begins: list[int]) -> torch.Tensor:
        rows = np.empty((batch, seq_len + 1), dtype=np.uint16)
        flat = memoryview(rows).cast("B")
        for row, at in enumerate(begins):
            os.preadv(descriptor, (flat[row * size : row * size + size],), at * 2 * seq_len)
        return torch.from_numpy(rows.astype(np.int64))

    return calls_of(read, permuted(count, batch, lists=True), batch)


def rows(folder: str) -> Iterator[Row]:
    """Makes all rows, group by group, over files in a folder."""
    yield from of_orders()
    yield from of_starts()
    yield from of_memory()
    for make in (of_tar, of_formats, of_mds, of_lmdb, of_tokens):
        yield from make(Path(tempfile.mkdtemp(dir=folder)))
