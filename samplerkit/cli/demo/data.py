"""What the demo trains on: digits in files that are sorted by label, and a config for each shuffle mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from samplerkit.errors import SamplerkitError
from samplerkit.order.shuffle import Shuffle

MODES = (
    Shuffle.FALSE,
    Shuffle.INFILE,
    Shuffle.FILES,
    Shuffle.PARTIAL,
    Shuffle.ADAPTIVE,
    Shuffle.GLOBAL,
)
"""The modes of the demo, from the order as it stands to the full shuffle."""

EPOCHS = 10
"""Passes over the training part: few enough that a weak shuffle shows."""

RESUMED_EPOCHS, GLOBAL_BATCH, SAVED_EVERY = 4, 48, 5
"""Of `--resume`: the passes, samples of all ranks in a step, and steps from one checkpoint to the next."""

# PARTIAL mixes two files' worth at a time, and there are more samples than `adaptive_threshold`.
_CONFIG = """\
dataset:
  kind: files
  files: ../data/digits-*.npz
  reader: npz
  lengths: [{sizes}]
  max_files: 3
sampler:
  kind: distributed
  shuffle: {shuffle}
  num_shards: auto
  shard_id: auto
  partial_size: 180
  adaptive_threshold: 1000
  seed: 0
loader:
  batch_size: 32
"""

NUM_FILES = 16
"""Files of the training part: about 90 samples each, so nearly all files hold one digit only."""

TEST_EVERY = 5
"""Every fifth sample is held out of training."""


class MissingExtraError(SamplerkitError, ImportError):
    """A command needs a package that comes with one of samplerkit's extras."""


def write_digits(folder: Path) -> tuple[int, ...]:
    """Writes scikit-learn's handwritten digits as the data files of the demo.

    The training part is sorted by label, as data often is that was collected class by class: the hard case
    for a shuffle which does not mix files.

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


def config_path(folder: Path, mode: Shuffle) -> Path:
    """Names the config of a mode."""
    return folder / f"{mode.value}.yaml"


def write_configs(folder: Path, sizes: Iterable[int]) -> None:
    """Writes a config for each mode, except where there is one already: it may have been edited."""
    listed = ", ".join(map(str, sizes))
    for mode in MODES:
        path = config_path(folder, mode)
        if not path.exists():
            path.write_text(_CONFIG.format(sizes=listed, shuffle=mode.value), encoding="utf-8")


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
