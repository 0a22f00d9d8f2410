"""What the committed folders of MDS hold, which its package wrote: `write_samples`; and a shard of ours."""

import decimal
import json
import struct

import numpy as np

COMPRESSIONS = {
    "plain": (None, ["sha1"]),
    "bz2": ("bz2:9", ["sha256", "xxh64"]),
    "gz": ("gz", ["md5"]),
    "zstd": ("zstd:7", ["sha1", "xxh64"]),
    "br": ("br:5", ["blake2s"]),
    "snappy": ("snappy", ["sha3_256", "xxh128"]),
    "bare": ("zstd", []),
}
"""The committed folders: how each is compressed, and its digests."""

COLUMNS = {
    "id": "int",
    "text": "str",
    "data": "bytes",
    "fixed": "ndarray:float32:2,2",
    "typed": "ndarray:uint16",
    "free": "ndarray",
    "small": "int8",
    "large": "uint64",
    "half": "float16",
    "digits": "str_int",
    "real": "str_float",
    "exact": "str_decimal",
    "json": "json",
}


def row_of(row):
    kinds = [np.int8, np.float64, np.uint32]
    return {
        "id": row - 5,
        "text": f"rów {row}" * (row % 3),
        "data": bytes(range(row)),
        "fixed": np.arange(4, dtype=np.float32).reshape(2, 2) * row,
        "typed": np.arange(row + 1, dtype=np.uint16),
        "free": np.full((row % 3 + 1, 300 if row == 7 else 2), row, kinds[row % 3]),
        "small": np.int8(-row),
        "large": np.uint64(2**64 - 1 - row),
        "half": np.float16(row / 4),
        "digits": 10**30 + row,
        "real": row / 3,
        "exact": decimal.Decimal(row) / 8,
        "json": {"row": row, "of": [None, True, "x"]},
    }


def image_of(row):
    from PIL import Image  # noqa: PLC0415  # an extra

    values = (np.arange(8 * 6 * 3) * (row + 3) % 256).astype(np.uint8)
    return Image.fromarray(values.reshape(6, 8, 3))


def shard(rows):
    """The bytes of a shard of integers and texts."""
    samples = []
    for row in rows:
        text = f"row {row}".encode() * (row % 4)
        samples.append(struct.pack("<Iq", len(text), row) + text)
    config = {"column_encodings": ["int", "str"], "column_names": ["id", "text"], "column_sizes": [8, None]}
    header = json.dumps({"version": 2, "format": "mds", **config}, sort_keys=True).encode()
    head = 4 + 4 * (len(samples) + 1) + len(header)
    ends = np.cumsum([head, *map(len, samples)]).astype("<u4")
    return struct.pack("<I", len(samples)) + ends.tobytes() + header + b"".join(samples), config
