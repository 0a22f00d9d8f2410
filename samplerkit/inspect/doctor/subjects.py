"""What rules look at: any loader, or what samplerkit knows of one: its run, its order, its batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from samplerkit.batches.plan import BatchPlan
from samplerkit.batches.recipe import BatchRecipe
from samplerkit.inspect.doctor.inspection import InspectedRun, Inspection


@final
@dataclass(frozen=True, eq=False)
class PlannedRun:
    """A run whose batches come from a plan."""

    run: InspectedRun
    recipe: BatchRecipe
    plan: BatchPlan


def any_loader(seen: Inspection) -> Inspection:
    """A loader, whatever its sampler."""
    return seen


def stream(seen: Inspection) -> Inspection | None:
    """A torch DataLoader of an iterable dataset."""
    return seen if seen.is_iterable else None


def loader_with_length(seen: Inspection) -> Inspection | None:
    """A loader whose batches can be counted.

    An order that takes minutes and gigabytes to make is not made to look at its end.
    """
    return None if seen.view is not None and seen.listed is not None else seen


def run(seen: Inspection) -> InspectedRun | None:
    """A loader whose order is samplerkit's; the order is not made."""
    return seen if isinstance(seen, InspectedRun) else None


def order(seen: Inspection) -> InspectedRun | None:
    """The same, where the order can be made."""
    return None if loader_with_length(seen) is None else run(seen)


def batches(seen: Inspection) -> PlannedRun | None:
    """A run whose batches come from a plan."""
    found = order(seen)
    plan = None if found is None else found.view.run.plan(found.view.epoch)
    if found is None or plan is None or found.view.recipe is None:
        return None
    return PlannedRun(found, found.view.recipe, plan)
