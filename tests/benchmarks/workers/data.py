"""The data of the benchmark of workers: rows in memory, and files of four formats."""

import io
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, ROWS, BATCH = 64, 200_000, 256
SHARDS = 8
SIZES = {"rows": ROWS, "tar": 40_000, "jpeg": 800, "npz": 80_000, "parquet": 80_000}
BATCHES = {"rows": BATCH, "tar": BATCH, "jpeg": 32, "npz": BATCH, "parquet": BATCH}


def write(folder: Path) -> None:
    """Writes all files; needs samplerkit, Pillow and pyarrow."""
    sk: Any = import_module("samplerkit")
    image = import_module("PIL.Image")
    random = np.random.default_rng(0)
    with sk.TarWriter(f"{folder}/small-%02d.tar", samples_per_shard=SIZES["tar"] // SHARDS) as small:
        for number in range(SIZES["tar"]):
            small.write({"__key__": f"{number:06}", "bin": random.bytes(1488), "cls": number % 1000})
    coarse = random.integers(0, 255, (24, 24, 3), dtype=np.uint8)
    with sk.TarWriter(f"{folder}/jpeg-%02d.tar", samples_per_shard=SIZES["jpeg"] // SHARDS) as pictures:
        for number in range(SIZES["jpeg"]):
            shifted = image.fromarray(np.roll(coarse, number, axis=0)).resize((320, 320))
            shifted.save(data := io.BytesIO(), "JPEG", quality=90)
            pictures.write({"__key__": f"{number:06}", "jpg": data.getvalue(), "cls": number % 1000})
    pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    for shard in range(SHARDS):
        x = random.random((SIZES["npz"] // SHARDS, WIDTH), dtype=np.float32)
        np.savez(folder / f"rows-{shard}.npz", x=x)
        column = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), WIDTH)
        parquet.write_table(pa.table({"x": column}), folder / f"rows-{shard}.parquet", row_group_size=2000)


def decoded(sample: tuple[bytes, int]) -> tuple[np.ndarray[Any, Any], int]:
    """A JPEG as an array, and its class."""
    picture = import_module("PIL.Image").open(io.BytesIO(sample[0])).convert("RGB")
    return np.array(picture), int(sample[1])


def small(sample: tuple[bytes, int]) -> tuple[np.ndarray[Any, Any], int]:
    """The first bytes of a small sample as an array, and its class."""
    return np.frombuffer(sample[0], dtype=np.uint8).copy(), int(sample[1])
