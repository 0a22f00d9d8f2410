"""The kinds of datasets for formats that people have: what a config can say of their constructors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

from samplerkit.config.hints import Conditions, CorpusPaths, FieldNames, Group, Paths, Remote
from samplerkit.storage.formats.arrow import ArrowDataset
from samplerkit.storage.formats.arrow_rows import ArrowBatches, Batches
from samplerkit.storage.formats.hdf5 import Hdf5Dataset
from samplerkit.storage.formats.parquet import ParquetDataset
from samplerkit.storage.formats.sqlite import SqliteDataset
from samplerkit.storage.formats.zarr import MissingChunks, ZarrDataset
from samplerkit.storage.tokens.dataset import Fetch, TokenDataset


def of_row_groups(
    files: Paths,
    columns: FieldNames = None,
    filters: Conditions = None,
    batches: ArrowBatches = "samples",
    lengths: str | None = None,
    max_chunks: int = 4,
    max_bytes: int | None = None,
    read_ahead: int = 1,
    threads: int = 1,
    remote: Remote = None,
) -> ParquetDataset:
    """Samples in Parquet files, by row group.

    Args:
        files: a pattern, or a list; paths or URLs.
        columns: the columns to read.
        filters: conditions on rows, such as `[[year, ">=", 2020]]`.
        batches: `samples`, `columns`, `tensors` or `arrow`.
        lengths: the column of the lengths of samples.
        max_chunks: row groups in memory at most.
        max_bytes: bytes in memory at most.
        read_ahead: row groups that are read before they are needed.
        threads: how many of them at a time.
        remote: how URLs are read.
    """
    return ParquetDataset(
        files,
        columns,
        filters=filters,
        batches=batches,
        lengths=lengths,
        max_chunks=max_chunks,
        max_bytes=max_bytes,
        read_ahead=read_ahead,
        threads=threads,
        remote=remote,
    )


def of_tokens(
    files: CorpusPaths,
    seq_len: int,
    block_len: int | None = None,
    dtype: str | None = None,
    phase: bool = True,
    seed: int = 0,
    split: str | None = None,
    part: Literal["train", "valid", "test"] = "train",
    documents: Literal["idx"] | int | None = None,
    outputs: FieldNames = None,
    as_dtype: str = "int64",
    remote: Remote = None,
    fetch: Fetch = "ranges",
) -> TokenDataset:
    """Windows of tokens of Megatron's `.bin` and `.idx`, of raw `.bin` files or of `.npy` arrays."""
    return TokenDataset(
        files,
        seq_len,
        block_len=block_len,
        dtype=dtype,
        phase=phase,
        seed=seed,
        split=split,
        part=part,
        documents=documents,
        outputs=("tokens",) if outputs is None else outputs,
        as_dtype=as_dtype,
        remote=remote,
        fetch=fetch,
    )


def of_record_batches(
    files: Paths,
    columns: FieldNames = None,
    batches: ArrowBatches = "samples",
    max_chunks: int = 4,
    max_bytes: int | None = None,
    read_ahead: int = 1,
    threads: int = 1,
) -> ArrowDataset:
    """Samples in files of Arrow's IPC, by record batch.

    Args:
        files: a pattern, a list of paths, or a folder from `save_to_disk` of Hugging Face `datasets`.
        columns: the columns to hand out.
        batches: `samples`, `columns`, `tensors` or `arrow`.
        max_chunks: record batches in memory at most.
        max_bytes: bytes in memory at most.
        read_ahead: record batches that are read before they are needed.
        threads: how many of them at a time.
    """
    return ArrowDataset(
        files,
        columns,
        batches=batches,
        max_chunks=max_chunks,
        max_bytes=max_bytes,
        read_ahead=read_ahead,
        threads=threads,
    )


def of_hdf5(
    files: Paths,
    arrays: FieldNames = None,
    chunk_rows: int | None = None,
    batches: Batches = "samples",
    max_chunks: int = 4,
    max_bytes: int | None = None,
    read_ahead: int = 1,
    threads: int = 1,
) -> Hdf5Dataset:
    """Rows of arrays in HDF5 files, by chunk.

    Args:
        files: a pattern, or a list of paths.
        arrays: the arrays to read.
        chunk_rows: the rows that are read at once.
        batches: `samples`, `columns` or `tensors`.
        max_chunks: chunks in memory at most.
        max_bytes: bytes in memory at most.
        read_ahead: chunks that are read before they are needed.
        threads: how many of them at a time.
    """
    return Hdf5Dataset(
        files,
        arrays,
        chunk_rows=chunk_rows,
        batches=batches,
        max_chunks=max_chunks,
        max_bytes=max_bytes,
        read_ahead=read_ahead,
        threads=threads,
    )


def of_zarr(
    folder: Group,
    arrays: FieldNames = None,
    chunk_rows: int | None = None,
    missing_chunks: MissingChunks = "raise",
    batches: Batches = "samples",
    max_chunks: int = 4,
    max_bytes: int | None = None,
    read_ahead: int = 1,
    threads: int = 1,
) -> ZarrDataset:
    """Rows of arrays in a zarr group, by chunk.

    Args:
        folder: of the group.
        arrays: the arrays to read.
        chunk_rows: the rows that are read at once.
        missing_chunks: `raise`, or `fill` where chunks of the fill value were left out.
        batches: `samples`, `columns` or `tensors`.
        max_chunks: chunks in memory at most.
        max_bytes: bytes in memory at most.
        read_ahead: chunks that are read before they are needed.
        threads: how many of them at a time.
    """
    return ZarrDataset(
        folder,
        arrays,
        chunk_rows=chunk_rows,
        missing_chunks=missing_chunks,
        batches=batches,
        max_chunks=max_chunks,
        max_bytes=max_bytes,
        read_ahead=read_ahead,
        threads=threads,
    )


def of_sqlite(path: Group, table: str, columns: FieldNames = None) -> SqliteDataset:
    """Rows of a table of SQLite, by their numbers.

    Args:
        path: of the database.
        table: the table.
        columns: the columns to read.
    """
    return SqliteDataset(path, table, columns)


FORMATS: Final[dict[str, Callable[..., Any]]] = {
    "arrow": of_record_batches,
    "hdf5": of_hdf5,
    "parquet": of_row_groups,
    "sqlite": of_sqlite,
    "zarr": of_zarr,
    "tokens": of_tokens,
}
"""The kinds, by name."""
