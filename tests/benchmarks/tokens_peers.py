"""Windows of tokens beside Megatron's dataset and litData's TokensLoader, all in one interpreter.

    python3 -m venv peers
    peers/bin/pip install torch==2.13.0 litdata==0.2.76 -e .
    peers/bin/pip install --no-deps megatron-core==0.16.1
    peers/bin/python -m tests.benchmarks.tokens_peers [ROUNDS]

The contestants take turns in each round; told are medians over the rounds, and the median of the ratios of a
round. Rates are of CPU seconds, all threads of the process counted, with the files in the page cache.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.utils.data import default_collate

import samplerkit as sk
from samplerkit.storage.tokens.token_files import HEADER, MAGIC
from tests.benchmarks.peer_litdata import litdata_loader, written_tokens
from tests.benchmarks.peers.memory import PeakGrowth
from tests.benchmarks.report import versions
from tests.benchmarks.timing import forked, in_turns, timed

DOCUMENTS, EACH = 10_000_000, 1000
FOUR = ("tokens", "labels", "loss_mask", "position_ids")
BORDERS = ("tokens", "position_ids", "cu_seqlens")
TURN = 0.4
"""CPU seconds of a contestant in a round."""

Reader = Callable[[], int]
"""Reads a batch, and gives the number of its tokens."""


def sparse_pair(folder: Path) -> Path:
    """Writes an index of 10 million documents of 1,000 tokens, and 20 GB of tokens that take no room."""
    prefix = folder / "sparse"
    with prefix.with_suffix(".idx").open("wb") as file:
        file.write(HEADER.pack(MAGIC, 1, 8, DOCUMENTS, DOCUMENTS + 1))
        file.write(np.full(DOCUMENTS, EACH, "<i4").tobytes())
        file.write((np.arange(DOCUMENTS, dtype="<i8") * (2 * EACH)).tobytes())
        file.write(np.arange(DOCUMENTS + 1, dtype="<i8").tobytes())
    with prefix.with_suffix(".bin").open("wb") as file:
        file.truncate(2 * EACH * DOCUMENTS)
    return prefix


def dense(folder: Path, tokens: int = 1 << 26) -> Path:
    """Writes 128 MiB of tokens in documents of 1,000, of which the last is 0."""
    prefix = folder / "dense"
    rng = np.random.default_rng(0)
    with sk.TokenWriter(prefix, "uint16") as writer:
        for _ in range(tokens // EACH):
            document = rng.integers(1, 50_000, EACH, dtype=np.uint16)
            document[-1] = 0
            writer.write(document)
    return prefix


def megatron(
    prefix: Path, seq_len: int, samples: int, cache: Path, *, eod: int = -1, resets: bool = False
) -> Any:
    """Megatron's dataset of one corpus, built with its cache."""
    builders = importlib.import_module("megatron.core.datasets.blended_megatron_dataset_builder")
    gpt = importlib.import_module("megatron.core.datasets.gpt_dataset")
    config = gpt.GPTDatasetConfig(
        random_seed=1234,
        sequence_length=seq_len,
        blend=([str(prefix)], None),
        split="1",
        path_to_cache=str(cache),
        tokenizer=SimpleNamespace(vocab_size=50_000, eod=eod, pad=-1, unique_identifiers={}),
        reset_position_ids=resets,
        reset_attention_mask=resets,
        eod_mask_loss=resets,
        create_attention_mask=False,
    )
    return builders.BlendedMegatronDatasetBuilder(
        gpt.GPTDataset, [samples, 0, 0], lambda: True, config
    ).build()[0]


def tensors(batch: Any) -> Any:
    """Arrays as tensors, as torch's collate gives them."""
    return {
        name: torch.from_numpy(values)
        for name, values in (batch.items() if isinstance(batch, dict) else [("tokens", batch)])
    }


def of_megatron(dataset: Any, batch: int, seq_len: int, *, tokens_only: bool = False) -> Reader:
    """Reads a batch after another, in Megatron's order."""
    numbers = _numbers(len(dataset), batch)

    def read() -> int:
        if tokens_only:
            rows = [dataset._query_document_sample_shuffle_indices(at)[0] for at in next(numbers)]
            torch.from_numpy(np.stack(rows)).long()
        else:
            default_collate([dataset[at] for at in next(numbers)])
        return batch * seq_len

    return read


def of_ours(data: sk.TokenDataset, batch: int) -> Reader:
    """Reads a batch after another, in a random order."""
    size = len(data) // batch * batch
    ids = cycle(np.random.default_rng(2).permutation(size).reshape(-1, batch))

    def read() -> int:
        tensors(data.__getitems__(next(ids)))
        return batch * data.seq_len

    return read


def barely(prefix: Path, batch: int, seq_len: int) -> Reader:
    """Reads as many tokens at random places and makes them int64, and nothing else: what nobody is below."""
    descriptor, size = os.open(f"{prefix}.bin", os.O_RDONLY), 2 * seq_len + 2
    count = os.fstat(descriptor).st_size // (2 * seq_len) - 1
    begins = (np.random.default_rng(2).permutation(count) * (2 * seq_len)).tolist()
    numbers = _numbers(count, batch)

    def read() -> int:
        rows = np.empty((batch, seq_len + 1), dtype=np.uint16)
        flat = memoryview(rows).cast("B")
        for row, at in enumerate(next(numbers)):
            os.preadv(descriptor, (flat[row * size : row * size + size],), begins[at])
        torch.from_numpy(rows.astype(np.int64))
        return batch * seq_len

    return read


def of_loader(loader: Any, seq_len: int) -> Reader:
    """Reads a batch after another of a loader, epoch after epoch."""

    def batches() -> Iterator[Any]:
        while True:
            yield from loader

    endless = batches()

    def read() -> int:
        return len(next(endless)) * seq_len

    return read


def _numbers(size: int, batch: int) -> Iterator[list[int]]:
    while True:
        yield from (list(range(at, at + batch)) for at in range(0, size - batch + 1, batch))


def rate(read: Reader) -> float:
    """Reads for a turn; gives millions of tokens a CPU second."""
    begun, tokens = time.process_time(), 0
    while (spent := time.process_time() - begun) < TURN:
        tokens += read()
    return tokens / spent / 1e6


def rates_of(readers: dict[str, Reader], rounds: int) -> dict[str, list[float]]:
    """Gives the rates of each reader in each round."""
    for read in readers.values():
        read()
    return in_turns({name: partial(rate, read) for name, read in readers.items()}, rounds)


def tell(title: str, rates: dict[str, list[float]], base: str) -> None:
    """Prints medians, and how many times the rate of one of them each is."""
    print(title)
    for name, values in rates.items():
        ratios = np.array(values) / np.array(rates[base])
        print(
            f"  {name:42} {np.median(values):7.1f} M tokens a CPU s, {np.median(ratios):6.2f} times {base}"
            f" ({ratios.min():.2f} to {ratios.max():.2f})",
            flush=True,
        )


def peak(work: Callable[[], Any]) -> tuple[float, float, float]:
    """Gives seconds of wall and CPU, and MiB at the peak, mapped pages included, in a process of its own."""

    def measured() -> tuple[float, float, float]:
        growth = PeakGrowth()
        return (*timed(work)[1], growth.mib())

    return forked(measured)


def first_batches(folder: Path, rounds: int) -> None:
    """Prints what the first batch of 8 windows takes at 10 million documents."""
    prefix, places = sparse_pair(folder), np.random.default_rng(1)
    size, samples = DOCUMENTS * EACH // 4096, DOCUMENTS * EACH // 4096 - 1

    def ours() -> None:
        with sk.TokenDataset(prefix, 4096, documents="idx", outputs=BORDERS) as data:
            data.__getitems__(places.integers(0, size, 8))

    def theirs(cache: Path) -> None:
        dataset = megatron(prefix, 4096, samples, cache)
        default_collate([dataset[at] for at in range(8)])

    ours()
    spent: dict[str, list[tuple[float, float, float]]] = {"samplerkit": [], "Megatron": []}
    disk = {}
    for number in range(max(2, rounds // 3)):
        cache = folder / f"cache{number}"
        spent["samplerkit"].append(peak(ours))
        spent["Megatron"].append(peak(partial(theirs, cache)))
        disk = {"samplerkit": 0, "Megatron": sum(file.stat().st_size for file in cache.glob("*"))}
    warm = [timed(ours)[1] for _ in range(25)]
    print(f"first batch of 8 windows of 4,096 at {DOCUMENTS:,} documents, in a process of its own")
    for name, rows in spent.items():
        wall, cpu, mib = np.median(rows, axis=0)
        print(
            f"  {name:12} {1e3 * wall:9.2f} ms, {1e3 * cpu:9.2f} CPU ms, {mib:7.2f} MiB, "
            f"{disk[name]:,} bytes of disk",
            flush=True,
        )
    wall, cpu = 1e3 * np.median(warm, axis=0)
    print(f"  samplerkit, again in a process: {wall:.2f} ms, {cpu:.2f} CPU ms")


def rates(prefix: Path, folder: Path, seq_len: int, batch: int, rounds: int) -> None:
    """Prints the rates of datasets alone."""
    samples = Path(f"{prefix}.bin").stat().st_size // 2 // seq_len - 1
    plain = megatron(prefix, seq_len, samples, folder / f"plain{seq_len}")
    resets = megatron(prefix, seq_len, samples, folder / f"resets{seq_len}", eod=0, resets=True)
    windows = partial(sk.TokenDataset, prefix, seq_len)
    readers = {
        "Megatron, its four outputs": of_megatron(plain, batch, seq_len),
        "Megatron, tokens only": of_megatron(plain, batch, seq_len, tokens_only=True),
        "Megatron, with documents": of_megatron(resets, batch, seq_len),
        "reads alone, and int64": barely(prefix, batch, seq_len),
        "tokens only": of_ours(windows(), batch),
        "four outputs": of_ours(windows(outputs=FOUR), batch),
        "four outputs, with documents (eod)": of_ours(windows(outputs=FOUR, documents=0), batch),
        "cu_seqlens and positions (idx)": of_ours(windows(outputs=BORDERS, documents="idx"), batch),
        "cu_seqlens and positions (eod)": of_ours(windows(outputs=BORDERS, documents=0), batch),
    }
    found = rates_of(readers, rounds)
    tell(f"S = {seq_len}, batch {batch}", found, "Megatron, its four outputs")
    for name in ("four outputs, with documents (eod)", "cu_seqlens and positions (eod)"):
        ratio = np.median(np.array(found[name]) / np.array(found["Megatron, with documents"]))
        print(f"  {name:42} {ratio:6.2f} times Megatron, with documents")


def written_by_litdata(prefix: Path, folder: Path) -> str:
    """Lets litData write the tokens of a corpus as it stores them, in chunks of 16 Mi tokens."""
    documents = sk.TokenDataset(prefix, 1, documents="idx").as_documents()
    return written_tokens(folder, (each.astype(np.uint16) for each in documents), chunk_bytes=1 << 25)


def loaders(prefix: Path, place: str, seq_len: int, rounds: int) -> None:
    """Prints the rates of batches of 64 through both loaders."""
    streamed = litdata_loader(place, 64, drop_last=True, tokens=seq_len + 1)
    windows = sk.TokenDataset(prefix, seq_len)
    as_stored = sk.TokenDataset(prefix, seq_len, as_dtype="uint16")
    sampler, world = sk.RandomSampler(seed=7), sk.World(1, 0)
    readers = {
        "litData": of_loader(streamed, seq_len),
        "samplerkit": of_loader(sk.Loader(windows, sampler, batch_size=64, world=world), seq_len),
        "samplerkit, uint16 as litData": of_loader(
            sk.Loader(as_stored, sampler, batch_size=64, world=world), seq_len
        ),
    }
    tell(f"S = {seq_len}, batch 64, through the loaders, no workers", rates_of(readers, rounds), "litData")


def main(rounds: int = 7) -> None:
    """Prints everything."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    importlib.import_module("megatron.core.datasets.gpt_dataset")
    print(f"{versions('torch', 'numpy', 'megatron-core', 'litdata')}; {rounds} rounds")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        first_batches(folder, rounds)
        prefix = dense(folder)
        for seq_len in (1024, 4096):
            for batch in (8, 64):
                rates(prefix, folder, seq_len, batch, rounds)
        chunks = written_by_litdata(prefix, folder)
        for seq_len in (1024, 4096):
            loaders(prefix, chunks, seq_len, rounds)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
