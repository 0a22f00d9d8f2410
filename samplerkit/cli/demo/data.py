"""The data of the demo: handwritten digits in files that are sorted by label."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from samplerkit.cli.demo.errors import MissingExtraError

NUM_FILES = 16
"""Files of the training part: about 90 samples each, so nearly all files hold one digit only."""

TEST_EVERY = 5
"""Every fifth sample is held out of training."""


def write_digits(folder: Path) -> tuple[int, ...]:
    """Writes scikit-learn's handwritten digits as the data files of the demo.

    The training part is sorted by label, as data often is that was collected class by class: the hard case
    for a shuffle which does not mix files.

    Args:
        folder: gets `digits-00.npz` and so on, each with `pixels` (uint8 of shape (samples, 64)), `labels`
            and `ids` (int64 of shape (samples,)), and `test.npz` with the samples held out.

    Returns:
        The number of samples in each training file.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    pixels, labels = _digits()
    held_out = np.arange(labels.size) % TEST_EVERY == 0
    np.savez(folder / "test.npz", pixels=pixels[held_out], labels=labels[held_out])
    pixels, labels = pixels[~held_out], labels[~held_out]
    by_label = np.argsort(labels, kind="stable")
    parts = np.array_split(by_label, NUM_FILES)
    first = 0
    for path, part in zip(training_files(folder), parts, strict=True):
        ids = np.arange(first, first + part.size)
        np.savez(path, pixels=pixels[part], labels=labels[part], ids=ids)
        first += part.size
    return tuple(part.size for part in parts)


def training_files(folder: Path) -> Iterator[Path]:
    """Names the training files, in the order in which their samples are numbered."""
    return (folder / f"digits-{number:02}.npz" for number in range(NUM_FILES))


def _digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    try:
        # An extra: only the demo's data come from it.
        datasets: Any = import_module("sklearn.datasets")
    except ImportError as error:
        raise MissingExtraError(
            "demo", "needs scikit-learn", mend='install it with: pip install "samplerkit[demo]"'
        ) from error
    digits = datasets.load_digits()
    return digits.data.astype(np.uint8), digits.target.astype(np.int64)
