"""Stand-ins for the data that webdataset's own tests read, as far as a checkout lacks them."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image
from webdataset import tenbin

REMOTE_SHARDS = [*(f"{number:06}" for number in range(100)), "000321"]


def make(testdata: Path) -> list[str]:
    """Makes what is not there; gives the names of what was made."""
    testdata.mkdir(exist_ok=True)
    makers = {
        "imagenet-000000.tgz": _imagenet,
        "sample.tgz": lambda: [("10.cls", b"0"), ("10.png", _image("PNG", 60, 80))],
        "compressed.tar": lambda: [("hello.txt.gz", gzip.compress(b"hello\n"))],
        "tendata.tar": _tensors,
    }
    missing = [name for name in makers if not (testdata / name).exists()]
    for name in missing:
        write(testdata / name, makers[name]())
    return missing


def make_remote(folder: Path) -> None:
    """Makes the shards of photographs that the tests read from a web server."""
    folder.mkdir(parents=True, exist_ok=True)
    photograph = _image("JPEG", 300, 320)
    for number in REMOTE_SHARDS:
        files: list[tuple[str, bytes]] = []
        for sample in range(4):
            about = [{"LabelName": f"/m/{number}{sample}"}]
            files += [
                (f"{number}{sample}.jpg", photograph),
                (f"{number}{sample}.json", json.dumps(about).encode()),
            ]
        write(folder / f"openimages-train-{number}.tar", files)


def write(path: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Writes an archive, packed where its name says so."""
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def _imagenet() -> list[tuple[str, bytes]]:
    files: list[tuple[str, bytes]] = []
    for number in range(47):
        image = _image("PNG", *((793, 600) if number == 0 else (40 + number, 50)))
        fields = {"cls": str(number).encode(), "png": image, "wnid": b"n00000000", "xml": b"<annotation/>"}
        files += [(f"{number:02}.{name}", data) for name, data in fields.items()]
    return files


def _tensors() -> list[tuple[str, bytes]]:
    generator = np.random.default_rng(0)
    return [
        (f"{number:03}.ten", bytes(tenbin.encode_buffer(list(generator.random((2, 28, 28))))))
        for number in range(100)
    ]


def _image(kind: str, height: int, width: int) -> bytes:
    # Nothing that packs to a few bytes: some tests cut the archive after ten thousand.
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()
