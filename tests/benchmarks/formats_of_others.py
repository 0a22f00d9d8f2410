"""What reads the same data from a store without us: plain requests, pyarrow, and other packages' loaders."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.benchmarks.peer_litdata import litdata_loader, write_litdata

FILES, GROUPS, ROWS, TOKENS, BATCH = 4, 8, 512, 1024, 64
SAMPLES = FILES * GROUPS * ROWS
SECRET = {"key": "test-key", "secret": "test-secret"}


def write(filesystem: Any) -> tuple[list[str], int]:
    """Writes files of tokens; gives their URLs and the bytes of all."""
    pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    filesystem.call_s3("create_bucket", Bucket="bench")
    random, urls, size = np.random.default_rng(0), [], 0
    for number in range(FILES):
        rows = np.arange(GROUPS * ROWS) + number * GROUPS * ROWS
        tokens = random.integers(0, 1 << 31, (rows.size, TOKENS), dtype=np.int32)
        table = pa.table(
            {"id": rows, "tokens": pa.FixedSizeListArray.from_arrays(pa.array(tokens.ravel()), TOKENS)}
        )
        sink = pa.BufferOutputStream()
        parquet.write_table(table, sink, row_group_size=ROWS, use_dictionary=False, compression="none")
        data = sink.getvalue().to_pybytes()
        filesystem.pipe(f"bench/{number}.parquet", data)
        urls.append(f"s3://bench/{number}.parquet")
        size += len(data)
    return urls, size


def write_lit(filesystem: Any) -> str:
    """Writes the same samples as a folder of litData, a chunk as many as a row group has; gives its URL."""
    random = np.random.default_rng(0)
    tokens = (random.integers(0, 1 << 31, TOKENS, dtype=np.int32) for _ in range(SAMPLES))
    with tempfile.TemporaryDirectory() as folder:
        write_litdata(folder, ({"id": id, "tokens": row} for id, row in enumerate(tokens)), ROWS)
        filesystem.call_s3("create_bucket", Bucket="lit")
        for path in Path(folder).iterdir():
            filesystem.pipe(f"lit/train/{path.name}", path.read_bytes())
    return "s3://lit/train"


def hugging_face(urls: list[str], options: dict[str, Any]) -> Callable[[], int]:
    """Its reader of streams, shuffled by a buffer of as many rows as a block of PARTIAL has."""
    datasets = import_module("datasets")

    def read() -> int:
        made = datasets.load_dataset(
            "parquet", data_files=urls, storage_options=options, streaming=True, split="train"
        )
        shuffled = made.shuffle(seed=7, buffer_size=4 * ROWS).with_format("torch")
        return sum(batch["id"].numel() for batch in torch.utils.data.DataLoader(shuffled, batch_size=BATCH))

    return read


def litdata(url: str, options: dict[str, Any]) -> Callable[[], int]:
    """Its own loader, shuffled, with a cache that is empty."""
    # Its client refuses a store without TLS, and has no option for that.
    import_module("litdata.streaming.downloader")._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
    told = {
        "endpoint_url": options["endpoint_url"],
        "aws_access_key_id": options["key"],
        "aws_secret_access_key": options["secret"],
    }

    def read() -> int:
        with tempfile.TemporaryDirectory() as cache:
            loader = litdata_loader(
                url, BATCH, collate_fn=list, options={"cache_dir": cache, "storage_options": told}
            )
            return sum(len(batch) for batch in loader)

    return read


def plain(filesystem: Any, urls: list[str], options: dict[str, Any]) -> dict[str, Callable[[], None]]:
    """What the bytes cost without us: requests of whole objects and of row groups, and pyarrow's readers."""
    parquet, arrow = import_module("pyarrow.parquet"), import_module("pyarrow.fs")
    spans = []
    for url in urls:
        with filesystem.open(url) as file:
            footer = parquet.ParquetFile(file).metadata
        for number in range(footer.num_row_groups):
            columns = [footer.row_group(number).column(at) for at in range(footer.num_columns)]
            last = columns[-1].data_page_offset + columns[-1].total_compressed_size
            spans.append((url, columns[0].data_page_offset, last))

    def whole() -> None:
        for url in urls:
            filesystem.cat_file(url)

    def ranges(threads: int) -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda span: filesystem.cat_file(span[0], start=span[1], end=span[2]), spans))

    def groups() -> None:
        for url in urls:
            with filesystem.open(url, cache_type="none") as file:
                opened = parquet.ParquetFile(file)
                for number in range(opened.num_row_groups):
                    opened.read_row_group(number)

    store = arrow.S3FileSystem(
        access_key=SECRET["key"],
        secret_key=SECRET["secret"],
        endpoint_override=options["endpoint_url"].split("//")[1],
        scheme="http",
        region="us-east-1",
    )

    def scan() -> None:
        names = [url.removeprefix("s3://") for url in urls]
        data = import_module("pyarrow.dataset").dataset(names, filesystem=store, format="parquet")
        assert sum(batch.num_rows for batch in data.to_batches(batch_size=BATCH)) == SAMPLES

    return {
        "whole objects one by one, nothing parsed": whole,
        "row groups by s3fs one by one, nothing parsed": lambda: ranges(1),
        "row groups by s3fs, 4 at a time, nothing parsed": lambda: ranges(4),
        "pyarrow over s3fs, row group by row group": groups,
        "Arrow's scan of a dataset, its own client and threads": scan,
    }
