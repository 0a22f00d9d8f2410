"""Asking a sampler for its first ids, and a dataset for its first entries, without leaving a trace."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import torch

from samplerkit.inspect.doctor.patient import Patient
from samplerkit.loading.generators import kept_generators
from samplerkit.loading.identity import digest, seeds_of
from samplerkit.samplers.base import Sampler

LARGEST = 1 << 20
"""The longest order that is asked for: some samplers build all of theirs to give the first id."""

_FIRST = 64
_ORDERED_NAMES = ("files", "paths", "samples", "urls", "shards", "indices", "ids", "imgs", "data")


def ids_under(patient: Patient, seed: int) -> list[Any] | None:
    """Gives the first ids, with the process-wide random states seeded for the time being.

    Args:
        patient: whose sampler is asked; it is copied first, so that what it counts stays.
        seed: of the states of torch, numpy and Python.

    Returns:
        At most 64 ids, or None of a sampler that is too long to ask or has nothing to give.
    """
    if (patient.size() or 0) > LARGEST or not patient.samplers:
        return None
    with _seeded(seed):
        if patient.view is not None:
            run = patient.view.run
            order = run.recipe.undealt_order(run.dataset, patient.view.epoch, constants=run.constants)
            return list(order[:_FIRST].tolist())
        innermost = copy.copy(patient.samplers[0])
        return [_plain(entry) for entry in islice(iter(innermost), _FIRST)]


def seeds(patient: Patient) -> list[int]:
    """Gives all seeds that can be seen."""
    chain = next((sampler for sampler in patient.samplers if isinstance(sampler, Sampler)), None)
    found = [] if chain is None else seeds_of(chain)
    for sampler in patient.samplers:
        if isinstance(sampler, Sampler):
            continue
        seed, generator = getattr(sampler, "seed", None), getattr(sampler, "generator", None)
        found += [seed] if isinstance(seed, int) else []
        found += [generator.initial_seed()] if isinstance(generator, torch.Generator) else []
    return found


def appearance(patient: Patient) -> dict[str, str]:
    """Tells what another process must find the same: seeds, the first ids, the order of the dataset.

    Returns:
        A digest by name. The first ids are those under one random state: that they depend on it is
        another finding.
    """
    ids = ids_under(patient, 0)
    held = patient.dataset if isinstance(patient.dataset, list | tuple) else None
    entries = [repr(entry) for entry in (held or [])[:_FIRST]]
    for name in _ORDERED_NAMES:
        value = getattr(patient.dataset, name, None)
        if isinstance(value, list | tuple):
            entries += [name, *map(repr, value[:_FIRST])]
    return {
        "the seed": digest(repr(seeds(patient))),
        "the first samples": digest(repr(ids)),
        "the order of the dataset": digest(repr(entries)),
    }


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with kept_generators():
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # the legacy state is what other people's code draws from
        torch.default_generator.manual_seed(seed)
        yield


def _plain(entry: Any) -> Any:
    return entry.tolist() if hasattr(entry, "tolist") else entry
