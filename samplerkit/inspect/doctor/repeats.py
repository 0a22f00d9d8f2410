"""Samples that are repeated and datasets that are folded: copies together, lanes lost, folds that meet."""

from __future__ import annotations

from collections.abc import Iterator

from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.order.modes import FILE_AWARE
from samplerkit.order.shuffle import Shuffle
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.fold import FoldSampler
from samplerkit.samplers.moded import ModedSampler
from samplerkit.samplers.repeat import RepeatFactorSampler, RepeatSampler
from samplerkit.samplers.window import WindowSampler


def _chain(patient: Patient) -> list[Sampler]:
    """The samplers of ours, the outermost first."""
    return [sampler for sampler in patient.samplers if isinstance(sampler, Sampler)]


def _shuffles(sampler: Sampler) -> bool:
    return isinstance(sampler, ModedSampler) and sampler.shuffle is not Shuffle.FALSE


def repeats_break_lanes(patient: Patient) -> Iterator[Finding]:
    """Copies that are dealt to ranks above an order that gave each rank its own files."""
    view, chain = patient.view, _chain(patient)
    if view is None or view.num_ranks == 1:
        return
    for place, sampler in enumerate(chain):
        if not isinstance(sampler, RepeatSampler) or sampler.repeats == 1:
            continue
        below = [link for link in chain[place + 1 :] if isinstance(link, ModedSampler)]
        if any(link.mode.shuffle in FILE_AWARE for link in below) and view.layout.has_files:
            yield Finding(
                "repeats-break-lanes",
                "warning",
                f"RepeatSampler({sampler.repeats}) deals copies to {view.num_ranks} ranks above an order "
                "that keeps files together: each rank reads the files of all",
                "use GLOBAL below it, or repeat a sample where it is read",
            )


def copies_together(patient: Patient) -> Iterator[Finding]:
    """Repeats by factors that reach the loop as they stand, copies next to one another."""
    chain = _chain(patient)
    for place, sampler in enumerate(chain):
        if isinstance(sampler, RepeatFactorSampler) and not any(map(_shuffles, chain[:place])):
            yield Finding(
                "copies-together",
                "warning",
                "RepeatFactorSampler yields the copies of a sample next to one another, and nothing above it "
                "shuffles",
                "put sk.RandomSampler() over it, by add_child",
            )


def trains_on_held_out(patient: Patient) -> Iterator[Finding]:
    """A held-out fold that is shuffled, as one does for training."""
    chain = _chain(patient)
    for place, sampler in enumerate(chain):
        if isinstance(sampler, FoldSampler) and sampler.held_out and any(map(_shuffles, chain[:place])):
            yield Finding(
                "held-out-shuffled",
                "warning",
                f"fold {sampler.fold} of {sampler.num_folds} is held out, and shuffled as for training",
                "say held_out=False for training, or leave the shuffling out for an evaluation",
            )


def folds_overlap(patient: Patient) -> Iterator[Finding]:
    """Windows that share samples and are parted one by one."""
    chain = _chain(patient)
    for place, sampler in enumerate(chain):
        if not isinstance(sampler, FoldSampler) or sampler.by_files or sampler.groups is not None:
            continue
        for below in chain[place + 1 :]:
            if isinstance(below, WindowSampler) and below.stride < below.size:
                yield Finding(
                    "folds-overlap",
                    "error",
                    f"windows of {below.size} samples, {below.stride} apart, share samples, and FoldSampler "
                    "parts them one by one: what is held out is trained on",
                    "say by_files=True, or groups",
                )
