"""Compares datasets with the readers of the packages that wrote the files, on files of random content.

`python -m tests.storage.formats.compare_live KIND --seeds 20`, in an environment with the package of that
kind and samplerkit: litdata (`pip install torch==2.13.0 litdata==0.2.76 zstd pyarrow -e .`) or mindrecord
(`pip install mindspore==2.10.0 torch==2.13.0 -e .`, Python 3.11). LMDB is compared by the tests themselves.
"""

import argparse
import importlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import samplerkit as sk

Pairs = Iterator[tuple[list[Any], list[Any]]]
TEXT = "aé漢 "


def random_text(random: np.random.Generator) -> str:
    """A text of up to 40 letters, of one to three bytes each."""
    return "".join(random.choice(list(TEXT), int(random.integers(40))))


def litdata(random: np.random.Generator, folder: Path) -> Pairs:
    """A folder for each packing: what litData's dataset gives, and ours."""
    torch = importlib.import_module("torch")
    writer = importlib.import_module("litdata.streaming.writer")
    reader = importlib.import_module("litdata")

    def row_of(number: int) -> dict[str, Any]:
        size = int(random.integers(60))
        kind = random.choice(["int8", "uint16", "int64", "float32", "float64"])
        return {
            "id": number,
            "text": random_text(random),
            "data": random.bytes(size),
            "real": float(random.normal()),
            "flag": bool(random.integers(2)),
            "flat": random.integers(0, 100, size).astype(np.uint16),
            "square": random.integers(0, 100, (size % 4 + 1, 3)).astype(kind),
            "tensor": torch.from_numpy(random.normal(size=(2, size % 5 + 1))),
            "more": [number, (random_text(random), {"x": number / 3})],
        }

    count, plain = int(random.integers(1, 60)), bool(random.integers(2))
    rows = [row_of(number) for number in range(count)]
    if plain:
        rows = [{name: row[name] for name in ("id", "text", "real", "flag")} for row in rows]
    for packing in (None, "chunk", "batch", "sample"):
        place = folder / str(packing)
        place.mkdir()
        compression = f"zstd:{random.integers(1, 9)}" if packing else None
        file = writer.BinaryWriter(
            str(place),
            chunk_size=int(random.integers(1, 30)),
            compression=compression,
            compression_level=packing,
        )
        for number, row in enumerate(rows):
            file.add_item(number, row)
        file.done()
        file.merge()
        # Its reader deletes packed chunks after it has unpacked them.
        shutil.copytree(place, folder / f"{packing}-theirs")
        theirs = reader.StreamingDataset(str(folder / f"{packing}-theirs"))
        with sk.LitDataset(place) as ours:
            yield [theirs[number] for number in range(count)], ours.__getitems__(range(count))


def mindrecord(random: np.random.Generator, folder: Path) -> Pairs:
    """Files of random columns: what MindSpore's dataset gives, and ours."""
    records = importlib.import_module("mindspore.mindrecord")
    mindspore = importlib.import_module("mindspore.dataset")
    kinds = ["int32", "int64", "float32", "float64", "string", "bytes"]
    schema: dict[str, dict[str, Any]] = {"id": {"type": "int32"}}
    for number in range(int(random.integers(1, 6))):
        kind = str(random.choice(kinds))
        field: dict[str, Any] = {"type": kind}
        if kind not in {"string", "bytes"} and random.random() < 0.6:
            field["shape"] = [-1] if random.random() < 0.5 else [2, 3]
        schema[f"c{number}"] = field

    def value_of(field: dict[str, Any]) -> Any:
        kind = field["type"]
        if kind == "string":
            return random_text(random)
        if kind == "bytes":
            return random.bytes(int(random.integers(1, 4000)))
        many = int(random.integers(1, 9))
        shape = () if "shape" not in field else (many,) if field["shape"] == [-1] else (2, 3)
        if kind.startswith("float"):
            values = random.normal(size=shape).astype(kind)
        else:
            bits = random.integers(1, 31 if kind == "int32" else 62)
            values = random.integers(-(1 << bits), 1 << bits, shape).astype(kind)
        return values if shape else values.item()

    count = int(random.integers(2, 60))
    rows = [{name: value_of(field) for name, field in schema.items()} | {"id": n} for n in range(count)]
    files = int(random.integers(1, 3))
    file = records.FileWriter(str(folder / "a"), files, overwrite=True)
    file.set_header_size(1 << 15)
    file.set_page_size(1 << 15)
    file.add_schema(schema, "random")
    file.write_raw_data(rows)
    file.commit()
    paths = [str(folder / (f"a{number}" if files > 1 else "a")) for number in range(files)]
    theirs = mindspore.MindDataset(paths, shuffle=False, num_parallel_workers=1)
    read = list(theirs.create_dict_iterator(output_numpy=True, num_epochs=1))
    with sk.MindRecordDataset(paths, progress=False) as ours:
        samples = ours.__getitems__(range(len(ours)))
    yield sorted(read, key=_id_of), sorted(samples, key=_id_of)


def _id_of(row: dict[str, Any]) -> int:
    return int(row["id"])


def same(theirs: Any, ours: Any) -> bool:
    """Whether two values are equal, byte for byte; bytes may come as an array of them."""
    if isinstance(theirs, dict):
        return theirs.keys() == ours.keys() and all(same(theirs[key], ours[key]) for key in theirs)
    if isinstance(theirs, list | tuple):
        return type(theirs) is type(ours) and all(map(same, theirs, ours)) and len(theirs) == len(ours)
    if isinstance(ours, bytes):
        # numpy's fixed texts lose zeros at their end.
        value = bytes(theirs) if not isinstance(theirs, np.ndarray) else theirs.item()
        return value == ours or (isinstance(theirs, np.ndarray) and value == ours.rstrip(b"\0"))
    if isinstance(ours, str):
        return str(theirs) == ours
    left, right = np.asarray(theirs), np.asarray(ours)
    return (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())


def main() -> None:
    """Compares, and prints how much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["litdata", "mindrecord"])
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    files = samples = 0
    for seed in range(arguments.seeds):
        with tempfile.TemporaryDirectory() as folder:
            for theirs, ours in globals()[arguments.kind](np.random.default_rng(seed), Path(folder)):
                assert len(theirs) == len(ours), seed
                for number, pair in enumerate(zip(theirs, ours, strict=True)):
                    assert same(*pair), (seed, number, pair)
                files, samples = files + 1, samples + len(ours)
    sys.stdout.write(f"{arguments.kind}: {samples} samples of {files} data sets are the same\n")


if __name__ == "__main__":
    main()
