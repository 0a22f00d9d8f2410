"""Whether what is saved is what was received."""

from __future__ import annotations

from collections.abc import Iterator

import torch.utils.data

from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.loading.torch_sampler import TorchSampler


def resume_inexact(patient: Patient) -> Iterator[Finding]:
    """The state of a sampler from which workers take ids ahead."""
    if patient.num_workers == 0 or type(patient.loader) is not torch.utils.data.DataLoader:
        return
    ours = [sampler for sampler in patient.samplers if isinstance(sampler, TorchSampler)]
    # A sampler that stands inside of an epoch before it has yielded anything was given a state.
    if not ours or not (patient.saves_state or ours[0]._start > 0):
        return
    ahead = patient.num_workers * (patient.loader.prefetch_factor or 2)
    yield Finding(
        "resume-inexact",
        "error",
        f"the state of TorchSampler is up to {ahead} batches ahead of what the loop received, since "
        f"{patient.num_workers} workers read ahead: a resume skips them",
        "use sk.Loader, or torchdata's StatefulDataLoader, whose states count what was received",
    )
