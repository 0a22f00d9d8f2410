"""litData's TokensLoader: its first batch, and which tokens it loses or repeats when a run goes on otherwise.

Run `peers/bin/python -m tests.benchmarks.tokens_of_litdata`, in the environment of `tokens_peers`.
"""

from __future__ import annotations

import importlib
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import samplerkit as sk
from tests.benchmarks.peer_litdata import litdata_loader, written_tokens
from tests.benchmarks.report import versions
from tests.benchmarks.tokens_peers import dense, peak, written_by_litdata

WINDOWS, SEQ_LEN, BATCH = 4096, 64, 8
"""Of the small corpus, in which each token is another one; a batch of each rank."""


def as_rank(rank: int, ranks: int) -> Any:
    """Lets litData take this process for a rank of several."""
    env = importlib.import_module("litdata.utilities.env")._DistributedEnv
    return patch.object(env, "detect", lambda: env(ranks, rank, 1))


def litdata_run(place: str, steps: int, *, after: tuple[int, int], seq_len: int) -> Iterator[Any]:
    """The tokens that 4 ranks read in some steps, and those that others read from the state on."""
    state = None
    for rank in range(4):
        with as_rank(rank, 4):
            loader = litdata_loader(place, BATCH, tokens=SEQ_LEN)
            for _, batch in zip(range(steps), loader, strict=False):
                yield batch
            state = loader.state_dict() if rank == 0 else state
    ranks, batch_size = after
    for rank in range(ranks):
        with as_rank(rank, ranks):
            loader = litdata_loader(place, batch_size, tokens=seq_len)
            loader.load_state_dict(state)
            yield from loader


def our_run(prefix: str, steps: int, *, after: tuple[int, int], seq_len: int) -> Iterator[Any]:
    """The same, of windows of ours in blocks; the last token of a row is a label."""

    def loader(length: int, batch: int, ranks: int, rank: int) -> sk.Loader:
        windows = sk.TokenDataset(prefix, length, block_len=256)
        order = sk.BlockSampler(pool=8, seed=7)
        return sk.Loader(windows, order, batch_size=batch, world=sk.World(ranks, rank), tail="ragged")

    state: dict[str, Any] = {}
    for rank in range(4):
        begun = loader(SEQ_LEN, BATCH, 4, rank)
        yield from (batch[:, :-1] for _, batch in zip(range(steps), begun, strict=False))
        state = begun.state_dict(step=steps)
    ranks, batch_size = after
    for rank in range(ranks):
        going_on = loader(seq_len, batch_size, ranks, rank)
        going_on.load_state_dict(state)
        yield from (batch[:, :-1] for batch in going_on)


def told(name: str, batches: Iterator[Any]) -> None:
    """Prints the shares of tokens that were never read, and read more than once."""
    counts = np.zeros(WINDOWS * SEQ_LEN, dtype=np.int64)
    try:
        for batch in batches:
            np.add.at(counts, np.asarray(batch).reshape(-1), 1)
    except Exception as error:  # whatever it refuses with is what is told
        print(f"  {name}: {type(error).__name__}: {error}")
        return
    print(f"  {name}: {(counts == 0).mean():.1%} never, {(counts > 1).mean():.1%} more than once")


def first_batches(folder: Path) -> None:
    """Prints what the first batch of 8 windows of 4,096 takes, each in a process of its own."""
    prefix = dense(folder)
    place = written_by_litdata(prefix, folder)

    def theirs() -> None:
        next(iter(litdata_loader(place, 8, tokens=4097)))

    def ours() -> None:
        windows = sk.TokenDataset(prefix, 4096)
        next(iter(sk.Loader(windows, sk.RandomSampler(seed=7), batch_size=8, world=sk.World(1, 0))))

    theirs()
    ours()
    for name, work in (("litData", theirs), ("samplerkit", ours)):
        wall, cpu, mib = np.median([peak(work) for _ in range(5)], axis=0)
        print(f"  {name}: {1e3 * wall:.1f} ms, {1e3 * cpu:.1f} CPU ms, {mib:.1f} MiB")


def main() -> None:
    """Prints everything."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    print(f"{versions('litdata', 'torch')}; first batch through the loaders")
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        first_batches(Path(one))
        folder = Path(two)
        with sk.TokenWriter(folder / "small", "int32", progress=False) as writer:
            writer.write(np.arange(WINDOWS * SEQ_LEN))
        documents = np.arange(WINDOWS * SEQ_LEN, dtype=np.int32).reshape(64, -1)
        place = written_tokens(folder, documents, chunk_bytes=1 << 14)
        prefix = str(folder / "small")
        print("half an epoch on 4 ranks, and then")
        for name, after, seq_len in (
            ("4 ranks", (4, BATCH), SEQ_LEN),
            ("2 ranks", (2, BATCH), SEQ_LEN),
            ("3 ranks", (3, BATCH), SEQ_LEN),
            ("windows twice as long", (4, BATCH // 2), 2 * SEQ_LEN),
        ):
            told(f"litData, {name}", litdata_run(place, 64, after=after, seq_len=seq_len))
            told(f"samplerkit, {name}", our_run(prefix, 64, after=after, seq_len=seq_len))


if __name__ == "__main__":
    main()
