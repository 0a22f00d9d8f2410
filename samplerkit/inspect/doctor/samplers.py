"""Samplers: chains that repeat, fold or draw otherwise than was meant; lists of all ids in memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch.utils.data

from samplerkit.inspect.doctor.findings import Fault, Faults, any_loader, order, rule, run
from samplerkit.inspect.doctor.inspection import GIB, InspectedRun, Inspection
from samplerkit.order.modes import FILE_AWARE, Shuffle
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.fold import FoldSampler
from samplerkit.samplers.pk import PKSampler
from samplerkit.samplers.repeat import RepeatFactorSampler, RepeatSampler
from samplerkit.samplers.shuffled import ModedSampler, RandomSampler
from samplerkit.samplers.window import WindowSampler

MOST_WEIGHTS = 1 << 24
"""What `torch.multinomial` takes."""

_BATCHES_LOOKED_AT = 64

_Link = TypeVar("_Link", bound=Sampler)


@rule("warning", any_loader)
def materialises(seen: Inspection) -> Faults:
    """The sampler builds a list of all samples in the memory of every rank."""
    if seen.listed is None:
        return
    sampler, needed = seen.listed
    whole: Any = getattr(sampler, "dataset", getattr(sampler, "data_source", None))
    length = len(whole) if hasattr(whole, "__len__") else seen.size or 0
    ranks = seen.world.num_shards
    on_all = f", {needed * ranks / GIB:.1f} GiB on {ranks} ranks" if ranks > 1 else ""
    yield Fault(
        f"{type(sampler).__name__} builds a list of {length} samples: about {needed / GIB:.1f} GiB in this "
        f"process{on_all}, and a wait at each epoch's start",
        "use sk.TorchSampler(sk.RandomSampler(), dataset) or sk.Loader, whose orders are computed",
    )


@rule("error", any_loader)
def too_many_weights(seen: Inspection) -> Faults:
    """torch refuses to draw from more than 2^24 weights."""
    for sampler in seen.others:
        is_weighted = isinstance(sampler, torch.utils.data.WeightedRandomSampler)
        if is_weighted and len(sampler.weights) > MOST_WEIGHTS:
            yield Fault(
                f"{len(sampler.weights)} weights, and torch.multinomial takes at most {MOST_WEIGHTS}",
                "use sk.WeightedRandomSampler(weights) with sk.Loader or sk.TorchSampler",
            )


@rule("warning", run)
def repeats_break_lanes(seen: InspectedRun) -> Faults:
    """Copies are dealt above an order that keeps files together: ranks share these."""
    ranks = seen.view.num_ranks
    if ranks == 1 or not seen.view.layout.has_files:
        return
    for sampler, _, below in _links(seen, RepeatSampler):
        keeps_files = any(
            isinstance(link, ModedSampler) and link.mode.shuffle in FILE_AWARE for link in below
        )
        if sampler.repeats > 1 and keeps_files:
            yield Fault(
                f"RepeatSampler({sampler.repeats}) deals copies to {ranks} ranks above an order that keeps "
                "files together: each rank reads the files of all",
                "use GLOBAL below it, or repeat a sample where it is read",
            )


@rule("warning", run)
def draws_limited(seen: InspectedRun) -> Faults:
    """`num_samples` of `RandomSampler` is more than there is to draw from, and not reached."""
    for sampler, _, _ in _links(seen, RandomSampler):
        wanted = sampler.num_samples or 0
        size = len(sampler.undealt_order(seen.dataset)) if wanted else 0
        if 0 < size < wanted:
            place = "over" if sampler.shuffle in FILE_AWARE else "below"
            yield Fault(
                f"RandomSampler(num_samples={wanted}) yields {size} samples, as many as it draws from",
                f"put sk.RepeatSampler({-(-wanted // size)}) {place} it, by add_child, for {wanted} samples",
            )


@rule("warning", any_loader)
def copies_together(seen: Inspection) -> Faults:
    """`RepeatFactorSampler` yields copies next to one another, and nothing shuffles them."""
    for _, above, _ in _links(seen, RepeatFactorSampler):
        if not any(map(_shuffles, above)):
            yield Fault(
                "RepeatFactorSampler yields the copies of a sample next to one another, and nothing above it "
                "shuffles",
                "put sk.RandomSampler() over it, by add_child",
            )


@rule("warning", any_loader)
def held_out_shuffled(seen: Inspection) -> Faults:
    """The held-out part of a `FoldSampler` is shuffled, as one does for training."""
    for sampler, above, _ in _links(seen, FoldSampler):
        if sampler.held_out and any(map(_shuffles, above)):
            yield Fault(
                f"fold {sampler.fold} of {sampler.num_folds} is held out, and shuffled as for training",
                "say held_out=False for training, or leave the shuffling out for an evaluation",
            )


@rule("error", any_loader)
def folds_overlap(seen: Inspection) -> Faults:
    """Windows that share samples are parted one by one, so that folds meet."""
    for sampler, _, below in _links(seen, FoldSampler):
        for window in below if not sampler.by_files and sampler.groups is None else ():
            if isinstance(window, WindowSampler) and window.stride < window.size:
                yield Fault(
                    f"windows of {window.size} samples, {window.stride} apart, share samples, and "
                    "FoldSampler parts them one by one: what is held out is trained on",
                    "say by_files=True, or groups",
                )


@rule("warning", order)
def one_class_batches(seen: InspectedRun) -> Faults:
    """Batches hold samples of one class, since `PKSampler` draws class after class."""
    view = seen.view
    drawing = next((sampler for sampler, _, _ in _links(seen, PKSampler)), None)
    if drawing is None or view.batch_size == 1:
        return
    labels: Any = drawing.labels if drawing.labels is not None else drawing._found(seen.dataset)
    if np.unique(labels).size < 2:
        return
    batches = islice(view.reading(view.epoch, view.run.world.shard_id).batches(), _BATCHES_LOOKED_AT)
    held = [np.unique(labels[ids]).size for _, ids in batches if ids.size > 1]
    alone = held.count(1)
    if 2 * alone > len(held):
        yield Fault(
            f"{alone} of the first {len(held)} batches hold one class: PKSampler draws {drawing.num_val} "
            "samples of one class, then those of the next; its shuffle is one of the classes",
            "put sk.RandomSampler() over it, by add_child, or say a num_val that is a part of the batch",
        )


def _links(seen: Inspection, kind: type[_Link]) -> Iterator[tuple[_Link, list[Sampler], list[Sampler]]]:
    """Yields the samplers of a class in samplerkit's chain, with those above and those below each."""
    for place, sampler in enumerate(seen.chain):
        if isinstance(sampler, kind):
            yield sampler, seen.chain[:place], seen.chain[place + 1 :]


def _shuffles(sampler: Sampler) -> bool:
    return isinstance(sampler, ModedSampler) and sampler.shuffle is not Shuffle.FALSE
