"""Real files, and the writers that put them into tar shards."""

import gzip
import io
import json
import subprocess
import tarfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import webdataset
from PIL import Image
from webdataset import tariterators

from samplerkit.storage.tar.writer import TarWriter

Files = list[tuple[str, bytes]]


@cache
def python_sources() -> Files:
    """Source files of Python's own json and email packages, in folders, each with its size."""
    root = Path(json.__file__).parents[1]
    files = []
    for path in sorted([*(root / "json").glob("*.py"), *(root / "email").rglob("*.py")]):
        name = str(path.relative_to(root))
        data = path.read_bytes()
        files += [(name, data), (name.removesuffix(".py") + ".size.txt", str(len(data)).encode())]
    return files


@cache
def jpeg_tiles() -> Files:
    """Tiles of two photographs as JPEG files, each with the number of its photograph."""
    from sklearn.datasets import load_sample_images  # noqa: PLC0415  # which takes two seconds

    files = []
    for label, photo in enumerate(load_sample_images().images):
        for number in range(30):
            top, left = divmod(number, 6)
            tile = np.ascontiguousarray(photo[top * 64 : top * 64 + 64, left * 64 : left * 64 + 64])
            stream = io.BytesIO()
            Image.fromarray(tile).save(stream, "JPEG")
            key = f"photo{label}/tile_{number:03}"
            about = json.dumps({"top": top, "left": left})
            files += [(f"{key}.JPG", stream.getvalue()), (f"{key}.cls", str(label).encode())]
            files.append((f"{key}.meta.json", about.encode()))
    return files


def long_names() -> Files:
    """Files whose names do not fit into a header: of 100 to 300 bytes, some with letters beyond ASCII."""
    folders = "/".join(f"folder_{number:02}" for number in range(12))
    return [
        (f"{folders}/{'x' * length}{letter}.{extension}", f"{length}{letter}".encode())
        for length in (1, 90, 110, 160)
        for letter in ("", "é", "写")
        for extension in ("txt", "cls")
    ]


def two_part_names() -> Files:
    """Files of sizes around a block whose names fill both parts that ustar has for them."""
    folders = "/".join(["folder"] * 22) + "xx"  # 155 bytes
    sizes = (0, 1, 511, 512, 513, 8**5)
    return [(f"{folders}/{number:02}{'x' * 90}.txt", b"x" * size) for number, size in enumerate(2 * sizes)]


SOURCES = {
    "python": python_sources,
    "jpeg": jpeg_tiles,
    "names in two parts": two_part_names,
    "long names": long_names,
}


def write_by_tarfile(files: Files, path: Path, kind: int, **options: Any) -> None:
    """Writes a shard with Python's tarfile."""
    with tarfile.open(path, "w", format=kind, **options) as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(data), 1_700_000_000
            archive.addfile(member, io.BytesIO(data))


def write_by_gnu_tar(files: Files, path: Path, kind: str) -> None:
    """Writes a shard with the program tar, from files on disk."""
    folder = path.with_suffix(".folder")
    for name, data in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    names = "\0".join(name for name, _ in files).encode()
    command = ["tar", f"--format={kind}", "-C", str(folder), "--null", "-T", "-", "-cf", str(path)]
    subprocess.run(command, input=names, check=True)


def write_by_webdataset(files: Files, path: Path) -> None:
    """Writes a shard with webdataset's own writer, which takes samples."""
    with webdataset.TarWriter(str(path), encoder=False) as writer:
        for sample in as_samples(files):
            writer.write(sample)


def write_tar(shards: str | Path, samples: Iterable[dict[str, Any]], **options: Any) -> list[str]:
    """Writes samples with our writer; returns the paths of the shards."""
    with TarWriter(shards, **options) as writer:
        for sample in samples:
            writer.write(sample)
    return writer.paths


def write_by_samplerkit(files: Files, path: Path) -> None:
    """Writes a shard with our writer."""
    (shard,) = write_tar(f"{path.with_suffix('')}-%d.tar", as_samples(files))
    Path(shard).rename(path)


def as_samples(files: Files) -> list[dict[str, Any]]:
    """Groups files into samples, for writers that take those."""
    samples: list[dict[str, Any]] = []
    for name, data in files:
        folder, _, base = name.rpartition("/")
        stem, _, extension = base.partition(".")
        key = f"{folder}/{stem}" if folder else stem
        if not samples or samples[-1]["__key__"] != key:
            samples.append({"__key__": key})
        samples[-1][extension.lower()] = data
    return samples


WRITERS = {
    "tarfile ustar": lambda files, path: write_by_tarfile(files, path, tarfile.USTAR_FORMAT),
    "tarfile gnu": lambda files, path: write_by_tarfile(files, path, tarfile.GNU_FORMAT),
    "tarfile pax": lambda files, path: write_by_tarfile(files, path, tarfile.PAX_FORMAT),
    "tar ustar": lambda files, path: write_by_gnu_tar(files, path, "ustar"),
    "tar gnu": lambda files, path: write_by_gnu_tar(files, path, "gnu"),
    "tar pax": lambda files, path: write_by_gnu_tar(files, path, "pax"),
    "tar v7": lambda files, path: write_by_gnu_tar(files, path, "v7"),
    "webdataset": write_by_webdataset,
    "samplerkit": write_by_samplerkit,
}


def write(path: Path, files: Files, writer: str = "tarfile ustar") -> Path:
    """Writes a shard; one whose name ends in gz is compressed."""
    if path.suffix in {".gz", ".tgz"}:
        plain = path.with_suffix(".plain")
        WRITERS[writer](files, plain)
        path.write_bytes(gzip.compress(plain.read_bytes()))
    else:
        WRITERS[writer](files, path)
    return path


def read_by_webdataset(paths: list[Path]) -> list[dict[str, Any]]:
    """Reads shards with webdataset's own reader."""
    samples = []
    for path in paths:
        # webdataset leaves the files open that it opens itself.
        with path.open("rb") as stream:
            files = tariterators.tar_file_expander([{"url": str(path), "stream": stream}])
            samples += tariterators.group_by_keys(files)
    return samples
