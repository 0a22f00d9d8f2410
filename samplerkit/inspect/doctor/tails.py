"""The end of an epoch: pads, uneven ranks, batches that never fill."""

from __future__ import annotations

from collections.abc import Iterator

import torch.utils.data

from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.inspect.view import RunView
from samplerkit.loading.torch_sampler import TorchSampler


def padded_evaluation(patient: Patient) -> Iterator[Finding]:
    """An evaluation in order, of which some samples come twice."""
    if patient.view is not None:
        pads, who = _pads(patient.view), f"tail={patient.view.tail!r}"
        other = "ragged" if patient.view.recipe is None else "split"
        mend = f"say tail={other!r}, or leave out what the mask loader.pads(loader.step - 1) marks"
        if not patient.is_ours:
            who, mend = "TorchSampler", "use DistributedSampler(offset=0) as its recipe, which pads nothing"
        if not patient.is_evaluation:
            return
    else:
        found = [
            sampler
            for sampler in patient.samplers
            if isinstance(sampler, torch.utils.data.DistributedSampler)
            and not isinstance(sampler, TorchSampler)
            and not sampler.shuffle
        ]
        if not found:
            return
        pads = found[0].total_size - len(found[0].dataset)  # type: ignore[arg-type]  # torch's has a length
        who = type(found[0]).__name__
        mend = "use sk.Loader with tail='ragged', or leave out the repeats when metrics are gathered"
    if pads > 0:
        yield Finding(
            "padded-evaluation",
            "warning",
            f"{who} repeats {_counted(patient, pads)}, so that all ranks get the same number: "
            "metrics over all ranks count them twice",
            mend,
        )


def concat_padded(patient: Patient) -> Iterator[Finding]:
    """A deal of the core over a ConcatDataset, which MindSpore would not pad."""
    view = patient.view
    is_concat = isinstance(patient.dataset, torch.utils.data.ConcatDataset)
    if view is None or patient.is_ours or not is_concat or not view.run.recipe.is_distributed:
        return
    pads = _pads(view)
    if pads > 0:
        yield Finding(
            "concat-padded",
            "warning",
            f"DistributedSampler repeats {pads} sample{'s' if pads > 1 else ''} of the ConcatDataset, so "
            "that all ranks get the same number; MindSpore's repeats none there",
            "say offset=0 to read each sample once, as MindSpore does; then some ranks read one less",
        )


def uneven_steps(patient: Patient) -> Iterator[Finding]:
    """Training whose ranks end in different steps."""
    view = patient.view
    if view is None or view.tail != "ragged" or view.num_ranks == 1 or patient.is_evaluation:
        return
    ranks = {view.run.world.shard_id, 0, view.num_ranks - 1}
    first = view.reading(view.epoch).delivery
    steps = sorted({first.steps(rank) for rank in (*ranks, first.rotation, first.rotation - 1)})
    if len(steps) > 1:
        others = "tail='pad'" if view.recipe is None else "tail='pad', 'split'"
        yield Finding(
            "uneven-steps",
            "warning",
            f"some ranks have {steps[0]} steps and others {steps[-1]}: a collective in the last one hangs",
            f"say {others} or tail='drop' for training, or use DDP's join()",
        )


def drops_everything(patient: Patient) -> Iterator[Finding]:
    """An epoch without a batch."""
    if patient.view is not None and patient.view.recipe is not None:
        return  # `fewer_batches_than_ranks` says so
    if patient.steps() == 0 and (_read_by_a_rank(patient) or 0) > 0:
        yield Finding(
            "drops-everything",
            "error",
            f"an epoch has no batch: a rank reads {_read_by_a_rank(patient)} samples, fewer than a batch of "
            f"{_batch_size(patient)}, and the last batch is dropped",
            "use a smaller batch_size, or keep the last batch",
        )


def batch_larger_than_shard(patient: Patient) -> Iterator[Finding]:
    """A batch size that no batch ever has."""
    if not patient.steps():
        return
    batch, samples = _batch_size(patient), _read_by_a_rank(patient)
    if batch is not None and samples is not None and batch > samples:
        yield Finding(
            "batch-larger-than-shard",
            "warning",
            f"batch_size is {batch}, and a rank reads {samples} samples in an epoch",
            "use a smaller batch_size, so that learning rate and step count mean what they say",
        )


def _batch_size(patient: Patient) -> int | None:
    if patient.view is not None:
        return patient.view.batch_size
    size = getattr(getattr(patient.loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else None


def _read_by_a_rank(patient: Patient) -> int | None:
    if patient.view is not None:
        order = patient.view.run.undealt(patient.view.epoch)
        return -(-len(order) // patient.view.num_ranks)
    sampler = getattr(getattr(patient.loader, "batch_sampler", None), "sampler", None)
    try:
        return len(sampler)  # type: ignore[arg-type]  # what has no length raises
    except TypeError:
        return None


def _pads(view: RunView) -> int:
    plan = view.run.plan(view.epoch)
    units = len(view.run.undealt(view.epoch)) if plan is None else len(plan)
    return -units % view.num_ranks if view.tail == "pad" else 0


def _counted(patient: Patient, pads: int) -> str:
    is_of_batches = patient.view is not None and patient.view.recipe is not None
    one, more = ("batch", "batches") if is_of_batches else ("sample", "samples")
    return f"{pads} {one if pads == 1 else more}"
