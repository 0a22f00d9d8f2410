"""Batches by class: such as hold one class only."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.samplers.pk import PKSampler

_LOOKED_AT = 64
"""Batches of an epoch that are looked at, from the first."""


def one_class_batches(patient: Patient) -> Iterator[Finding]:
    """Draws of PKSampler that reach the loop class after class."""
    drawing = next((sampler for sampler in patient.samplers if isinstance(sampler, PKSampler)), None)
    if drawing is None or patient.view is None or patient.view.batch_size == 1:
        return
    labels: Any = drawing.labels if drawing.labels is not None else drawing._found(patient.dataset)
    if np.unique(labels).size < 2:
        return
    reading = patient.view.reading(patient.view.epoch, patient.view.run.world.shard_id)
    held = [np.unique(labels[ids]).size for _, ids in islice(reading.batches(), _LOOKED_AT) if ids.size > 1]
    alone = sum(count == 1 for count in held)
    if 2 * alone <= len(held):
        return
    yield Finding(
        "one-class-batches",
        "warning",
        f"{alone} of the first {len(held)} batches hold one class: PKSampler draws {drawing.num_val} samples "
        "of one class, then those of the next; its shuffle is one of the classes",
        "put sk.RandomSampler() over it, by add_child, or say a num_val that is a part of the batch",
    )
