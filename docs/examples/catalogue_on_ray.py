"""One catalogue of all files, made by Ray Data; or shards of a folder of files, packed by it.

python docs/examples/catalogue_on_ray.py catalogue "/data/train/*.parquet" /data/train.skcat
python docs/examples/catalogue_on_ray.py catalogue "s3://bucket/{000000..099999}.tar" s3://bucket/train.skcat
python docs/examples/catalogue_on_ray.py pack /data/images /data/shards --samples 10000

Stopped in whatever way, the same command goes on: a part and a shard get their names when they are whole, and
what is there is not made again. On a cluster that runs, set RAY_ADDRESS=auto; paths must be the same on all
machines.
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import ray

from samplerkit.storage.catalogue.making import PART_FILES, join_parts, make_part, parts_of
from samplerkit.storage.tar.pack import pack_shard, samples_in


def tasks(items: list[dict[str, Any]]) -> Any:
    """Makes a dataset of tasks, each of them a row and a block of its own."""
    return ray.data.from_items(items, override_num_blocks=len(items))


def catalogue(files: list[str], out: str, reader: str | None, part_files: int) -> None:
    """Makes the parts on the cluster, and joins them here."""

    def made(task: dict[str, Any]) -> dict[str, str]:
        return {"part": make_part([str(path) for path in task["files"]], f"{out}.parts", reader)}

    parts = tasks([{"files": part} for part in parts_of(files, part_files)]).map(made)
    whole = join_parts([row["part"] for row in parts.take_all()], out)
    print(f"{out}: {int(whole.samples.sum())} samples in {whole.num_files} files")


def pack(source: str, folder: str, samples: int) -> None:
    """Packs shards of so many samples; which sample stands in which shard hangs on nothing but the files."""
    found = list(samples_in(Path(source))[0].items())

    def made(task: dict[str, Any]) -> dict[str, str]:
        read = (
            {"__key__": key, **{field: Path(source, path).read_bytes() for field, path in files}}
            for key, files in json.loads(task["samples"])
        )
        return {"shard": pack_shard(read, task["shard"])}

    Path(folder).mkdir(parents=True, exist_ok=True)
    shards = [
        {"shard": f"{folder}/train-{number:06}.tar", "samples": json.dumps(found[start : start + samples])}
        for number, start in enumerate(range(0, len(found), samples))
    ]
    print(f"{folder}: {len(found)} samples in {len(tasks(shards).map(made).take_all())} shards")


def main() -> None:
    """Does what the command says."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    of_files = commands.add_parser("catalogue")
    of_files.add_argument("files", nargs="+")
    of_files.add_argument("out")
    of_files.add_argument("--reader")
    of_files.add_argument("--part-files", type=int, default=PART_FILES)
    of_folder = commands.add_parser("pack")
    of_folder.add_argument("source")
    of_folder.add_argument("folder")
    of_folder.add_argument("--samples", type=int, default=10_000)
    given = parser.parse_args()
    ray.init(include_dashboard=False)
    if given.command == "catalogue":
        catalogue(given.files, os.fspath(given.out), given.reader, given.part_files)
    else:
        pack(given.source, given.folder, given.samples)


if __name__ == "__main__":
    main()
