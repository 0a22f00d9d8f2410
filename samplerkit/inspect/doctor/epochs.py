"""Whether the epoch reaches all who need it."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from typing import Any

import torch

from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.loading.torch_sampler import TorchSampler
from samplerkit.samplers.base import Sampler

_EPOCH_NAMES = ("epoch", "_epoch", "current_epoch", "shared_epoch")


def epoch_frozen(patient: Patient) -> Iterator[Finding]:
    """A sampler that shuffles by its epoch, and stands at the first one, or at another one than training."""
    told = [patient.loader] if patient.is_ours else []
    told += [sampler for sampler in patient.samplers if not isinstance(sampler, Sampler)]
    for sampler in told:
        epoch, name = getattr(sampler, "epoch", None), type(sampler).__name__
        is_told = callable(getattr(sampler, "set_epoch", None)) and isinstance(epoch, int)
        if not is_told or getattr(sampler, "shuffle", True) is False:
            continue
        if patient.epoch is not None and epoch != patient.epoch:
            what = f"{name} stands at epoch {epoch}, and training at {patient.epoch}"
        elif patient.epoch is None and epoch == 0 and not _advances_by_itself(patient, sampler):
            what = f"{name}.set_epoch has not been called: each epoch has the order of the first one"
        else:
            continue
        yield Finding(
            "epoch-frozen",
            "error" if patient.epoch is not None else "warning",
            what,
            "call sampler.set_epoch(epoch) before each epoch, or use sk.TorchSampler, which moves on alone",
        )


def epoch_in_workers(patient: Patient) -> Iterator[Finding]:
    """A dataset with an epoch, in workers that were started with the first one."""
    lives_on = patient.num_workers > 0 and patient.persistent_workers and not patient.is_ours
    if not lives_on or not callable(getattr(patient.dataset, "set_epoch", None)):
        return
    if any(_is_shared(getattr(patient.dataset, name, None)) for name in _EPOCH_NAMES):
        return
    yield Finding(
        "epoch-in-workers",
        "error",
        f"{type(patient.dataset).__name__}.set_epoch does not reach the {patient.num_workers} persistent "
        "workers, which keep the copy with which they were started",
        "use sk.Loader, which tells the workers, or keep the epoch in a shared tensor, or give up "
        "persistent_workers",
    )


def _advances_by_itself(patient: Patient, sampler: Any) -> bool:
    # Every trainer that is known calls set_epoch when an epoch begins.
    if patient.is_ours or patient.trainer is not None or isinstance(sampler, TorchSampler):
        return True
    code = getattr(getattr(type(sampler), "__iter__", None), "__code__", None)
    if code is None:
        return False
    stores = any(
        step.opname == "STORE_ATTR" and step.argval == "epoch" for step in dis.get_instructions(code)
    )
    return stores or "set_epoch" in code.co_names


def _is_shared(epoch: Any) -> bool:
    if isinstance(epoch, torch.Tensor):
        return bool(epoch.is_shared())  # type: ignore[no-untyped-call]  # torch's
    # What multiprocessing.Value gives has a lock or stands for one number in shared memory.
    return hasattr(epoch, "get_lock") or type(epoch).__module__.startswith("multiprocessing.")
