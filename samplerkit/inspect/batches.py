"""Figures of what steps read: batches of samples of different lengths, and windows of tokens."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import numpy as np

from samplerkit.batches.plan import BatchPlan
from samplerkit.inspect.costs import spread_over
from samplerkit.inspect.view import RunView
from samplerkit.loading.run.delivery import Reading
from samplerkit.loading.run.token_windows import TokenWindowUnit
from samplerkit.order.typing import Ids

COUNTED_BATCHES = 1 << 14
"""The most batches of an epoch that are counted; of longer epochs, this many, in evenly spaced steps."""

_CHUNK = 256
_COMPARED_SAMPLES = 1 << 20
_PROBES = 48
_EPOCHS = 6
_SEARCHED_SAMPLES = 1 << 21


@final  # so that nothing can be both these figures and a number
@dataclass(frozen=True)
class BatchFigures:
    """Figures of the batches of an epoch. "Padded tokens" are tokens including the padding of their batch.

    Args:
        recipe: a description of the recipe.
        batches: batches of all ranks.
        window: samples of a window; None if the whole dataset is one window.
        abreast: the number of consecutive batches with similar cost.
        dropped: samples that `long` and `short` leave out.
        smallest: samples of the smallest batch.
        mean: mean number of samples in a batch.
        largest: samples of the largest batch.
        tokens: tokens of an epoch, without padding; None if lengths are not known.
        efficiency: tokens divided by padded tokens; None if lengths are not known.
        plain_efficiency: the efficiency of random batches of `mean` samples; for packs, of one part per row.
        saved: the share of the padded tokens of these plain batches that is saved.
        fill: tokens divided by the budget of all batches; None without a budget.
        imbalance: padded tokens of the most expensive rank of each step, divided by the mean of the ranks.
        is_counted: whether all batches were counted; otherwise the figures are estimates.
        documents_cut: documents that are split or truncated by packs; None for batches that are not packs.
        mixing: the share of new companions that a sample meets in its batches in 6 epochs, from
            `new_companions`: 1 if all are new; None if it was not computed or would take long.
    """

    recipe: str
    batches: int
    window: int | None
    abreast: int
    dropped: int
    smallest: int
    mean: float
    largest: int
    tokens: int | None
    efficiency: float | None
    plain_efficiency: float | None
    saved: float | None
    fill: float | None
    imbalance: float
    is_counted: bool
    documents_cut: int | None = None
    mixing: float | None = None


def batch_figures(view: RunView, epoch: int) -> BatchFigures | None:
    """Computes the figures of the batches of an epoch, without mixing; None for batches of one size."""
    plan = view.run.epoch(epoch).plan
    if plan is None or view.recipe is None:
        return None
    count = len(plan)
    sizes, tokens, padded, ids, cut = _measure(plan, view.num_ranks, count)
    has_lengths = plan.measure.lengths is not None
    total, mean = int(tokens.sum()), float(sizes.mean()) if sizes.size else 0.0
    efficiency = total / max(1, int(padded.sum())) if has_lengths and sizes.size else None
    plain = _plain_efficiency(plan, ids, max(1, round(mean))) if efficiency is not None else None
    if plan.measure.pack is not None and sizes.size:
        plain = total / (int(sizes.sum()) * plan.measure.pack)
    budget = getattr(view.recipe, "max_tokens", None)
    return BatchFigures(
        recipe=view.recipe.words.partition(": ")[2],
        batches=count,
        window=plan.window,
        abreast=plan.abreast,
        dropped=plan.dropped,
        smallest=int(sizes.min(initial=0 if not sizes.size else int(sizes[0]))),
        mean=mean,
        largest=int(sizes.max(initial=0)),
        tokens=None if not has_lengths else round(total * count / max(1, sizes.size)),
        efficiency=efficiency,
        plain_efficiency=plain,
        saved=None if plain is None or not efficiency else 1 - plain / efficiency,
        fill=total / (sizes.size * budget) if budget and sizes.size else None,
        imbalance=_imbalance(padded, view.num_ranks),
        is_counted=sizes.size == count,
        documents_cut=None if plan.measure.pack is None else round(cut * count / max(1, sizes.size)),
    )


def _measure(plan: BatchPlan, ranks: int, count: int) -> tuple[Ids, Ids, Ids, Ids, int]:
    """Returns samples, tokens and padded tokens of each counted batch, ids of some, and documents cut."""
    numbers = np.arange(count)
    if count > COUNTED_BATCHES:
        steps = spread_over(max(1, count // ranks), max(1, COUNTED_BATCHES // ranks))
        numbers = (steps[:, None] * ranks + np.arange(min(ranks, count))).reshape(-1)
    parts: list[tuple[Ids, Ids, Ids]] = [(np.zeros(0, dtype=np.int64),) * 3]
    compared: list[Ids] = [np.zeros(0, dtype=np.int64)]
    num_ids = cut = 0
    for begin in range(0, numbers.size, _CHUNK):
        samples = plan.samples(numbers[begin : begin + _CHUNK])
        tokens, padded = plan.tokens_in(samples), plan.padded_tokens_in(samples)
        parts.append((np.diff(samples.edges), tokens, padded))
        if samples.segments is not None:
            # Each document that is split or truncated has exactly one first part that is not its last one.
            cut += int(((samples.segments.starts == 0) & ~samples.segments.is_last).sum())
        if num_ids < _COMPARED_SAMPLES:
            compared.append(samples.ids)
            num_ids += samples.ids.size
    sizes, real, full = (np.concatenate(column) for column in zip(*parts, strict=True))
    return sizes, real, full, np.concatenate(compared), cut


def _plain_efficiency(plan: BatchPlan, ids: Ids, size: int) -> float:
    """Returns the efficiency of random batches of one size from some samples."""
    shuffled = np.random.default_rng(0).permutation(ids)
    edges = np.append(np.arange(0, shuffled.size, size), shuffled.size)
    padded = int(plan.measure.padded_tokens(shuffled, edges).sum())
    return int(plan.measure.tokens(shuffled).sum()) / max(1, padded)


def _imbalance(padded: Ids, ranks: int) -> float:
    steps = padded[: padded.size // ranks * ranks].reshape(-1, ranks).astype(np.float64)
    mean = steps.mean(axis=1).sum() if steps.size else 0.0
    return float(steps.max(axis=1).sum() / mean) if mean else 1.0


def new_companions(view: RunView, epoch: int) -> float | None:
    """Returns the share of distinct samples among those in a sample's batches of 6 epochs.

    Returns:
        The mean over some samples; None without batches of a recipe, or if it would take long.
    """
    size = view.layout.num_samples
    plan = view.run.epoch(epoch).plan
    if plan is None or (plan.window is not None and size > _SEARCHED_SAMPLES) or size < 2:
        return None
    probes = np.random.default_rng(1).choice(size, min(_PROBES, size), replace=False)
    met: list[Ids] = [np.zeros(0, dtype=np.int64)] * probes.size
    plans = (view.run.epoch(number).plan for number in range(epoch, epoch + _EPOCHS))
    for plan in filter(None, plans):
        probe_numbers, numbers = plan.batch_of(probes)
        samples = plan.samples(numbers)
        for probe, (begin, end) in zip(probe_numbers.tolist(), pairwise(samples.edges.tolist()), strict=True):
            batch = samples.ids[begin:end]
            met[probe] = np.append(met[probe], batch[batch != probes[probe]])
    shares = [np.unique(companions).size / companions.size for companions in met if companions.size]
    return float(np.mean(shares)) if shares else None


_MAX_WINDOWS = 256
"""The most windows whose documents are examined."""


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
