"""A few small files of each kind, and the datasets that read them."""

import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import samplerkit as sk
from tests.storage.tar.shards import write_tar

SAMPLES = (5, 3, 0, 4)
"""Of each file."""


@dataclass(frozen=True)
class Some:
    """Files of one kind.

    Args:
        name: of the kind.
        suffix: of the files.
        reader: that a catalogue needs.
        write: writes a file of so many samples, the first of a given number.
        open: makes the dataset.
    """

    name: str
    suffix: str
    reader: str | None
    write: Callable[[Path, int, int], None]
    open: Callable[..., Any]

    def written(self, folder: Path, sizes: tuple[int, ...] = SAMPLES) -> str:
        """Writes files, and gives their pattern."""
        folder.mkdir(parents=True, exist_ok=True)
        first = 0
        for number, size in enumerate(sizes):
            self.write(folder / f"{number}{self.suffix}", first, size)
            first += size
        return f"{folder}/*{self.suffix}"


def _tar(path: Path, first: int, number: int) -> None:
    if not number:  # such as our writer does not make
        tarfile.open(path, "w").close()
        return
    ids = range(first, first + number)
    write_tar(path, ({"__key__": f"{id:03}", "cls": id, "txt": "x" * id} for id in ids), overwrite=True)


def _parquet(path: Path, first: int, number: int) -> None:
    rows = {"id": range(first, first + number), "text": ["x" * n for n in range(number)]}
    table = pa.table(rows, schema=pa.schema({"id": pa.int64(), "text": pa.string()}))
    pq.write_table(table, path, row_group_size=2)


def _npz(path: Path, first: int, number: int) -> None:
    np.savez(path, id=np.arange(first, first + number))


TAR = Some("tar", ".tar", None, _tar, sk.TarDataset)
PARQUET = Some("parquet", ".parquet", None, _parquet, sk.ParquetDataset)
FILES = Some("files", ".npz", "npz", _npz, lambda files, **options: sk.FileDataset(files, "npz", **options))
KINDS = (TAR, PARQUET, FILES)


def samples_of(dataset: Any) -> list[str]:
    """The `repr` of all samples of a dataset, without their addresses."""
    samples = dataset.__getitems__(list(range(len(dataset))))
    return [repr({name: value for name, value in sample.items() if name != "__url__"}) for sample in samples]
