"""Random damage to a file: reading it is an error, or returns what was written."""

import faulthandler
import os
from collections import Counter
from pathlib import Path

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.testing import DatasetContract
from samplerkit.testing.contract import same
from tests.storage.crowd import Child


class UncheckedContract(DatasetContract):
    """For data without checksums: wrong bytes in a part of a file are not detected."""

    def lies(self, whole):
        return super().lies(whole)[:2]


TIMES = int(os.environ.get("SAMPLERKIT_DAMAGES", "60"))


def plain(sample):
    """Numpy's values as Python's, as pyarrow returns them."""
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in sample.items()}


def cut_or_flip(whole, rng):
    """One truncation or one flipped bit."""
    if rng.random() < 0.3:
        return whole[: rng.integers(len(whole))]
    at, data = int(rng.integers(len(whole))), bytearray(whole)
    data[at] ^= 1 << int(rng.integers(8))
    return bytes(data)


def splice(whole, rng):
    """A copy of a part of the file replaces another one as long, or is inserted between two bytes."""
    start, at, size = rng.integers(len(whole), size=3).tolist()
    part = whole[start : start + size]
    return whole[:at] + part + whole[at + len(part) * int(rng.integers(2)) :]


def outcome(make, samples):
    """How a damaged file is read: `error`, `same` or `other`."""
    dataset = None
    try:
        dataset = make()
        return "same" if same(list(dataset.__getitems__(range(len(samples)))), samples) else "other"
    except DatasetError:
        return "error"
    finally:
        if dataset is not None:
            dataset.close()


def outcome_in_a_fork(make, samples):
    """The same in a process of its own: also `signal`, where one ends it."""

    def read():
        faulthandler.disable()
        return outcome(make, samples)

    child = Child(read)
    child.process.join(60)
    return "signal" if child.process.exitcode < 0 else child.result()


def outcomes(path, make, samples, times, seed, read=outcome, damage=cut_or_flip):
    """Counts the outcomes of so many damages, and returns the places of those with other data."""
    rng, whole = np.random.default_rng(seed), Path(path).read_bytes()
    counts, others = Counter(), []
    for number in range(times):
        data = damage(whole, rng)
        Path(path).write_bytes(data)
        result = read(make, samples)
        counts["signal of a cut" if result == "signal" and len(data) < len(whole) else result] += 1
        if result == "other":
            differ = (at for at, (a, b) in enumerate(zip(whole, data, strict=False)) if a != b)
            others.append((number, next(differ, len(data))))
    Path(path).write_bytes(whole)
    return counts, others
