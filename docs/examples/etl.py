"""Shards to shards: reads tar shards, changes each sample, writes new shards; in parallel, a process a shard.

python docs/examples/etl.py "raw/train-{000..127}.tar" small --side 256 --processes 8
python docs/examples/etl.py "https://host/train-{000..127}.tar" small
python docs/examples/etl.py                                   (makes shards of its own, and shows it on these)

Images are made smaller, broken ones are dropped, and each sample gets a `.json` with its former size. Stopped
half way, in whatever way, the same command goes on: shards that are finished are not done again. A shard and
its index get their names when they are complete, and last its report, `train-000.json`, with what was
counted. Needs Pillow.
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


def changed(sample: dict[str, Any], side: int) -> dict[str, Any] | None:
    """Gives a sample as it is to be, None to drop it. This is the part to write anew for your own data."""
    try:
        with Image.open(io.BytesIO(sample["jpg"])) as image:
            width, height = image.size
            smaller = image.convert("RGB")
    except NOT_AN_IMAGE:
        return None
    smaller.thumbnail((side, side))  # it keeps the shape, and makes nothing larger
    stream = io.BytesIO()
    smaller.save(stream, "JPEG", quality=90)
    return {**sample, "jpg": stream.getvalue(), "json": {"width": width, "height": height}}


def convert(shard: str, folder: Path, side: int) -> dict[str, Any]:
    """Makes one new shard of one shard, in this process, and gives its report."""
    name = name_of(shard)
    work = folder / f".{name}.work"
    shutil.rmtree(work, ignore_errors=True)  # of a run that was killed
    work.mkdir()
    counts = Counter(read=0, written=0, dropped=0)
    with TarWriter(f"{work}/0.tar") as writer:  # if all is dropped, an empty tar
        for sample in TarDataset(shard, progress=False):
            counts["read"] += 1
            new = changed(sample, side)
            if new is None:
                counts["dropped"] += 1
            else:
                writer.write(new)
                counts["written"] += 1
    report = {"shard": name, "side": side, **counts}
    (work / "report.json").write_text(json.dumps(report) + "\n", encoding="utf-8")
    # The report comes last: a shard is finished when it has one.
    moves = [("0.tar.skidx", f"{name}.skidx"), ("0.tar", name), ("report.json", f"{Path(name).stem}.json")]
    for made, final in moves:
        (work / made).replace(folder / final)
    work.rmdir()
    return report


def name_of(shard: str) -> str:
    """Gives the name of a shard without its folder; of a URL without its query."""
    return Path(urlsplit(shard).path if "://" in shard else shard).name


def reports(folder: Path, names: set[str], side: int) -> Iterator[dict[str, Any]]:
    """Reads the reports of the shards that are finished."""
    for name in sorted(names):
        path = folder / f"{Path(name).stem}.json"
        if path.exists():
            report = json.loads(path.read_text(encoding="utf-8"))
            if report["side"] != side:
                sys.exit(f"{folder} holds shards of side {report['side']}; take another folder for {side}")
            yield report


def run(shards: list[str], folder: Path, side: int, processes: int) -> int:
    """Converts all shards that are not finished; gives the exit code."""
    names = {name_of(shard) for shard in shards}
    if len(names) < len(shards):
        sys.exit("two shards have one name; write them into different folders")
    folder.mkdir(parents=True, exist_ok=True)
    finished = {report["shard"]: report for report in reports(folder, names, side)}
    left = [shard for shard in shards if name_of(shard) not in finished]
    print(f"{len(shards)} shards, {len(finished)} of them finished before", flush=True)
    failures = 0
    with ProcessPoolExecutor(max(1, min(processes, len(left)))) as pool:
        jobs = {pool.submit(convert, shard, folder, side): shard for shard in left}
        for job in as_completed(jobs):
            try:
                report = job.result()
            except (sk.SamplerkitError, OSError) as error:  # this shard failed; the others go on
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
    """Writes JPEG images of stripes into shards, and some that are cut off."""
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
    """Understands the command line."""
    parser = argparse.ArgumentParser(description="Makes the images of tar shards smaller.")
    parser.add_argument("shards", nargs="?", help="as in 'raw/train-{000..127}.tar'; paths or URLs")
    parser.add_argument("folder", nargs="?", type=Path, help="where the new shards are written")
    parser.add_argument("--side", type=int, default=256, help="of the images, at most")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    if given.shards is not None and given.folder is not None:
        return run(list(archive_names(given.shards)), given.folder, given.side, given.processes)
    with TemporaryDirectory() as temporary:
        shards = write_stripes(f"{temporary}/stripes-%03d.tar")
        return run(shards, Path(temporary) / "small", side=64, processes=2)


if __name__ == "__main__":
    sys.exit(main())
