"""Files that lie elsewhere: orders that ask for far more than they must, and lengths that nobody tells."""

from __future__ import annotations

from collections.abc import Iterator

from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.inspect.transfers import Transfers, transfers_of_leaves
from samplerkit.inspect.uncounted import MEND, is_counted


def lengths_not_told(patient: Patient) -> Iterator[Finding]:
    """Files that each job would have to fetch before it begins, to count the samples."""
    if not is_counted(patient.dataset):
        yield Finding(
            "lengths-not-told",
            "warning",
            "the samples of remote files are not counted: before the first batch all files are fetched; and "
            "nothing that depends on how many there are was looked at",
            MEND,
        )


def costly_remote(patient: Patient) -> Iterator[Finding]:
    """GLOBAL over remote shards, read sample by sample; and files that leave a small cache too early."""
    view = patient.view
    mend = "take shuffle: partial, unless samples are larger than a MiB; samplerkit plan compares the two"
    for part, found in ({} if view is None else transfers_of_leaves(view, view.epoch)).items():
        where = f" in {part}" if part else ""
        if found.is_remote and found.advice:
            what, _, advised = found.advice.partition(": ")
            yield Finding("costly-remote", "warning", f"{what}{where}: {_asked(found)} an epoch", advised)
        elif found.is_remote and found.num_bytes is None and found.way == "ranges":
            yield Finding(
                "costly-remote",
                "warning",
                f"single samples of {found.num_files} remote files{where} are read: {_asked(found)} an epoch",
                mend,
            )


def _asked(found: Transfers) -> str:
    amount = "" if found.num_bytes is None else f" and {found.taken.bytes / 2**20:,.0f} MiB"
    return f"{found.taken.requests:,} {'downloads' if found.way == 'whole' else 'requests'}{amount}"
