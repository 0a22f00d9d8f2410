"""Batches of unlike samples: lengths that lie, budgets that waste, ranks that wait, and wrong losses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from samplerkit.batches.bucket import BucketBatches
from samplerkit.batches.classes import ClassBatches
from samplerkit.batches.packs import PackBatches
from samplerkit.batches.plan import BatchPlan
from samplerkit.errors import SamplerkitError
from samplerkit.inspect.batches import batch_figures
from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.inspect.doctor.resume import codes_in, module_code
from samplerkit.inspect.view import RunView

LEAST_EFFICIENCY = 0.7
"""Below it, more than 30 % of the padded tokens are padding."""

MOST_LEFT_OUT = 0.01
"""So many of the samples may be left out by a recipe without a word."""


def no_plan(patient: Patient) -> Iterator[Finding]:
    """Batches that cannot be made: nothing else can be looked at then."""
    if patient.view is None or patient.view.recipe is None:
        return
    try:
        patient.view.run.plan(patient.view.epoch)
    except SamplerkitError as error:
        place = error.place.rpartition(".")[2].partition("[")[0]
        code = _CODES_OF_PLACES.get(place, "refused")
        yield Finding(
            code,
            "error",
            f"{error.place}: {error.problem}",
            error.mend or "give one for each sample, in the order of the dataset",
        )


_EPOCHS_COUNTED = 4
_CODES_OF_PLACES = {
    "lengths": "lengths-do-not-fit",
    "length": "lengths-do-not-fit",
    "keys": "lengths-do-not-fit",
    "labels": "lengths-do-not-fit",
    "max_tokens": "sample-above-budget",
    "seq_len": "sample-above-budget",
    "boundaries": "sample-above-budget",
}


def _planned(patient: Patient) -> tuple[RunView | None, BatchPlan | None]:
    """Gives the run that is looked at and its plan, as far as there are any."""
    view = patient.view
    return view, None if view is None else view.run.plan(view.epoch)


def boundaries_unreached(patient: Patient) -> Iterator[Finding]:
    """Boundaries between which no sample lies."""
    view, plan = _planned(patient)
    if view is None or plan is None or not isinstance(view.recipe, BucketBatches):
        return
    lengths = plan.measure.lengths
    if view.recipe.boundaries is None or lengths is None:
        return
    boundaries = np.asarray(view.recipe.boundaries)
    reached = np.unique(np.searchsorted(boundaries, lengths.histogram.values))
    empty = np.setdiff1d(np.arange(boundaries.size), reached)
    if empty.size:
        named = ", ".join(map(str, boundaries[empty[:8]].tolist()))
        yield Finding(
            "boundaries-unreached",
            "warning",
            f"no sample lies in the buckets up to {named}: lengths are "
            f"{int(lengths.histogram.values.min())} to {int(lengths.histogram.values.max())}",
            "leave these boundaries out, or look whether lengths are counted in other units",
        )


def padding_wasted(patient: Patient) -> Iterator[Finding]:
    """Batches of which a large part is padding."""
    view = patient.view
    figures = None if view is None else batch_figures(view, view.epoch, with_mixing=False)
    if figures is None or figures.efficiency is None or figures.efficiency >= LEAST_EFFICIENCY:
        return
    is_packed = figures.documents_cut is not None
    yield Finding(
        "padding-wasted",
        "warning",
        f"{100 * (1 - figures.efficiency):.0f} % of the padded tokens of an epoch are padding",
        "use a smaller length_multiple, a larger window, or a seq_len that holds several documents"
        if is_packed
        else "use TokenBatches, a smaller waste or pool, a larger window, or more boundaries",
    )


def abreast_does_not_fit(patient: Patient) -> Iterator[Finding]:
    """Steps that hold batches of two groups, which cost unlike."""
    view, plan = _planned(patient)
    # Batches by class are all alike, and packs in tokens.
    if view is None or plan is None or isinstance(view.recipe, ClassBatches | PackBatches):
        return
    if plan.abreast % view.num_ranks and len(plan) > view.num_ranks:
        yield Finding(
            "abreast-does-not-fit",
            "warning",
            f"{plan.abreast} neighbouring batches cost alike, and a step has one for each of "
            f"{view.num_ranks} ranks: these wait for the most expensive one",
            f"say an abreast that {view.num_ranks} divides; a run that goes on keeps that of its first start",
        )


def samples_left_out(patient: Patient) -> Iterator[Finding]:
    """Samples that the policies of a recipe never read."""
    view, plan = _planned(patient)
    if view is None or plan is None or not plan.dropped:
        return
    size = view.layout.num_samples
    if plan.dropped > MOST_LEFT_OUT * size:
        yield Finding(
            "samples-left-out",
            "warning" if len(plan) else "error",
            f"{plan.dropped} of {size} samples are left out of an epoch by long and short",
            'say long="split"'
            if isinstance(view.recipe, PackBatches)
            else 'raise max_tokens, say long="truncate" or "alone", or short="merge"',
        )


def fewer_batches_than_ranks(patient: Patient) -> Iterator[Finding]:
    """An epoch in which some ranks have nothing of their own."""
    view, plan = _planned(patient)
    if view is None or plan is None or not 0 < len(plan) < view.num_ranks:
        return
    yield Finding(
        "fewer-batches-than-ranks",
        "error" if view.tail == "drop" else "warning",
        f"batches in an epoch: {len(plan)}, fewer than the {view.num_ranks} ranks, with tail={view.tail!r}",
        "make batches smaller, use fewer ranks, or say tail='split'",
    )


def loss_ignores_tokens(patient: Patient) -> Iterator[Finding]:
    """A loop that takes the mean over each rank's batch, where these hold different numbers of tokens."""
    view = patient.view
    if view is None or view.recipe is None or view.num_ranks == 1 or not patient.ignores_tokens:
        return
    if isinstance(view.recipe, ClassBatches):
        return
    yield Finding(
        "loss-ignores-tokens",
        "warning",
        "the module trains with backward() and never asks loader.tokens(step): ranks hold different numbers "
        "of tokens, and the mean of their means weighs those in small batches more",
        "divide the summed loss by loader.tokens(step) / ranks, which needs no communication",
    )


def ignores_tokens(make: Callable[[], Any]) -> bool:
    """Whether the module of a function calls `backward()` on something, and `tokens()` on nothing."""
    whole = module_code(inspect.getmodule(make))
    names = {name for code in codes_in(whole) for name in code.co_names} if whole is not None else set()
    return "backward" in names and "tokens" not in names


def batches_counted(patient: Patient) -> Iterator[Finding]:
    """Epochs of unlike numbers of batches, in a trainer that counts those of the first one."""
    view, trainer = patient.view, patient.trainer
    if trainer is None or not trainer.counts or view is None or view.recipe is None:
        return
    counts = [view.steps(view.reading(epoch)) for epoch in range(_EPOCHS_COUNTED)]
    if len(set(counts)) > 1:
        yield Finding(
            "batches-counted",
            "error",
            f"{trainer.name} asks for the number of batches once and leaves each epoch after as many, and "
            f"epochs have {', '.join(map(str, counts))}",
            "take a plan over the whole set, which has one number in all epochs, or say num_batches",
        )
