"""The index of a dataset of MDS files. Standard library only."""

import json
from pathlib import Path
from typing import Any


def shard_of(name: str, size: int, samples: int, **others: Any) -> dict[str, Any]:
    """A file of so many bytes in an index, with its columns and what else is given."""
    raw = {"basename": name, "bytes": size, "hashes": {}}
    nothing = dict.fromkeys(("compression", "size_limit", "zip_data"))
    fields = {"format": "mds", "version": 2, "hashes": [], "raw_data": raw, "samples": samples}
    return {**nothing, **fields, **others}


def write_index(folder: Path, shards: list[dict[str, Any]]) -> None:
    """Writes the index of some files into their folder."""
    folder.mkdir(exist_ok=True)
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}), encoding="utf-8")
