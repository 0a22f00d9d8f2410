"""Samplers and datasets that cost memory on every rank or in every worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.data

from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.inspect.plan import LISTED_BYTES
from samplerkit.loading.torch_sampler import TorchSampler
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.distributed import DistributedSampler
from samplerkit.samplers.mixture import MixtureSampler
from samplerkit.samplers.random import RandomSampler
from samplerkit.samplers.sequential import SequentialSampler
from samplerkit.samplers.subset import SubsetRandomSampler, SubsetSampler
from samplerkit.samplers.weighted import WeightedRandomSampler

GIB = 1 << 30
MOST_WEIGHTS = 1 << 24
"""What `torch.multinomial` takes."""

_BYTES_OF_A_LIST = 40
_BYTES_OF_A_TABLE = 24
_BYTES_OF_AN_OBJECT = 64
_BY_ARITHMETIC = (SequentialSampler, RandomSampler, SubsetSampler, SubsetRandomSampler, DistributedSampler)


def materialises(patient: Patient) -> Iterator[Finding]:
    """A list of all samples, on every rank."""
    size = patient.size() or 0
    for sampler in patient.samplers:
        needed = _bytes_needed(sampler, size)
        if needed < GIB:
            continue
        ranks = patient.world.num_shards
        on_all = f", {needed * ranks / GIB:.1f} GiB on {ranks} ranks" if ranks > 1 else ""
        yield Finding(
            "materialises",
            "warning",
            f"{type(sampler).__name__} builds a list of {_length(sampler, size)} samples: about "
            f"{needed / GIB:.1f} GiB in this process{on_all}, and a wait at each epoch's start",
            "use sk.TorchSampler(sk.RandomSampler(), dataset) or sk.Loader, whose orders are computed",
        )
        return


def too_many_weights(patient: Patient) -> Iterator[Finding]:
    """Weights that torch cannot draw from."""
    for sampler in patient.samplers:
        is_torchs = isinstance(sampler, torch.utils.data.WeightedRandomSampler)
        if is_torchs and len(sampler.weights) > MOST_WEIGHTS:
            yield Finding(
                "too-many-weights",
                "error",
                f"{len(sampler.weights)} weights, and torch.multinomial takes at most {MOST_WEIGHTS}",
                "use sk.WeightedRandomSampler(weights) with sk.Loader or sk.TorchSampler",
            )


def python_lists(patient: Patient) -> Iterator[Finding]:
    """Long Python lists, of which each worker comes to own a copy by counting references."""
    holds = getattr(patient.dataset, "__dict__", {}).items()
    for name, value in holds:
        if not isinstance(value, list | tuple | dict):
            continue
        grows = len(value) * _BYTES_OF_AN_OBJECT * patient.num_workers
        if grows >= GIB:
            yield Finding(
                "python-lists",
                "warning",
                f"{type(patient.dataset).__name__}.{name} holds {len(value)} Python objects: "
                f"{patient.num_workers} workers come to own copies of up to {grows / GIB:.1f} GiB together",
                "keep them in numpy arrays, whose pages workers share",
            )


def _bytes_needed(sampler: Any, size: int) -> int:
    if isinstance(sampler, TorchSampler):
        return 0
    if isinstance(sampler, Sampler):
        return _bytes_of_ours(sampler, size)
    torchs = torch.utils.data
    if isinstance(sampler, torchs.DistributedSampler):
        whole = len(sampler.dataset)  # type: ignore[arg-type]  # torch's own constructor asks for it
        return (LISTED_BYTES if sampler.shuffle else _BYTES_OF_A_LIST) * whole
    if isinstance(sampler, torchs.RandomSampler):
        # With replacement, torch draws 32 at a time.
        return 0 if sampler.replacement else LISTED_BYTES * len(sampler.data_source)
    if isinstance(sampler, torchs.SubsetRandomSampler | torchs.WeightedRandomSampler):
        return LISTED_BYTES * len(sampler)
    held = [value for value in getattr(sampler, "__dict__", {}).values() if isinstance(value, list | tuple)]
    return _BYTES_OF_A_LIST * max((len(value) for value in held), default=0)


def _bytes_of_ours(sampler: Sampler, size: int) -> int:
    if isinstance(sampler, WeightedRandomSampler) and sampler.replacement:
        return 0
    if isinstance(sampler, (*_BY_ARITHMETIC, MixtureSampler)):
        return 0
    return _BYTES_OF_A_TABLE * (min(sampler.num_samples or size, size) if size else 0)


def _length(sampler: Any, size: int) -> int:
    whole: Any = getattr(sampler, "dataset", getattr(sampler, "data_source", None))
    return len(whole) if hasattr(whole, "__len__") else size
