"""Packs lengths by TRL's strategies, in an interpreter that has it: what `tests.benchmarks.packs` measures.

    PYTHON -m tests.benchmarks.packs_of_trl LENGTHS.npy SEQ_LEN

It imports numpy, datasets and TRL, nothing of samplerkit.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from importlib.metadata import version

import numpy as np

STRATEGIES = {"bfd": "bfd", "bfd in batches of 1,000": "bfd", "bfd_split": "bfd_split", "wrapped": "wrapped"}


def main() -> None:
    """Packs documents whose tokens are their number, and prints what came out."""
    lengths = np.load(sys.argv[1])
    seq_len = int(sys.argv[2])
    pack = importlib.import_module("trl").pack_dataset
    datasets = importlib.import_module("datasets")
    arrow = importlib.import_module("pyarrow")
    datasets.disable_caching()
    datasets.disable_progress_bars()
    edges = np.append(0, np.cumsum(lengths)).astype(np.int32)
    numbers = np.repeat(np.arange(lengths.size, dtype=np.int32), lengths)
    column = arrow.ListArray.from_arrays(arrow.array(edges), arrow.array(numbers))
    said = []
    for title, strategy in STRATEGIES.items():
        dataset = datasets.Dataset(arrow.table({"input_ids": column}))
        size = 1000 if "1,000" in title else lengths.size
        begin = time.process_time()
        try:
            packed = pack(dataset, seq_len, strategy, {"batch_size": size})
        except ValueError as error:
            print(f"{title}: {error}", file=sys.stderr)
            continue
        seconds = time.process_time() - begin
        table = packed.with_format("arrow")
        packs, kept, parts = 0, 0, np.zeros(lengths.size, dtype=np.int64)
        for batch in table.iter(batch_size=4096):
            lists = batch["input_ids"]
            for chunk in lists.chunks if hasattr(lists, "chunks") else [lists]:
                offsets = np.asarray(chunk.offsets) - int(np.asarray(chunk.offsets)[0])
                flat = np.asarray(chunk.flatten())
                packs += offsets.size - 1
                kept += flat.size
                where = np.repeat(np.arange(offsets.size - 1), np.diff(offsets))
                is_first = np.append(True, (np.diff(flat) != 0) | (np.diff(where) != 0)) if flat.size else []
                np.add.at(parts, flat[is_first], 1)
        said.append(
            {
                "version": version("trl"),
                "strategy": title,
                "packs": packs,
                "kept": kept,
                "cut": int((parts > 1).sum()),
                "seconds": seconds,
            }
        )
    print(json.dumps(said))


if __name__ == "__main__":
    main()
