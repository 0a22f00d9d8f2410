"""What the committed files of MindRecord hold, which MindSpore wrote: `write_samples`."""

from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[2] / "data" / "formats" / "mindrecord"

EVERY = {
    "id": {"type": "int32"},
    "large": {"type": "int64"},
    "half": {"type": "float32"},
    "real": {"type": "float64"},
    "text": {"type": "string"},
    "data": {"type": "bytes"},
    "small": {"type": "int32", "shape": [-1]},
    "wide": {"type": "int64", "shape": [-1]},
    "square": {"type": "float32", "shape": [2, 2]},
    "pair": {"type": "float64", "shape": [-1]},
}


def row_of(row):
    """A row of all kinds of columns."""
    return {
        "id": row - 5,
        "large": (1 << 40) + row,
        "half": row / 2,
        "real": row / 7,
        "text": f"rów {row}" * (row % 3),
        "data": bytes(range(row)),
        "small": np.arange(row % 4 + 1, dtype=np.int32),
        "wide": (np.arange(row + 1, dtype=np.int64) - 1) * 10 ** (row % 18),
        "square": np.full((2, 2), row / 2, np.float32),
        "pair": np.arange(2) / 3,
    }


def plain_of(row):
    return {"id": row, "data": bytes([row]) * (3000 if row < 14 else 100)}


FILES = {
    "every": (EVERY, [row_of(row) for row in range(20)]),
    "rows": ({"id": {"type": "int32"}, "data": {"type": "bytes"}}, [plain_of(row) for row in range(28)]),
    "integers": (
        {"id": {"type": "int32"}, "wide": {"type": "int64", "shape": [-1]}},
        [{"id": row, "wide": row_of(row)["wide"]} for row in range(20)],
    ),
    "texts": (
        {"id": {"type": "int32"}, "text": {"type": "string"}},
        [{"id": row, "text": "x" * (40 * row)} for row in range(20)],
    ),
}
"""The committed files: a schema, and the rows."""
