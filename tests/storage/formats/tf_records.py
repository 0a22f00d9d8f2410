"""Writes TFRecord files of `tf.train.Example` as the format says: no code of the package is used."""

import gzip
import struct
from pathlib import Path

import numpy as np


def crc32c(data):
    """Bit by bit, as the polynomial says."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 * (crc & 1))
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def varint(number):
    number &= (1 << 64) - 1
    encoded = b""
    while number > 127:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(features):
    """An Example of lists of bytes, of floats or of integers; None for a feature without a list."""
    entries = b""
    for name, values in features.items():
        if values is None:
            value = b""
        elif values and isinstance(values[0], bytes):
            value = field(1, b"".join(field(1, entry) for entry in values))
        elif values and isinstance(values[0], float):
            value = field(2, field(1, struct.pack(f"<{len(values)}f", *values)))
        else:
            value = field(3, field(1, b"".join(map(varint, values))))
        entries += field(1, field(1, name.encode()) + field(2, value))
    return field(1, entries)


def framed(record):
    length = struct.pack("<Q", len(record))
    return length + masked(length) + record + masked(record)


def write(path, records):
    data = b"".join(map(framed, records))
    Path(path).write_bytes(gzip.compress(data, mtime=0) if str(path).endswith(".gz") else data)


def features_of(row):
    """What the committed files hold, which TensorFlow wrote: `write_samples`."""
    return {
        "id": [row],
        "many": [b"a", b"", bytes(range(row))],
        "text": [f"row {row}".encode()],
        "tokens": [(-1) ** place * row * 31**place for place in range(row % 5)],
        "x": [row / 3, -1e30],
    }


def sample_of(row):
    """The same, as the dataset returns it with `id` as a scalar."""
    features = features_of(row)
    numbers = {"tokens": np.array(features["tokens"], np.int64), "x": np.array(features["x"], np.float32)}
    return {**features, **numbers, "id": np.int64(row)}
