"""What replaying Megatron costs: `python -m tests.benchmarks.megatron_replay PYTHON [DOCUMENTS]`.

PYTHON is one that has megatron-core. For each dataset, the seconds of wall and of CPU in which Megatron
builds its indexes, its cache included, and in which ours are computed; the better of two runs each. Data
files are holes: no token is read.
"""

from __future__ import annotations

import shutil
import struct
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from samplerkit.compat.megatron.samples import BlendedSamples, Cut
from tests.benchmarks.timing import timed
from tests.parity.compare_megatron import RUNNER, TIME_LIMIT
from tests.parity.interpreters import answers

SEED = 1234
SOURCES = 12


def write(prefix: Path, lengths: Any) -> str:
    """Writes the index of a corpus of 16-bit tokens, and a data file of that size without content."""
    pointers = np.zeros(lengths.size, dtype="<i8")
    np.cumsum(lengths[:-1] * 2, out=pointers[1:])
    documents = np.arange(lengths.size + 1, dtype="<i8")
    header = struct.pack("<9sQBQQ", b"MMIDIDX\0\0", 1, 8, lengths.size, documents.size)
    parts = (header, lengths.astype("<i4").tobytes(), pointers.tobytes(), documents.tobytes())
    Path(f"{prefix}.idx").write_bytes(b"".join(parts))
    with Path(f"{prefix}.bin").open("wb") as file:
        file.truncate(int(lengths.sum()) * 2)
    return str(prefix)


def cases(folder: Path, documents: int) -> dict[str, tuple[list[str], list[Any], dict[str, Any]]]:
    """The datasets by name: prefixes, lengths and arguments."""
    random = np.random.default_rng(0)
    one = random.integers(1, 1200, documents)
    many = [random.integers(1, 1200, documents // SOURCES) for _ in range(SOURCES)]
    alone = [write(folder / "one", one)], [one.astype(np.int32)]
    blend = (
        [write(folder / f"source{number}", lengths) for number, lengths in enumerate(many)],
        [lengths.astype(np.int32) for lengths in many],
    )
    weights = np.exp(random.normal(size=SOURCES)).tolist()
    epoch, blended = int(one.sum()) // 1024, sum(int(lengths.sum()) for lengths in many)
    return {
        "1 epoch, S = 1,024": (*alone, {"size": epoch - 2, "seq_len": 1024, "weights": None}),
        "3 epochs, S = 1,024": (*alone, {"size": 3 * epoch - 5, "seq_len": 1024, "weights": None}),
        "12 weights, S = 1,024": (*blend, {"size": blended // 1024, "seq_len": 1024, "weights": weights}),
        "12 weights, S = 128": (*blend, {"size": blended // 128, "seq_len": 128, "weights": weights}),
        "12 exhausted, S = 128": (*blend, {"size": None, "seq_len": 128, "weights": None}),
    }


def measured(
    interpreter: str, folder: Path, case: tuple[list[str], list[Any], dict[str, Any]]
) -> list[float]:
    """Gives the seconds of wall and CPU of Megatron, and ours."""
    prefixes, lengths, given = case
    size, seq_len, weights = given["size"], given["seq_len"], given["weights"]
    told = {
        "prefixes": prefixes,
        "weights": weights,
        "sizes": [None] * 3 if size is None else [size, 0, 0],
        "split": "1",
        "seq_len": seq_len,
        "seed": SEED,
        "extra": True,
        "keep_partial": False,
        "surplus": 0.005,
        "cache": str(folder / "cache"),
        "only_build": True,
    }
    (theirs,) = answers(interpreter, RUNNER, [told], TIME_LIMIT)
    shutil.rmtree(folder / "cache")
    cut = Cut(seq_len, SEED)
    make = partial(BlendedSamples, lengths, weights, size, cut, split="1", part="train", surplus=0.005)
    samples, used = timed(make)
    assert len(samples) == theirs["train"]["samples"]
    return [theirs["seconds"], theirs["cpu"], *used]


def main(interpreter: str, documents: int = 10**7) -> None:
    """Measures and prints a table."""
    print(f"{documents} documents")
    print(f"{'dataset':24} {'Megatron':>9} {'CPU':>7} {'ours':>9} {'CPU':>7} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, case in cases(folder, documents).items():
            runs = [measured(interpreter, folder, case) for _ in range(2)]
            wall, cpu, our_wall, our_cpu = (min(column) for column in zip(*runs, strict=True))
            print(
                f"{name:24} {wall:8.2f}s {cpu:6.2f}s {our_wall:8.2f}s {our_cpu:6.2f}s {our_cpu / cpu:6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
