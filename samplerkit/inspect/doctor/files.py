"""Files and how they are read: blocks inside of files, too few of them, lanes and room that do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from samplerkit.inspect.costs import files_needed_at_once
from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.inspect.transfers import transfers
from samplerkit.inspect.view import RunView
from samplerkit.order.files import Lanes
from samplerkit.order.layout import Layout
from samplerkit.order.modes import FILE_AWARE, Mode
from samplerkit.order.shuffle import Shuffle

_ALIKE = 0.9
"""The share of samples from which on in files of one size, all files count as equally large."""


def partial_size_in_file(patient: Patient) -> Iterator[Finding]:
    """Blocks of PARTIAL that end where files end."""
    found = _reader(patient)
    if found is None or patient.view is None:
        return
    mode, layout = found
    if mode.resolve(layout) is not Shuffle.PARTIAL or mode.pools != 1 or layout.num_files < 2:
        return
    sizes, counts = np.unique(layout.sizes, return_counts=True)
    most = int(np.argmax(sizes * counts))
    size = int(sizes[most])
    lanes = mode.lane_count(layout, patient.view.run.constants.lanes)
    starts = Lanes(len(layout), lanes).starts[:-1]
    is_aligned = bool(((starts % size) % mode.partial_size == 0).mean() > 0.5)
    alike = size * int(counts[most]) / len(layout)
    if alike < _ALIKE or size % mode.partial_size or not is_aligned:
        return
    yield Finding(
        "partial-size-in-file",
        "error",
        f"files hold {size} samples and blocks of PARTIAL {mode.partial_size}: each block lies inside one "
        "file, and no files are mixed",
        f"say partial_size={-(-size * 3 // 2)}, 1.5 times the file size, or more",
    )


def few_files(patient: Patient) -> Iterator[Finding]:
    """Fewer files than processes that read."""
    found = _reader(patient)
    if found is None or patient.view is None:
        return
    mode, layout = found
    ranks, workers = patient.view.num_ranks, max(1, patient.view.num_workers)
    if mode.resolve(layout) not in FILE_AWARE or not 0 < layout.num_files < ranks * workers:
        return
    yield Finding(
        "few-files",
        "warning",
        f"{layout.num_files} files for {ranks} ranks x {workers} workers: several read the same file",
        f"write at least {ranks * workers} files, or use fewer workers",
    )


def lanes_do_not_divide(patient: Patient) -> Iterator[Finding]:
    """Lanes of which a rank reads more than it has to."""
    view = patient.view
    if view is None:
        return
    ranks = view.num_ranks
    lanes = view.lanes
    if lanes == 1 or lanes % ranks == 0 or ranks % lanes == 0:
        return
    each = lanes // int(np.gcd(lanes, ranks))
    yield Finding(
        "lanes-do-not-divide",
        "warning",
        f"{lanes} lanes on {ranks} ranks: neither divides the other, so that a rank reads up to {each} lanes "
        "and their files",
        f"say lanes={ranks}, or a multiple of it, or run on a number of ranks that divides {lanes}",
    )


def files_read_again(patient: Patient) -> Iterator[Finding]:
    """Room in memory for fewer files, or open shards, than the order goes back and forth between."""
    # Known by its looks: this room does not know that of files.
    limits: Any = getattr(patient.dataset, "_limits", None)
    view = patient.view
    if not hasattr(limits, "max_files") or view is None or not view.layout.has_files:
        return
    is_tar = hasattr(patient.dataset, "fetch")
    if is_tar and patient.dataset.is_remote and not _fetches_shards(view):
        return
    needed = files_needed_at_once(view, view.epoch, max(1, view.num_workers))
    if view.num_workers < patient.num_workers:  # each has files of its own
        needed = -(-needed // patient.num_workers)
    if needed <= limits.max_files:
        return
    # One more for a file that is needed in one batch only, and those that are read ahead.
    room = min(needed + 1 + limits.read_ahead, view.layout.num_files)
    name, kept = limits.called, "held open" if is_tar else "kept"
    again = "shards are opened, and from a small cache fetched," if is_tar else "files are read"
    lanes = view.lanes // int(np.gcd(view.lanes, view.num_ranks))
    fewer = f", or lanes={view.num_ranks} in place of {view.lanes}" if lanes > 1 else ""
    yield Finding(
        "files-read-again",
        "warning",
        f"the order goes back and forth between {needed} files, and {name}={limits.max_files} are {kept}: "
        f"{again} more than once an epoch",
        f"say {name}={room} or more, or take shuffle: partial with smaller blocks{fewer}",
    )


def _fetches_shards(view: RunView) -> bool:
    found = transfers(view, view.epoch)
    return found is not None and found.way == "whole"


def _reader(patient: Patient) -> tuple[Mode, Layout] | None:
    """Finds the mode of the sampler that reads the dataset, and the files."""
    mode = None if patient.view is None else patient.view.mode
    return None if mode is None or patient.view is None else (mode, patient.view.layout)
