"""Makes one catalogue of all files, or packs a folder of files into shards, with Ray Data.

python docs/examples/catalogue_on_ray.py catalogue "/data/train/*.parquet" /data/train.skcat
python docs/examples/catalogue_on_ray.py catalogue "s3://bucket/{000000..099999}.tar" s3://bucket/train.skcat
python docs/examples/catalogue_on_ray.py pack /data/images /data/shards --samples 10000

If it is stopped, run the same command again: finished parts and shards are kept. Each gets its final name
when it is complete. On a running cluster, set RAY_ADDRESS=auto; paths must be the same on all machines.
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
    """Makes a dataset of tasks, one row and one block each."""
    return ray.data.from_items(items, override_num_blocks=len(items))


def catalogue(files: list[str], out: str, reader: str | None, part_files: int) -> None:
    """Makes the parts on the cluster, and joins them locally."""

    def run_task(task: dict[str, Any]) -> dict[str, str]:
        return {"part": make_part([str(path) for path in task["files"]], f"{out}.parts", reader)}

    parts = tasks([{"files": part} for part in parts_of(files, part_files)]).map(run_task)
    whole = join_parts([row["part"] for row in parts.take_all()], out)
    print(f"{out}: {int(whole.samples.sum())} samples in {whole.num_files} files")


def pack(source: str, folder: str, samples: int) -> None:
    """Packs shards of `samples` samples; which samples are in a shard depends only on the files."""
    contents = list(samples_in(Path(source))[0].items())

    def run_task(task: dict[str, Any]) -> dict[str, str]:
        read = (
            {"__key__": key, **{field: Path(source, path).read_bytes() for field, path in files}}
            for key, files in json.loads(task["samples"])
        )
        return {"shard": pack_shard(read, task["shard"])}

    Path(folder).mkdir(parents=True, exist_ok=True)
    shards = [
        {"shard": f"{folder}/train-{number:06}.tar", "samples": json.dumps(contents[start : start + samples])}
        for number, start in enumerate(range(0, len(contents), samples))
    ]
    print(f"{folder}: {len(contents)} samples in {len(tasks(shards).map(run_task).take_all())} shards")


def main() -> None:
    """Runs the command."""
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
    args = parser.parse_args()
    ray.init(include_dashboard=False)
    if args.command == "catalogue":
        catalogue(args.files, os.fspath(args.out), args.reader, args.part_files)
    else:
        pack(args.source, args.folder, args.samples)


if __name__ == "__main__":
    main()
