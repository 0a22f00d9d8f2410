"""Files: blocks inside of files, too few files, lanes and caches that do not fit, and remote costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from samplerkit.inspect.costs import files_needed_at_once
from samplerkit.inspect.doctor.findings import Fault, Faults, order, rule, run
from samplerkit.inspect.doctor.inspection import InspectedRun
from samplerkit.inspect.download_costs import Downloads
from samplerkit.order.files import Lanes
from samplerkit.order.modes import FILE_AWARE, Shuffle

_ALIKE = 0.9
"""The share of samples from which on in files of one size, all files count as equally large."""


@rule("error", run)
def partial_size_in_file(seen: InspectedRun) -> Faults:
    """Each block of PARTIAL lies inside one file, so that no files are mixed."""
    mode, layout = seen.view.mode, seen.view.layout
    if mode is None or mode.resolve(layout) is not Shuffle.PARTIAL or mode.pools != 1 or layout.num_files < 2:
        return
    sizes, counts = np.unique(layout.sizes, return_counts=True)
    most = int(np.argmax(sizes * counts))
    size = int(sizes[most])
    starts = Lanes(len(layout), mode.lane_count(layout, seen.view.run.constants.lanes)).starts[:-1]
    is_aligned = bool(((starts % size) % mode.partial_size == 0).mean() > 0.5)
    alike = size * int(counts[most]) / len(layout)
    if alike >= _ALIKE and size % mode.partial_size == 0 and is_aligned:
        yield Fault(
            f"files hold {size} samples and blocks of PARTIAL {mode.partial_size}: each block lies inside "
            "one file, and no files are mixed",
            f"say partial_size={-(-size * 3 // 2)}, 1.5 times the file size, or more",
        )


@rule("warning", run)
def few_files(seen: InspectedRun) -> Faults:
    """There are fewer files than ranks x workers, so that several open the same one."""
    mode, layout = seen.view.mode, seen.view.layout
    ranks, workers = seen.view.num_ranks, max(1, seen.view.num_workers)
    keeps_files = mode is not None and mode.resolve(layout) in FILE_AWARE
    if keeps_files and 0 < layout.num_files < ranks * workers:
        yield Fault(
            f"{layout.num_files} files for {ranks} ranks x {workers} workers: several read the same file",
            f"write at least {ranks * workers} files, or use fewer workers",
        )


@rule("warning", run)
def lanes_do_not_divide(seen: InspectedRun) -> Faults:
    """Neither lanes nor ranks divide the other, so that a rank reads more files."""
    lanes, ranks = seen.view.lanes, seen.view.num_ranks
    if lanes > 1 and lanes % ranks and ranks % lanes:
        each = lanes // int(np.gcd(lanes, ranks))
        yield Fault(
            f"{lanes} lanes on {ranks} ranks: neither divides the other, so that a rank reads up to {each} "
            "lanes and their files",
            f"say lanes={ranks}, or a multiple of it, or run on a number of ranks that divides {lanes}",
        )


@rule("warning", order)
def files_read_again(seen: InspectedRun) -> Faults:
    """`max_files`, `max_chunks` or `max_shards` is too few for how the order goes."""
    # Known by its attributes: this room does not know that of files.
    limits: Any = getattr(seen.dataset, "_limits", None)
    view = seen.view
    if not hasattr(limits, "max_files") or not view.layout.has_files:
        return
    is_tar = hasattr(seen.dataset, "fetch")
    if is_tar and seen.dataset.is_remote and not _fetches_shards(seen):
        return
    needed = files_needed_at_once(view, view.epoch, max(1, view.num_workers))
    if view.num_workers < seen.num_workers:  # each has files of its own
        needed = -(-needed // seen.num_workers)
    if needed <= limits.max_files:
        return
    # One more for a file that is needed in one batch only, and those that are read ahead.
    room = min(needed + 1 + limits.read_ahead, view.layout.num_files)
    name, kept = limits.called, "held open" if is_tar else "kept"
    again = "shards are opened, and from a small cache fetched," if is_tar else "files are read"
    lanes = view.lanes // int(np.gcd(view.lanes, view.num_ranks))
    fewer = f", or lanes={view.num_ranks} in place of {view.lanes}" if lanes > 1 else ""
    yield Fault(
        f"the order goes back and forth between {needed} files, and {name}={limits.max_files} are {kept}: "
        f"{again} more than once an epoch",
        f"say {name}={room} or more, or take shuffle: partial with smaller blocks{fewer}",
    )


@rule("warning", order)
def costly_remote(seen: InspectedRun) -> Faults:
    """The order asks remote storage for far more than fetching each file once would."""
    for part, found in seen.figures.downloads.items():
        where = f" in {part}" if part else ""
        if found.is_remote and found.advice:
            what, _, advised = found.advice.partition(": ")
            yield Fault(f"{what}{where}: {_asked(found)} an epoch", advised)
        elif found.is_remote and found.num_bytes is None and found.way == "ranges":
            yield Fault(
                f"single samples of {found.num_files} remote files{where} are read: {_asked(found)} an epoch",
                "take shuffle: partial, unless samples are larger than a MiB; samplerkit plan compares the "
                "two",
            )


def _fetches_shards(seen: InspectedRun) -> bool:
    found = seen.figures.downloads.get("")
    return found is not None and found.way == "whole"


def _asked(found: Downloads) -> str:
    amount = "" if found.num_bytes is None else f" and {found.taken.bytes / 2**20:,.0f} MiB"
    return f"{found.taken.requests:,} {'downloads' if found.way == 'whole' else 'requests'}{amount}"
