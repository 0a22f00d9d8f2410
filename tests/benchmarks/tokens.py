"""Windows of tokens: the first batch of 10 million documents, and tokens a second beside numpy's own.

Run `python -m tests.benchmarks.tokens`; the files are sparse, so that no disk is filled.
"""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import samplerkit as sk
from samplerkit.storage.tokens.formats import HEADER, MAGIC

DOCUMENTS = 10_000_000
EACH = 1000
OUTPUTS = {
    "tokens": ("tokens",),
    "four outputs": ("tokens", "labels", "loss_mask", "position_ids"),
    "cu_seqlens and positions": ("tokens", "position_ids", "cu_seqlens"),
}


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


def first_batch(prefix: Path) -> dict[str, float]:
    """Opens the dataset and reads 8 windows anywhere: CPU milliseconds, and the most memory it took."""

    def read() -> None:
        data = sk.TokenDataset(prefix, 4096, documents="idx", outputs=OUTPUTS["cu_seqlens and positions"])
        data.__getitems__(np.random.default_rng(1).integers(0, len(data), 8))
        data.close()

    read()
    seconds = []
    for _ in range(9):
        begun = time.process_time()
        read()
        seconds.append(time.process_time() - begun)
    tracemalloc.start()
    read()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"ms": 1e3 * float(np.median(seconds)), "MiB": most / 2**20}


def rate(read: Any, tokens: int, seconds: float = 1.5) -> float:
    """Gives millions of tokens a CPU second."""
    read()
    begun, count = time.process_time(), 0
    while time.process_time() - begun < seconds:
        read()
        count += 1
    return count * tokens / (time.process_time() - begun) / 1e6


def random_batch(data: sk.TokenDataset, rng: np.random.Generator, batch: int) -> Any:
    """Reads windows at random places."""
    return data.__getitems__(rng.integers(0, len(data), batch))


def rates(prefix: Path, seq_len: int, batch: int) -> dict[str, float]:
    """Reads random batches, by each set of outputs and by numpy's own reading."""
    rng = np.random.default_rng(2)
    found = {}
    for name, outputs in OUTPUTS.items():
        # Megatron's four outputs know no documents.
        documents = "idx" if "cu_seqlens" in outputs else None
        data = sk.TokenDataset(prefix, seq_len, documents=documents, outputs=outputs)
        found[name] = rate(partial(random_batch, data, rng, batch), batch * seq_len)
    mapped = np.memmap(prefix.with_suffix(".bin"), np.uint16, "r")

    def plainly() -> Any:
        begins = rng.integers(0, mapped.size - seq_len - 1, batch).tolist()
        return np.stack([mapped[begin : begin + seq_len + 1].astype(np.int64) for begin in begins])

    found["numpy, mapped"] = rate(plainly, batch * seq_len)
    return found


def main() -> None:
    """Prints a table."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        first = first_batch(sparse_pair(folder))
        print(f"first batch of {DOCUMENTS:,} documents: {first['ms']:.2f} CPU ms, {first['MiB']:.2f} MiB")
        written = [path.name for path in folder.iterdir()]
        print(f"files beside the pair: {sorted(set(written) - {'sparse.bin', 'sparse.idx'})}")
        prefix = dense(folder)
        for seq_len in (1024, 4096):
            for batch in (8, 64):
                told = ", ".join(
                    f"{name} {value:.0f}" for name, value in rates(prefix, seq_len, batch).items()
                )
                print(f"S = {seq_len}, batch {batch}, M tokens a CPU second: {told}")


if __name__ == "__main__":
    main()
