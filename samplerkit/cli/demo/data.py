"""What the demo trains on: digits in files that are sorted by label, and configs; ledgers of what it read."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from samplerkit.errors import SamplerkitError
from samplerkit.order.modes import Shuffle

MODES = (
    Shuffle.FALSE,
    Shuffle.INFILE,
    Shuffle.FILES,
    Shuffle.PARTIAL,
    Shuffle.ADAPTIVE,
    Shuffle.GLOBAL,
)
"""The modes of the demo, from storage order to the full shuffle."""

EPOCHS = 10
"""Passes over the training part: few enough that a weak shuffle shows."""

RESUMED_EPOCHS, GLOBAL_BATCH, SAVED_EVERY = 4, 48, 5
"""Of `--resume`: the passes, samples of all ranks in a step, and steps from one checkpoint to the next."""

CHECKPOINT = "checkpoint.pt"

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


def write_digits(folder: Path) -> list[int]:
    """Writes scikit-learn's handwritten digits as the data files of the demo.

    The training part is sorted by label, as data often is that was collected class by class: the hard case
    for a shuffle which does not mix files.

    Returns:
        The number of samples in each training file.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    try:
        # An extra: only the demo's data come from it.
        digits: Any = import_module("sklearn.datasets").load_digits()
    except ImportError as error:
        hint = 'install it with: pip install "samplerkit[demo]"'
        raise MissingExtraError("demo", "needs scikit-learn", hint=hint) from error
    folder.mkdir(parents=True, exist_ok=True)
    pixels, labels = digits.data.astype(np.uint8), digits.target.astype(np.int64)
    held_out = np.arange(labels.size) % TEST_EVERY == 0
    np.savez(folder / "test.npz", pixels=pixels[held_out], labels=labels[held_out])
    pixels, labels = pixels[~held_out], labels[~held_out]
    parts = np.array_split(np.argsort(labels, kind="stable"), NUM_FILES)
    ids = np.array_split(np.arange(labels.size), NUM_FILES)
    for number, part in enumerate(parts):
        path = folder / f"digits-{number:02}.npz"
        np.savez(path, pixels=pixels[part], labels=labels[part], ids=ids[number])
    return [part.size for part in parts]


def config_path(folder: Path, mode: Shuffle) -> Path:
    """Names the config of a mode."""
    return folder / f"{mode.value}.yaml"


def write_configs(folder: Path, sizes: list[int]) -> None:
    """Writes a config for each mode, except where there is one already: it may have been edited."""
    folder.mkdir(parents=True, exist_ok=True)
    for mode in MODES:
        path = config_path(folder, mode)
        if not path.exists():
            listed = ", ".join(map(str, sizes))
            path.write_text(_CONFIG.format(sizes=listed, shuffle=mode.value), encoding="utf-8")


def ledger_path(folder: Path, run: str, rank: int) -> Path:
    """Names the ledger of a rank: JSON lines of what its training loop received."""
    return folder / f"{run}.{rank}.jsonl"


def ledger_lines(folder: Path, run: str, rank: int) -> list[dict[str, Any]]:
    """Reads a ledger."""
    text = ledger_path(folder, run, rank).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
