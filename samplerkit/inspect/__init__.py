"""Tools to inspect data orders: `at` and `when`, the checks, quality figures and pictures.

Example:
    >>> import samplerkit as sk
    >>> from samplerkit import inspect
    >>> loader = sk.Loader(range(1000), sk.RandomSampler(seed=7), batch_size=10, world=sk.World(2, 0))
    >>> inspect.check(loader)
    ()
    >>> sample = inspect.at(loader, epoch=3, step=40, rank=1).ids[0]
    >>> inspect.when(loader, sample, epochs=3)[0].occurrences[0].step
    40
"""

from samplerkit.inspect.doctor.check import check
from samplerkit.inspect.doctor.findings import Finding
from samplerkit.inspect.time_machine import (
    EpochOfSample,
    Occurrence,
    PartRead,
    StepRead,
    at,
    when,
    when_document,
)

__all__ = [
    "EpochOfSample",
    "Finding",
    "Occurrence",
    "PartRead",
    "StepRead",
    "at",
    "check",
    "when",
    "when_document",
]
