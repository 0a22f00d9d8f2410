"""Windows of tokens in figures: what a step holds, documents cut, and where their length may change."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.inspect.view import RunView
from samplerkit.loading.run.delivery import Reading
from samplerkit.loading.run.token_windows import TokenWindowUnit
from samplerkit.order.typing import Ids

_LOOKED_AT = 256
"""Windows that are looked at for documents."""


@final
@dataclass(frozen=True)
class TokenFigures:
    """What a run of windows of tokens reads.

    Args:
        seq_len: tokens in a window that are inputs.
        block_len: tokens in a block.
        tokens_a_step: inputs of all ranks in a step.
        tokens_an_epoch: inputs of all ranks in an epoch, pads not counted.
        steps_to_a_change: every how many steps `seq_len` may change; None where it may at the end of an epoch
            alone, and 0 where the order does not survive it at all.
        cut: the share of windows that begin within a document; None where documents are not known.
        is_exact: whether all windows of the epoch were looked at for that.
    """

    seq_len: int
    block_len: int
    tokens_a_step: int
    tokens_an_epoch: int
    steps_to_a_change: int | None
    cut: float | None
    is_exact: bool


def windows_of(view: RunView) -> TokenWindowUnit | None:
    """Returns how the windows of tokens of a run are cut; None where it reads none."""
    return TokenWindowUnit.of(view.run.recipe, view.run.dataset)


def token_figures(view: RunView, epoch: int, epoch_samples: int) -> TokenFigures | None:
    """Looks at a run; None where it reads no windows of tokens.

    Args:
        view: the run.
        epoch: which one.
        epoch_samples: samples that all ranks read in it.
    """
    tokens = windows_of(view)
    if tokens is None or tokens.seq_len is None or tokens.block_len is None or view.recipe is not None:
        return None
    a_step = view.num_ranks * view.batch_size * tokens.seq_len
    every: int | None = 0
    if tokens.pool is not None:
        pool = tokens.pool * tokens.block_len
        every = math.lcm(pool, a_step) // a_step
        every = every if every * a_step <= epoch_samples * tokens.seq_len else None
    cut, is_exact = _cut(view, epoch)
    return TokenFigures(
        seq_len=tokens.seq_len,
        block_len=tokens.block_len,
        tokens_a_step=a_step,
        tokens_an_epoch=epoch_samples * tokens.seq_len,
        steps_to_a_change=every,
        cut=cut,
        is_exact=is_exact,
    )


def spans_of(
    view: RunView, reading: Reading, step: int, ids: Ids, places: Ids | None = None
) -> tuple[Any, ...] | None:
    """Reports of which parts of which documents the windows of a step are made.

    Args:
        view: the run.
        reading: of a rank in an epoch.
        step: of the rank.
        ids: all windows of the step.
        places: which of them are described, by their places in the batch; None for all.

    Returns:
        For each window its spans: file, document, first token in it, and how many; None where the dataset
        does not say.
    """
    if not callable(getattr(view.run.dataset, "spans", None)):
        return None
    epochs = reading.units.epochs(reading.draws(step))
    if places is not None:
        ids, epochs = ids[places], epochs[places]
    each = zip(ids.tolist(), epochs.tolist(), strict=True)
    return tuple(tuple(spans_in(view.run.dataset, id, epoch)) for id, epoch in each)


def spans_in(dataset: Any, id: int, epoch: int) -> Any:
    """Asks a dataset for the spans of a window, in an epoch of its source where that matters."""
    return dataset.spans(id, epoch=epoch) if getattr(dataset, "wants_epochs", False) else dataset.spans(id)


def _cut(view: RunView, epoch: int) -> tuple[float | None, bool]:
    """The share of windows that begin within a document, from some that lie evenly over the epoch."""
    dataset, order = view.run.dataset, view.run.undealt(epoch)
    if not callable(getattr(dataset, "spans", None)) or not len(order):
        return None, True
    positions = np.unique(np.linspace(0, len(order) - 1, _LOOKED_AT).astype(np.int64))
    ids, epochs = order.ids_at(positions).tolist(), order.epochs_at(epoch, positions).tolist()
    firsts = [spans_in(dataset, id, one)[0] for id, one in zip(ids, epochs, strict=True)]
    if any(document is None for _, document, _, _ in firsts):
        return None, True
    return float(np.mean([first > 0 for _, _, first, _ in firsts])), positions.size == len(order)
