"""What the committed store of LMDB holds, which its package wrote: `write_samples`."""

from pathlib import Path

import numpy as np

FILE = Path(__file__).parents[2] / "data" / "formats" / "lmdb" / "data.mdb"


def item_of(row):
    """The key and the value of a row; some values are longer than a page."""
    size = 2500 if row % 7 == 5 else row * 5
    return b"%04d" % row, np.random.default_rng(row).bytes(size)


def items(*, other):
    """All of one database, in the order of their keys."""
    return [item_of(row) for row in range(50) if (row % 4 == 3) == other and row]
