"""Rules about batches of samples of different lengths: budgets, padding, idle ranks and wrong losses."""

from collections.abc import Callable
from typing import Any

import numpy as np

from samplerkit.batches.bucket_batches import BucketBatches
from samplerkit.batches.class_batches import ClassBatches
from samplerkit.batches.packs.pack_batches import PackBatches
from samplerkit.errors import SamplerkitError
from samplerkit.inspect.doctor.findings import Fault, Faults, Finding, rule
from samplerkit.inspect.doctor.inspection import InspectedRun, Inspection, PlannedRun
from samplerkit.inspect.doctor.probe import module_codes
from samplerkit.order.dataset_protocol import has_segments
from samplerkit.order.typing import Ids

MIN_EFFICIENCY = 0.7
"""Below it, more than 30 % of the padded tokens are padding."""

MAX_LEFT_OUT = 0.01
"""The share of samples, or of tokens, that may be left out without a warning."""

MAX_READ_AGAIN = 2.0
"""How often tokens may be read per epoch, where whole documents are read for their parts."""

_CODES = {
    **dict.fromkeys(("lengths", "length", "keys", "labels"), "lengths-do-not-fit"),
    **dict.fromkeys(("max_tokens", "seq_len", "boundaries"), "sample-above-budget"),
}
"""The codes of errors about some arguments; that of all others is `refused`."""


def refused(error: SamplerkitError) -> Finding:
    """Makes the finding for an error of an order, or of batches, that cannot be built."""
    code = _CODES.get(error.place.rpartition(".")[2].partition("[")[0], "refused")
    hint = error.hint or "give one for each sample, in the order of the dataset"
    return Finding(code, "error", f"{error.place}: {error.problem}", hint)


@rule("warning", Inspection.run_with_plan)
def boundaries_unreached(setup: PlannedRun) -> Faults:
    """Between two boundaries there is no sample.

    Hint:
        leave these boundaries out, or look whether lengths are counted in other units
    """
    lengths = setup.plan.measure.lengths
    if not isinstance(setup.recipe, BucketBatches) or setup.recipe.boundaries is None or lengths is None:
        return
    boundaries, values = np.asarray(setup.recipe.boundaries), lengths.histogram.values
    reached = np.unique(np.searchsorted(boundaries, values))
    empty = np.setdiff1d(np.arange(boundaries.size), reached)
    if empty.size:
        names = ", ".join(map(str, boundaries[empty[:8]].tolist()))
        yield Fault(
            f"no sample is in the buckets up to {names}: lengths are {int(values.min())} to "
            f"{int(values.max())}"
        )


@rule("warning", Inspection.run_with_order)
def padding_wasted(setup: InspectedRun) -> Faults:
    """More than 30 % of the padded tokens are padding."""
    figures = setup.figures.batches
    if figures is None or figures.efficiency is None or figures.efficiency >= MIN_EFFICIENCY:
        return
    yield Fault(
        f"{100 * (1 - figures.efficiency):.0f} % of the padded tokens of an epoch are padding",
        "use TokenBatches, a smaller waste or pool, a larger window, or more boundaries"
        if figures.documents_cut is None
        else "use a smaller length_multiple, a larger window, or a seq_len that holds several documents",
    )


@rule("warning", Inspection.run_with_plan)
def abreast_does_not_fit(setup: PlannedRun) -> Faults:
    """The number of ranks does not divide `abreast`, so that the batches of a step differ in cost."""
    ranks, abreast = setup.run.view.num_ranks, setup.plan.abreast
    # Batches by class all have the same cost, and packs the same number of tokens.
    if isinstance(setup.recipe, ClassBatches | PackBatches):
        return
    if abreast % ranks and len(setup.plan) > ranks:
        yield Fault(
            f"{abreast} neighbouring batches cost alike, and a step has one for each of {ranks} ranks: these "
            "wait for the most expensive one",
            f"use an abreast that {ranks} divides; a run that resumes keeps that of its first start",
        )


@rule("warning", Inspection.run_with_plan)
def samples_left_out(setup: PlannedRun) -> Faults:
    """`long` and `short` leave out more than one sample in a hundred."""
    size, dropped = setup.run.view.layout.num_samples, setup.plan.dropped
    if dropped > MAX_LEFT_OUT * size:
        yield Fault(
            f"{dropped} of {size} samples are left out of an epoch by long and short",
            'use long="split"'
            if isinstance(setup.recipe, PackBatches)
            else 'raise max_tokens, use long="truncate" or "alone", or short="merge"',
            "warning" if len(setup.plan) else "error",
        )


@rule("warning", Inspection.run_with_plan)
def fewer_batches_than_ranks(setup: PlannedRun) -> Faults:
    """An epoch has fewer batches than ranks.

    Hint:
        make batches smaller, use fewer ranks, or use tail='split'
    """
    view = setup.run.view
    if 0 < len(setup.plan) < view.num_ranks:
        yield Fault(
            f"batches in an epoch: {len(setup.plan)}, fewer than the {view.num_ranks} ranks, with "
            f"tail={view.run.tail!r}",
            severity="error" if view.run.tail == "drop" else "warning",
        )


@rule("warning", Inspection.run_with_plan)
def loss_ignores_tokens(setup: PlannedRun) -> Faults:
    """A loop trains on batches of different lengths without using `loader.tokens`.

    Hint:
        divide the summed loss by loader.tokens(step) / ranks, which needs no communication
    """
    is_of_classes = isinstance(setup.recipe, ClassBatches)
    if setup.run.ignores_tokens and setup.run.view.num_ranks > 1 and not is_of_classes:
        yield Fault(
            "the module trains with backward() and never asks loader.tokens(step): ranks hold different "
            "numbers of tokens, and the mean of their means weighs those in small batches more"
        )


def ignores_tokens(make: Callable[[], Any]) -> bool:
    """Returns whether the module of a function calls `backward()`, and never `tokens()`."""
    names = {name for code in module_codes(make) for name in code.co_names}
    return "backward" in names and "tokens" not in names


@rule("warning", Inspection.run_with_plan)
def tokens_cut_off(setup: PlannedRun) -> Faults:
    """Packs keep the beginning of long documents, and lose more than one token in a hundred.

    Hint:
        use long="split", or a larger seq_len
    """
    lost = _part_of_tokens(setup, "truncate", lambda lengths, seq_len: np.maximum(lengths - seq_len, 0))
    if lost > MAX_LEFT_OUT:
        end = setup.plan.measure.pack
        yield Fault(f"{100 * lost:.0f} % of the tokens are cut off: documents end at {end}")


@rule("warning", Inspection.run_with_plan)
def documents_read_again(setup: PlannedRun) -> Faults:
    """Whole documents are read for each of their parts, which reads more than twice the tokens.

    Hint:
        write __getsegments__(segments) in the dataset: rows of id, start and length
    """
    times = _part_of_tokens(setup, "split", lambda lengths, seq_len: lengths * -(-lengths // seq_len))
    if times > MAX_READ_AGAIN and not has_segments(setup.run.dataset):
        yield Fault(f"whole documents are read for parts of them, {times:.1f} times the tokens of an epoch")


def _part_of_tokens(setup: PlannedRun, long: str, count: Callable[[Ids, int], Ids]) -> float:
    """Counts some tokens of each document of a set of packs, relative to all tokens of the set.

    Args:
        setup: the run.
        long: the value of `long` to which this applies; for others, and other batches, the result is 0.
        count: returns the counted tokens of documents, from their lengths and that of a pack.
    """
    lengths, recipe = setup.plan.measure.lengths, setup.recipe
    if not isinstance(recipe, PackBatches) or recipe.long != long or lengths is None:
        return 0.0
    values, counts = lengths.histogram.values, lengths.histogram.counts
    return float((count(values, recipe.seq_len) * counts).sum() / max(1, (values * counts).sum()))
