"""Whether what is saved is what was received."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import CodeType, ModuleType
from typing import Any

import torch.utils.data

from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.loading.torch_sampler import TorchSampler


def saves_a_sampler(make: Callable[[], Any]) -> bool:
    """Whether the module of a function asks a sampler for its state, as in `sampler.state_dict()`."""
    whole = module_code(inspect.getmodule(make))
    return whole is not None and any(_asks_a_sampler(code) for code in codes_in(whole))


def module_code(module: ModuleType | None) -> CodeType | None:
    """Compiles the source of a module; None where there is none."""
    try:
        return None if module is None else compile(inspect.getsource(module), "", "exec")
    except (OSError, TypeError, SyntaxError, ValueError):
        return None


def codes_in(code: CodeType) -> Iterator[CodeType]:
    """Gives a code object and all inside of it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_in(constant)


def _asks_a_sampler(code: CodeType) -> bool:
    steps = [step for step in dis.get_instructions(code) if isinstance(step.argval, str)]
    return any(
        asked.argval == "state_dict" and "sampler" in of.argval.lower() for of, asked in pairwise(steps)
    )


def resume_inexact(patient: Patient) -> Iterator[Finding]:
    """The state of a sampler from which workers take ids ahead."""
    if patient.num_workers == 0 or type(patient.loader) is not torch.utils.data.DataLoader:
        return
    ours = [sampler for sampler in patient.samplers if isinstance(sampler, TorchSampler)]
    # A sampler that stands inside of an epoch before it has yielded anything was given a state.
    if not ours or not (patient.saves_state or ours[0]._cursor.at.start > 0):
        return
    ahead = patient.num_workers * (patient.loader.prefetch_factor or 2)
    yield Finding(
        "resume-inexact",
        "error",
        f"the state of TorchSampler is up to {ahead} batches ahead of what the loop received, since "
        f"{patient.num_workers} workers read ahead: a resume skips them",
        "use sk.Loader, or torchdata's StatefulDataLoader, whose states count what was received",
    )


def skipped_twice(patient: Patient) -> Iterator[Finding]:
    """A trainer that skips what the state of the loader has behind it."""
    trainer = patient.trainer
    ours = patient.is_ours or any(isinstance(sampler, TorchSampler) for sampler in patient.samplers)
    if trainer is None or not trainer.skips or not ours:
        return
    yield Finding(
        "skipped-twice",
        "error",
        f"{trainer.name} {trainer.skips} the batches of before, where it resumes; those of a loader that was "
        "given its state are behind it already",
        f"{trainer.instead}, so that the state alone says where the run goes on",
    )
