"""What the committed folders of litData hold, which its package wrote: `write_samples`."""

import numpy as np
import torch


def row_of(row):
    """A sample of many kinds of values."""
    return {
        "id": row - 5,
        "text": f"rów {row}" * (row % 3),
        "data": bytes(range(row)),
        "real": row / 3,
        "flag": row % 2 == 0,
        "array": np.arange(row + 1, dtype=np.uint16),
        "matrix": np.full((row % 3 + 1, 2), row, np.int64),
        "tensor": torch.arange(row % 4, dtype=torch.int32),
        "square": torch.full((2, row % 2 + 1), row / 2),
        "nested": [row, (f"a{row}", {"z": 1, "b": 2.5})],
    }


def plain_of(row):
    """A sample that litData keeps as a row of a table of Arrow's."""
    return {"id": row, "more": {"numbers": [1] * row, "none": None}}


def tokens_of(row):
    return torch.arange(row * 10, row * 10 + 3 + row, dtype=torch.int32)


def pickled_of(row):
    return {"id": row, "any": {1, row}}


def image_of(row):
    from PIL import Image  # noqa: PLC0415  # an extra

    return {"id": row, "image": Image.fromarray(np.full((4, 6, 3), row, np.uint8))}


FOLDERS = {
    "plain": (None, row_of),
    "chunk": ("chunk", row_of),
    "batch": ("batch", row_of),
    "sample": ("sample", row_of),
    "rows": (None, plain_of),
    "rows_packed": ("batch", plain_of),
    "images": (None, image_of),
    "pickled": (None, pickled_of),
    "tuples": (None, lambda row: (row, f"a{row}")),
    "texts": (None, lambda row: "x" * row),
}
"""The committed folders: what is compressed, and the samples."""
