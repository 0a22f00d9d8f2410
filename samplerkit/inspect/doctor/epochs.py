"""Rules about epochs: `set_epoch`, and the end of an epoch: pads, uneven ranks, batches that never fill."""

import dis
from typing import Any

import torch
import torch.utils.data

from samplerkit.inspect.doctor.findings import Fault, Faults, rule
from samplerkit.inspect.doctor.inspection import InspectedRun, Inspection, PlannedRun, length_of
from samplerkit.loading.torch_sampler import EpochByCursor

_EPOCH_NAMES = ("epoch", "_epoch", "current_epoch", "shared_epoch")
_EPOCHS_COUNTED = 4


@rule("warning", Inspection.any_loader)
def epoch_frozen(setup: Inspection) -> Faults:
    """`set_epoch` was not called, so that each epoch has the order of the first one.

    Hint:
        call its set_epoch(epoch) before each epoch, or use sk.TorchSampler, which moves on alone
    """
    for sampler in (*([setup.loader] if setup.is_ours else []), *setup.bridges, *setup.others):
        epoch, name = getattr(sampler, "epoch", None), type(sampler).__name__
        has_epoch = callable(getattr(sampler, "set_epoch", None)) and isinstance(epoch, int)
        if not has_epoch or getattr(sampler, "shuffle", True) is False:
            continue
        if setup.epoch is not None and epoch != setup.epoch:
            yield Fault(f"{name} is at epoch {epoch}, and training at {setup.epoch}", severity="error")
        elif setup.epoch is None and epoch == 0 and not _advances_by_itself(setup, sampler):
            yield Fault(f"{name}.set_epoch has not been called: each epoch has the order of the first one")


def _advances_by_itself(setup: Inspection, sampler: Any) -> bool:
    # All known trainers call set_epoch at the beginning of an epoch.
    if isinstance(sampler, EpochByCursor) and setup.trainer is None:
        return sampler._cursor._advances
    if setup.is_managed or setup.trainer is not None:
        return True
    code = getattr(getattr(type(sampler), "__iter__", None), "__code__", None)
    if code is None:
        return False
    stores = any(
        step.opname == "STORE_ATTR" and step.argval == "epoch" for step in dis.get_instructions(code)
    )
    return stores or "set_epoch" in code.co_names


@rule("error", Inspection.any_loader)
def epoch_in_workers(setup: Inspection) -> Faults:
    """Persistent workers keep their copy of the dataset, and never see its `set_epoch`.

    Hint:
        use sk.Loader, which passes the epoch to its workers, or keep the epoch in a shared tensor, or give up
        persistent_workers
    """
    is_persistent = not setup.is_ours and setup.loader.num_workers > 0 and setup.loader.persistent_workers
    if not is_persistent or not callable(getattr(setup.dataset, "set_epoch", None)):
        return
    if not any(_is_shared(getattr(setup.dataset, name, None)) for name in _EPOCH_NAMES):
        yield Fault(
            f"{type(setup.dataset).__name__}.set_epoch does not reach the {setup.num_workers} persistent "
            "workers, which keep the copy with which they were started"
        )


def _is_shared(epoch: Any) -> bool:
    if isinstance(epoch, torch.Tensor):
        return bool(epoch.is_shared())  # type: ignore[no-untyped-call]  # torch's
    # A multiprocessing.Value has a lock, or is a number in shared memory.
    return hasattr(epoch, "get_lock") or type(epoch).__module__.startswith("multiprocessing.")


@rule("warning", Inspection.loader_with_length)
def padded_evaluation(setup: Inspection) -> Faults:
    """An evaluation reads some samples twice, and counts them twice."""
    pads, units, source, hint = 0, ("sample", "samples"), "", ""
    if not isinstance(setup, InspectedRun):
        for sampler in setup.others:
            if isinstance(sampler, torch.utils.data.DistributedSampler) and not sampler.shuffle:
                pads = sampler.total_size - len(sampler.dataset)  # type: ignore[arg-type]  # it has a length
                source = type(sampler).__name__
                hint = "use sk.Loader with tail='ragged', or leave out the repeats when metrics are gathered"
    elif setup.is_evaluation:
        pads, other = setup.figures.pads, "ragged"
        if setup.view.recipe is not None:
            units, other = ("batch", "batches"), "split"
        source = f"tail={setup.view.run.tail!r}"
        hint = (
            f"use tail={other!r}, or leave out the samples that the mask loader.pads(loader.step - 1) marks"
        )
        if not setup.is_ours:
            source = "TorchSampler"
            hint = "use DistributedSampler(offset=0) as its recipe, which pads nothing"
    if pads > 0:
        yield Fault(
            f"{source} repeats {pads} {units[pads > 1]}, so that all ranks get the same number: metrics over "
            "all ranks count them twice",
            hint,
        )


@rule("warning", Inspection.run_with_order)
def concat_padded(setup: InspectedRun) -> Faults:
    """A ConcatDataset is dealt with repeats, where MindSpore reads each sample once.

    Hint:
        use offset=0 to read each sample once, as MindSpore does; then some ranks read one less
    """
    is_concat = isinstance(setup.dataset, torch.utils.data.ConcatDataset)
    if setup.is_ours or not is_concat or setup.view.run.sampler.chain.deal is None:
        return
    pads = setup.figures.pads
    if pads > 0:
        yield Fault(
            f"DistributedSampler repeats {pads} sample{'s' if pads > 1 else ''} of the ConcatDataset, so "
            "that all ranks get the same number; MindSpore's repeats none there"
        )


@rule("warning", Inspection.run_with_order)
def uneven_steps(setup: InspectedRun) -> Faults:
    """Ranks have different numbers of steps, so that a collective of the last step hangs."""
    view = setup.view
    if view.run.tail != "ragged" or view.num_ranks == 1 or setup.is_evaluation:
        return
    fewest, most = setup.figures.steps
    if fewest < most:
        others = "tail='pad'" if view.recipe is None else "tail='pad', 'split'"
        yield Fault(
            f"some ranks have {fewest} steps and others {most}: a collective in the last one hangs",
            f"use {others} or tail='drop' for training, or use DDP's join()",
        )


@rule("error", Inspection.loader_with_length)
def drops_everything(setup: Inspection) -> Faults:
    """The last, incomplete batch is dropped, and it is the only one.

    Hint:
        use a smaller batch_size, or keep the last batch
    """
    if setup.view is not None and setup.view.recipe is not None:
        return  # `fewer_batches_than_ranks` reports this
    batch, samples = _batch_of_a_rank(setup)
    if setup.steps == 0 and (samples or 0) > 0:
        yield Fault(
            f"an epoch has no batch: a rank reads {samples} samples, fewer than a batch of {batch}, and the "
            "last batch is dropped"
        )


@rule("warning", Inspection.loader_with_length)
def batch_larger_than_shard(setup: Inspection) -> Faults:
    """A batch is larger than all that a rank reads in an epoch.

    Hint:
        use a smaller batch_size, so that learning rate and step count mean what they say
    """
    batch, samples = _batch_of_a_rank(setup) if setup.steps else (None, None)
    if batch is not None and samples is not None and batch > samples:
        yield Fault(f"batch_size is {batch}, and a rank reads {samples} samples in an epoch")


def _batch_of_a_rank(setup: Inspection) -> tuple[int | None, int | None]:
    """Returns the batch size, and the samples that a rank reads; None for a number that is not known."""
    if setup.view is not None:
        samples = len(setup.view.run.epoch(setup.view.epoch).order)
        return setup.view.batch_size, -(-samples // setup.view.num_ranks)
    batch_sampler = getattr(setup.loader, "batch_sampler", None)
    size = getattr(batch_sampler, "batch_size", None)
    return size if isinstance(size, int) else None, length_of(getattr(batch_sampler, "sampler", None))


@rule("error", Inspection.any_loader)
def skipped_twice(setup: Inspection) -> Faults:
    """On a resume, a trainer skips batches that the state of the loader has skipped already."""
    trainer = setup.trainer
    if trainer is not None and trainer.skips and (setup.is_ours or setup.bridges):
        yield Fault(
            f"{trainer.name} {trainer.skips} the batches before the checkpoint when it resumes; a loader "
            "that has loaded its state has skipped them already",
            f"{trainer.instead}, so that only the state determines where the run resumes",
        )


@rule("error", Inspection.run_with_plan)
def batches_counted(setup: PlannedRun) -> Faults:
    """A trainer counts the batches of the first epoch, and other epochs have more or fewer.

    Hint:
        take a plan over the whole set, which has one number in all epochs, or use num_batches
    """
    trainer, view = setup.run.trainer, setup.run.view
    if trainer is None or not trainer.counts:
        return
    counts = [view.steps(view.reading(epoch)) for epoch in range(_EPOCHS_COUNTED)]
    if len(set(counts)) > 1:
        yield Fault(
            f"{trainer.name} asks for the number of batches once and ends each epoch after as many, but "
            f"epochs have {', '.join(map(str, counts))}"
        )
