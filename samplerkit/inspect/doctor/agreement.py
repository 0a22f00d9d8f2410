"""Whether all ranks of a job would read by the same order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.inspect.doctor.probe import ids_under, seeds
from samplerkit.inspect.doctor.sharding import SHUFFLING
from samplerkit.loading.torch_sampler import TorchSampler
from samplerkit.samplers.base import Sampler

_DAY = 86_400
_OLDEST = 30 * _DAY
_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
_ONE_SEED_AS_ANOTHER = "take the seed from the config, the same on all ranks"


def seed_from_clock(patient: Patient) -> Iterator[Finding]:
    """A seed that is the time of day."""
    now = time.time()
    for seed in seeds(patient):
        for unit, per_second in _UNITS.items():
            if -_DAY < now - seed / per_second < _OLDEST:
                several = patient.world.num_shards > 1
                yield Finding(
                    "seed-from-clock",
                    "error" if several else "warning",
                    f"seed {seed} is the time of day in {unit}: "
                    + ("ranks get different ones" if several else "no run can be repeated or resumed"),
                    _ONE_SEED_AS_ANOTHER,
                )
                return


def random_from_process(patient: Patient) -> Iterator[Finding]:
    """An order that comes from the process-wide random state, and is dealt to ranks."""
    if patient.world.num_shards == 1 or (not patient.deals() and patient.view is None):
        return
    for sampler in patient.samplers:
        if isinstance(sampler, SHUFFLING) and sampler.generator is None and not _is_synchronised(patient):
            yield _found(type(sampler).__name__)
            return
    foreign = [sampler for sampler in patient.samplers if _is_foreign(sampler)]
    # torch's own samplers draw their seed from the process as well; those were looked at above.
    if not foreign or any(isinstance(sampler, SHUFFLING) for sampler in patient.samplers):
        return
    first, again, other = (ids_under(patient, seed) for seed in (1, 1, 2))
    if first is not None and first == again != other:
        yield _found(type(foreign[0]).__name__)


def disagreement(one: dict[str, str], other: dict[str, str], where: str) -> Iterator[Finding]:
    """Two appearances of what one function made, which ought to be the same."""
    differs = [name for name in one if one[name] != other.get(name)]
    if differs:
        yield Finding(
            "ranks-disagree",
            "error",
            f"{where}, {' and '.join(differs)} {'is' if len(differs) == 1 else 'are'} another one",
            "take seeds from the config, and sort what comes from sets, hashes or the file system",
        )


def _found(name: str) -> Finding:
    return Finding(
        "random-from-process",
        "error",
        f"{name} draws from the process-wide random state, which differs between ranks, so that their "
        "shards overlap",
        "give it a generator with the same seed on all ranks, or use sk.RandomSampler(seed=...)",
    )


def _is_foreign(sampler: Any) -> bool:
    module = type(sampler).__module__
    if isinstance(sampler, Sampler):
        return not module.startswith("samplerkit.") or type(sampler).__name__ == "IterSampler"
    return not isinstance(sampler, TorchSampler) and not module.startswith(("torch.", "samplerkit."))


def _is_synchronised(patient: Patient) -> bool:
    # accelerate copies rank 0's random state to all ranks at the start of an epoch.
    return bool(getattr(patient.loader, "rng_types", None))
