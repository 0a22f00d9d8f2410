"""Packs of documents: tokens that are cut off, and documents that are read once for each of their parts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from samplerkit.batches.packs import PackBatches
from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.order.told import gives_segments
from samplerkit.order.typing import Ids

MOST_CUT_OFF = 0.01
"""So many of the tokens may be cut off without a word."""

MOST_READ_AGAIN = 2.0
"""So many times the tokens of an epoch may be read, since whole documents are read for their parts."""


def _lengths(patient: Patient) -> tuple[PackBatches | None, Ids, Ids]:
    """Gives the recipe of packs, the lengths that occur, and how many documents have each."""
    view = patient.view
    nothing = np.zeros(0, dtype=np.int64)
    if view is None or not isinstance(view.recipe, PackBatches):
        return None, nothing, nothing
    plan = view.run.plan(view.epoch)
    if plan is None or plan.measure.lengths is None:
        return None, nothing, nothing
    histogram = plan.measure.lengths.histogram
    return view.recipe, histogram.values, histogram.counts


def tokens_cut_off(patient: Patient) -> Iterator[Finding]:
    """Long documents of which only the beginning is read."""
    recipe, values, counts = _lengths(patient)
    if recipe is None or recipe.long != "truncate":
        return
    lost = int((np.maximum(values - recipe.seq_len, 0) * counts).sum())
    total = int((values * counts).sum())
    if lost > MOST_CUT_OFF * total:
        yield Finding(
            "tokens-cut-off",
            "warning",
            f"{100 * lost / total:.0f} % of the tokens are cut off: documents end at {recipe.seq_len}",
            'say long="split", or a larger seq_len',
        )


def documents_read_again(patient: Patient) -> Iterator[Finding]:
    """Long documents that are read whole for each of their parts."""
    recipe, values, counts = _lengths(patient)
    if recipe is None or recipe.long != "split" or patient.view is None:
        return
    if gives_segments(patient.view.run.dataset):
        return
    parts = np.maximum(-(-values // recipe.seq_len), 1)
    total = int((values * counts).sum())
    times = float((values * parts * counts).sum()) / max(1, total)
    if times > MOST_READ_AGAIN:
        yield Finding(
            "documents-read-again",
            "warning",
            f"whole documents are read for parts of them, {times:.1f} times the tokens of an epoch",
            "write __getsegments__(segments) in the dataset: rows of id, start and length",
        )
