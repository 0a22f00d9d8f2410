"""Reads tar shards, changes each sample, and writes new shards, with one process per shard.

python docs/examples/etl.py "raw/train-{000..127}.tar" small --side 256 --processes 8
python docs/examples/etl.py "https://host/train-{000..127}.tar" small
python docs/examples/etl.py                                   (makes its own shards)

Images are scaled down, broken ones are dropped, and each sample gets a `.json` with its original size. If it
is stopped, run the same command again: finished shards are kept. A shard and its index get their final names
when they are complete, and then its report, `train-000.json`, is written. Needs Pillow.
"""
# ruff: noqa: T201  # an example prints

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from PIL import Image, UnidentifiedImageError

import samplerkit as sk
from samplerkit.storage.tar.dataset import TarDataset
from samplerkit.storage.tar.read.shards import archive_names
from samplerkit.storage.tar.writer import TarWriter

NOT_AN_IMAGE = (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""What Pillow raises for broken images."""


def convert_sample(sample: dict[str, Any], side: int) -> dict[str, Any] | None:
    """Returns the changed sample, or None to drop it. Replace this for your own data."""
    try:
        with Image.open(io.BytesIO(sample["jpg"])) as image:
            width, height = image.size
            smaller = image.convert("RGB")
    except NOT_AN_IMAGE:
        return None
    smaller.thumbnail((side, side))  # keeps the aspect ratio, and never enlarges
    stream = io.BytesIO()
    smaller.save(stream, "JPEG", quality=90)
    return {**sample, "jpg": stream.getvalue(), "json": {"width": width, "height": height}}


def convert(shard: str, folder: Path, side: int) -> dict[str, Any]:
    """Converts one shard in this process; returns its report."""
    name = name_of(shard)
    work = folder / f".{name}.work"
    shutil.rmtree(work, ignore_errors=True)  # of a run that was killed
    work.mkdir()
    counts = Counter(read=0, written=0, dropped=0)
    with TarWriter(f"{work}/0.tar") as writer:  # if all samples are dropped, an empty tar
        for sample in TarDataset(shard, progress=False):
            counts["read"] += 1
            new = convert_sample(sample, side)
            if new is None:
                counts["dropped"] += 1
            else:
                writer.write(new)
                counts["written"] += 1
    report = {"shard": name, "side": side, **counts}
    (work / "report.json").write_text(json.dumps(report) + "\n", encoding="utf-8")
    # The report comes last: a shard is finished when it has one.
    moves = [("0.tar.skidx", f"{name}.skidx"), ("0.tar", name), ("report.json", f"{Path(name).stem}.json")]
    for temporary, final in moves:
        (work / temporary).replace(folder / final)
    work.rmdir()
    return report


def name_of(shard: str) -> str:
    """Returns the file name of a path or URL, without its query."""
    return Path(urlsplit(shard).path if "://" in shard else shard).name


def reports(folder: Path, names: set[str], side: int) -> Iterator[dict[str, Any]]:
    """Yields the reports of finished shards."""
    for name in sorted(names):
        path = folder / f"{Path(name).stem}.json"
        if path.exists():
            report = json.loads(path.read_text(encoding="utf-8"))
            if report["side"] != side:
                sys.exit(f"{folder} holds shards of side {report['side']}; take another folder for {side}")
            yield report


def run(shards: list[str], folder: Path, side: int, processes: int) -> int:
    """Converts all unfinished shards; returns the exit code."""
    names = {name_of(shard) for shard in shards}
    if len(names) < len(shards):
        sys.exit("two shards have one name; write them into different folders")
    folder.mkdir(parents=True, exist_ok=True)
    finished = {report["shard"]: report for report in reports(folder, names, side)}
    remaining = [shard for shard in shards if name_of(shard) not in finished]
    print(f"{len(shards)} shards, {len(finished)} of them finished before", flush=True)
    failures = 0
    with ProcessPoolExecutor(max(1, min(processes, len(remaining)))) as pool:
        jobs = {pool.submit(convert, shard, folder, side): shard for shard in remaining}
        for job in as_completed(jobs):
            try:
                report = job.result()
            except (sk.SamplerkitError, OSError) as error:  # this shard failed; the others continue
                failures += 1
                print(f"failed: {name_of(jobs[job])}: {error}", file=sys.stderr)
                continue
            finished[report["shard"]] = report
            print(f"{report['shard']}: {report['written']} of {report['read']}", flush=True)
    total = Counter({key: sum(report[key] for report in finished.values()) for key in ("read", "written")})
    counted = f"{total['read']} samples read, {total['written']} written"
    print(f"{counted}, {total['read'] - total['written']} dropped, {failures} shards failed")
    return 1 if failures else 0


def write_stripes(pattern: str) -> list[str]:
    """Writes JPEG images of stripes into shards; some are truncated."""
    with TarWriter(pattern, samples_per_shard=50) as writer:
        for number in range(200):
            stream = io.BytesIO()
            stripes = Image.linear_gradient("L").resize((160 + number, 120)).rotate(number)
            stripes.save(stream, "JPEG")
            data = stream.getvalue()
            jpg = data[: len(data) // 3] if number % 40 == 7 else data
            writer.write({"__key__": f"{number:04}", "jpg": jpg, "cls": number % 10})
    return list(writer.paths)


def main() -> int:
    """Parses the command line, and runs the conversion."""
    parser = argparse.ArgumentParser(description="Makes the images of tar shards smaller.")
    parser.add_argument("shards", nargs="?", help="as in 'raw/train-{000..127}.tar'; paths or URLs")
    parser.add_argument("folder", nargs="?", type=Path, help="where the new shards are written")
    parser.add_argument("--side", type=int, default=256, help="the largest side of the images, in pixels")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    if args.shards is not None and args.folder is not None:
        return run(list(archive_names(args.shards)), args.folder, args.side, args.processes)
    with TemporaryDirectory() as temporary:
        shards = write_stripes(f"{temporary}/stripes-%03d.tar")
        return run(shards, Path(temporary) / "small", side=64, processes=2)


if __name__ == "__main__":
    sys.exit(main())
