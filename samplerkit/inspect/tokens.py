"""Figures of windows of tokens: tokens per step, documents that are cut, and where `seq_len` may change."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from samplerkit.inspect.costs import spread_over
from samplerkit.inspect.view import RunView
from samplerkit.loading.run.delivery import Reading
from samplerkit.loading.run.token_windows import TokenWindowUnit
from samplerkit.order.typing import Ids

_MAX_WINDOWS = 256
"""The most windows whose documents are examined."""


@final
@dataclass(frozen=True)
class TokenFigures:
    """Figures of a run that reads windows of tokens.

    Args:
        seq_len: input tokens in a window.
        block_len: tokens in a block.
        tokens_a_step: input tokens of all ranks in a step.
        tokens_an_epoch: input tokens of all ranks in an epoch, without pads.
        steps_to_a_change: the number of steps after which `seq_len` may change; None if it may change only at
            the end of an epoch, and 0 if a change always breaks the order.
        cut: the share of windows that begin within a document; None if documents are not known.
        is_exact: whether all windows of the epoch were examined for `cut`.
    """

    seq_len: int
    block_len: int
    tokens_a_step: int
    tokens_an_epoch: int
    steps_to_a_change: int | None
    cut: float | None
    is_exact: bool


def token_figures(view: RunView, epoch: int, epoch_samples: int) -> TokenFigures | None:
    """Computes the figures of a run; None if it deals no windows of tokens.

    Args:
        view: the run.
        epoch: the epoch.
        epoch_samples: samples that all ranks read in the epoch.
    """
    tokens = view.run.unit
    if not isinstance(tokens, TokenWindowUnit) or tokens.seq_len is None or tokens.block_len is None:
        return None
    a_step, an_epoch = view.num_ranks * view.batch_size * tokens.seq_len, epoch_samples * tokens.seq_len
    every: int | None = 0
    if tokens.pool is not None:
        every = math.lcm(tokens.pool * tokens.block_len, a_step) // a_step
        every = every if every * a_step <= an_epoch else None
    cut, is_exact = _cut(view, epoch)
    return TokenFigures(
        seq_len=tokens.seq_len,
        block_len=tokens.block_len,
        tokens_a_step=a_step,
        tokens_an_epoch=an_epoch,
        steps_to_a_change=every,
        cut=cut,
        is_exact=is_exact,
    )


def spans_of(
    view: RunView, reading: Reading, step: int, ids: Ids, places: Ids | slice = slice(None)
) -> tuple[Any, ...] | None:
    """Returns the parts of documents in the windows of a step.

    Args:
        view: the run.
        reading: the reading of a rank in an epoch.
        step: the step of the rank.
        ids: the ids of all windows of the step.
        places: the indices in the batch of the windows to describe; by default all.

    Returns:
        For each window its spans: file, document, first token in the document, and number of tokens. None if
        the dataset has no method `spans`.
    """
    if not callable(getattr(view.run.dataset, "spans", None)):
        return None
    epochs = reading.units.epochs(reading.draws(step))[places]
    pairs = zip(ids[places].tolist(), epochs.tolist(), strict=True)
    return tuple(tuple(spans_in(view.run.dataset, id, epoch)) for id, epoch in pairs)


def spans_in(dataset: Any, id: int, epoch: int) -> Any:
    """Returns the spans of a window, for an epoch of its source if the dataset depends on the epoch."""
    return dataset.spans(id, epoch=epoch) if getattr(dataset, "wants_epochs", False) else dataset.spans(id)


def _cut(view: RunView, epoch: int) -> tuple[float | None, bool]:
    """Returns the share of windows that begin within a document, from evenly spaced windows of the epoch."""
    dataset, order = view.run.dataset, view.run.epoch(epoch).order
    if not callable(getattr(dataset, "spans", None)) or not len(order):
        return None, True
    positions = spread_over(len(order), _MAX_WINDOWS)
    ids, epochs = order.ids_at(positions).tolist(), order.epochs_at(epoch, positions).tolist()
    firsts = [spans_in(dataset, id, source_epoch)[0] for id, source_epoch in zip(ids, epochs, strict=True)]
    if any(document is None for _, document, _, _ in firsts):
        return None, True
    return float(np.mean([first > 0 for _, _, first, _ in firsts])), positions.size == len(order)
