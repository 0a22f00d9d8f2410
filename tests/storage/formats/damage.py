"""Damage at random to a file: what is read then is an error, or what was written."""

from __future__ import annotations

import faulthandler
import os
from collections import Counter
from pathlib import Path

import numpy as np

from samplerkit.errors import DatasetError
from samplerkit.testing import DatasetContract
from samplerkit.testing.contract import same


class UncheckedContract(DatasetContract):
    """Of data without checksums: of lies only those are found that lead somewhere."""

    def lies(self, whole):
        return super().lies(whole)[:2]


OUTCOMES = ("same", "error", "other")
TIMES = int(os.environ.get("SAMPLERKIT_DAMAGES", "60"))


def plain(sample):
    """What numpy gives, as pyarrow itself does."""
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in sample.items()}


def damaged(whole, rng):
    """One truncation or one flipped bit."""
    if rng.random() < 0.3:
        return whole[: rng.integers(len(whole))]
    at, other = int(rng.integers(len(whole))), bytearray(whole)
    other[at] ^= 1 << int(rng.integers(8))
    return bytes(other)


def spliced(whole, rng):
    """A part of the file stands in place of another one as long, or between two bytes."""
    start, at, size = rng.integers(len(whole), size=3).tolist()
    part = whole[start : start + size]
    return whole[:at] + part + whole[at + len(part) * int(rng.integers(2)) :]


def outcome(make, samples):
    """What becomes of a damaged file: `error`, `same` or `other`."""
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
    """The same in a process of its own: also `signal`, where that is ended."""
    child = os.fork()
    if not child:
        try:
            faulthandler.disable()
            os._exit(OUTCOMES.index(outcome(make, samples)))
        finally:
            os._exit(99)
    status = os.waitpid(child, 0)[1]
    return "signal" if os.WIFSIGNALED(status) else OUTCOMES[os.WEXITSTATUS(status)]


def outcomes(path, make, samples, times, seed, read=outcome, damage=damaged):
    """Counts what became of so much damage, and gives the places of that by which other data were read."""
    rng, whole = np.random.default_rng(seed), Path(path).read_bytes()
    found, others = Counter(), []
    for number in range(times):
        other = damage(whole, rng)
        Path(path).write_bytes(other)
        became = read(make, samples)
        found["signal of a cut" if became == "signal" and len(other) < len(whole) else became] += 1
        if became == "other":
            differ = (at for at, (a, b) in enumerate(zip(whole, other, strict=False)) if a != b)
            others.append((number, next(differ, len(other))))
    Path(path).write_bytes(whole)
    return found, others
