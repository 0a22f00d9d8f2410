"""Damage at random to a file: what is read then is an error, or what was written."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.testing.reader_contract import same


def damaged(whole, rng):
    """One truncation or one flipped bit."""
    if rng.random() < 0.3:
        return whole[: rng.integers(len(whole))]
    at, other = int(rng.integers(len(whole))), bytearray(whole)
    other[at] ^= 1 << int(rng.integers(8))
    return bytes(other)


def outcomes(path, make, samples, times, seed):
    """Counts what became of so much damage: `error`, `same`, and of other data where it was."""
    rng, whole = np.random.default_rng(seed), Path(path).read_bytes()
    found, others = Counter(), []
    for number in range(times):
        other = damaged(whole, rng)
        Path(path).write_bytes(other)
        dataset = None
        try:
            dataset = make()
            read = list(dataset.__getitems__(range(len(samples))))
            is_same = same(read, samples)
        except DatasetError:
            found["error"] += 1
        else:
            found["same" if is_same else "other"] += 1
            if not is_same:
                differ = next(
                    (at for at, (a, b) in enumerate(zip(whole, other, strict=False)) if a != b), len(other)
                )
                others.append((number, differ))
        finally:
            if dataset is not None:
                dataset.close()
    Path(path).write_bytes(whole)
    return found, others
