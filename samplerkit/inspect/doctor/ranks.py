"""Ranks: whether samples are dealt to them once, and whether all of them read by the same order."""

from __future__ import annotations

import time
from typing import Any

import torch.utils.data

from samplerkit.inspect.doctor.findings import Fault, Faults, Finding, any_loader, kind, rule
from samplerkit.inspect.doctor.inspection import Inspection
from samplerkit.inspect.doctor.probe import ids_under, seeds
from samplerkit.loading.torch_sampler import TorchSampler
from samplerkit.samplers.base import Sampler

_SHUFFLING = (
    torch.utils.data.RandomSampler,
    torch.utils.data.SubsetRandomSampler,
    torch.utils.data.WeightedRandomSampler,
)
"""torch's samplers that draw from the process-wide random state, unless they have a generator."""

_DAY = 86_400
_OLDEST = 30 * _DAY
_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}

_RANKS_DISAGREE = kind("ranks-disagree", "error", "The same function makes another order in another process.")


@rule("error", any_loader)
def double_sharding(seen: Inspection) -> Faults:
    """The samples are dealt to the ranks twice, so that most are never read."""
    if len(seen.deals) < 2:
        return
    first, second = seen.deals[:2]
    yield Fault(
        f"{first.who} deals to {first.num_shards} ranks what {second.who} has dealt to {second.num_shards} "
        f"already: a rank reads 1 of {first.num_shards * second.num_shards} samples",
        "deal once: leave out one of the two, or say world=World(1, 0) to samplerkit",
    )


@rule("error", any_loader)
def not_sharded(seen: Inspection) -> Faults:
    """Every rank reads all samples, each in a random order of its own."""
    if seen.is_ours or seen.is_iterable or seen.world.num_shards == 1 or seen.deals or seen.bridges:
        return
    for sampler in seen.others:
        if isinstance(sampler, _SHUFFLING):
            yield Fault(
                f"{type(sampler).__name__} reads all samples on each of {seen.world.num_shards} ranks",
                "use sampler=sk.TorchSampler(sk.RandomSampler(), dataset) in place of shuffle=True, or "
                "sk.Loader",
            )
            return


@rule("warning", any_loader)
def reads_everything(seen: Inspection) -> Faults:
    """A Loader reads all samples on every rank of a job of several, since it was given numbers."""
    if seen.job is not None and seen.job.num_shards > 1 and seen.world.num_shards == 1:
        yield Fault(
            f"the Loader was given a world of one rank, and the job has {seen.job.num_shards} ranks: each of "
            "them reads all samples, in one order",
            "leave out world= and num_shards=, so that the job is asked, unless all ranks share each batch",
        )


@rule("error", any_loader)
def other_world(seen: Inspection) -> Faults:
    """Samples are dealt to another rank, or to another number of ranks, than the job has."""
    job = seen.job if seen.is_ours else seen.world
    if job is None or job.num_shards == 1:
        return
    hint = "leave the numbers out, so that the running job is asked"
    for deal in seen.deals:
        # Ranks that share a model share their samples: their deal has fewer ranks, and divides the job's.
        if job.num_shards % deal.num_shards:
            what = f"{deal.who} deals to {deal.num_shards} ranks, and the job has {job.num_shards}"
            yield Fault(what, hint)
        elif deal.num_shards == job.num_shards and deal.shard not in (None, job.shard_id):
            yield Fault(f"{deal.who} reads shard {deal.shard} on rank {job.shard_id}", hint)


@rule("warning", any_loader)
def seed_from_clock(seen: Inspection) -> Faults:
    """The seed looks like the time of day, so that it differs from rank to rank."""
    now = time.time()
    units = ((seed, unit, now - seed / second) for seed in seeds(seen) for unit, second in _UNITS.items())
    for seed, unit, age in units:
        if -_DAY < age < _OLDEST:
            is_job = seen.world.num_shards > 1
            follows = "ranks get different ones" if is_job else "no run can be repeated or resumed"
            yield Fault(
                f"seed {seed} is the time of day in {unit}: {follows}",
                "take the seed from the config, the same on all ranks",
                "error" if is_job else "warning",
            )
            return


@rule("error", any_loader)
def random_from_process(seen: Inspection) -> Faults:
    """The order comes from the process-wide random state, which differs between ranks."""
    name = _drawn_from_process(seen)
    if name:
        yield Fault(
            f"{name} draws from the process-wide random state, which differs between ranks, so that their "
            "shards overlap",
            "give it a generator with the same seed on all ranks, or use sk.RandomSampler(seed=...)",
        )


def _drawn_from_process(seen: Inspection) -> str:
    """Names the sampler that draws from the random state of the process; "" if none does that is dealt."""
    if seen.world.num_shards == 1 or (not seen.deals and seen.view is None):
        return ""
    shuffling = [sampler for sampler in seen.others if isinstance(sampler, _SHUFFLING)]
    # accelerate copies rank 0's random state to all ranks at the start of an epoch.
    is_synchronised = bool(getattr(seen.loader, "rng_types", None))
    # Those in an IterSampler, below a reader of ours, are seeded while they draw.
    for sampler in shuffling if seen.view is None and not is_synchronised else ():
        if sampler.generator is None:
            return type(sampler).__name__
    foreign = [sampler for sampler in seen.samplers if _is_foreign(sampler)]
    # torch's own samplers draw their seed from the process as well; those were looked at above.
    if not foreign or shuffling:
        return ""
    first, again, other = (ids_under(seen, seed) for seed in (1, 1, 2))
    return type(foreign[0]).__name__ if first is not None and first == again != other else ""


def _is_foreign(sampler: Any) -> bool:
    module = type(sampler).__module__
    if isinstance(sampler, Sampler):
        return not module.startswith("samplerkit.") or type(sampler).__name__ == "IterSampler"
    return not isinstance(sampler, TorchSampler) and not module.startswith(("torch.", "samplerkit."))


def disagreement(one: dict[str, str], other: dict[str, str], where: str) -> list[Finding]:
    """Compares two appearances of what one function made, which ought to be the same."""
    differs = [name for name in one if one[name] != other.get(name)]
    if not differs:
        return []
    what = f"{where}, {' and '.join(differs)} {'is' if len(differs) == 1 else 'are'} another one"
    hint = "take seeds from the config, and sort what comes from sets, hashes or the file system"
    return [_RANKS_DISAGREE.found(what, hint)]
