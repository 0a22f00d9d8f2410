"""The configs of the demo, one for each shuffle mode."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

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

PARTIAL_SIZE = 180
"""Two files' worth: PARTIAL mixes a few files at a time."""

ADAPTIVE_THRESHOLD = 1_000
"""Fewer samples than the demo has, so that ADAPTIVE is PARTIAL here."""

_TEXT = """\
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
  partial_size: {partial_size}
  adaptive_threshold: {adaptive_threshold}
  seed: 0
loader:
  batch_size: 32
"""


def config_path(folder: Path, mode: Shuffle) -> Path:
    """Names the config of a mode."""
    return folder / f"{mode.value}.yaml"


def write_configs(folder: Path, sizes: Iterable[int]) -> None:
    """Writes a config for each mode, except where there is one already: it may have been edited.

    Args:
        folder: gets `false.yaml`, `infile.yaml` and so on.
        sizes: samples in each data file.
    """
    listed = ", ".join(str(size) for size in sizes)
    for mode in MODES:
        path = config_path(folder, mode)
        if path.exists():
            continue
        text = _TEXT.format(
            sizes=listed,
            shuffle=mode.value,
            partial_size=PARTIAL_SIZE,
            adaptive_threshold=ADAPTIVE_THRESHOLD,
        )
        path.write_text(text, encoding="utf-8")
