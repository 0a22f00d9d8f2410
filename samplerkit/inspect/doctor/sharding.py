"""Who deals samples to ranks: once, twice, or nobody."""

from __future__ import annotations

from collections.abc import Iterator

import torch.utils.data

from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.loading.torch_sampler import TorchSampler

SHUFFLING = (
    torch.utils.data.RandomSampler,
    torch.utils.data.SubsetRandomSampler,
    torch.utils.data.WeightedRandomSampler,
)
"""torch's samplers that draw from the process-wide random state, unless they have a generator."""


def double_sharding(patient: Patient) -> Iterator[Finding]:
    """Two deals, one on top of the other."""
    deals = patient.deals()
    if len(deals) < 2:
        return
    first, second = deals[:2]
    share = first.num_shards * second.num_shards
    yield Finding(
        "double-sharding",
        "error",
        f"{first.who} deals to {first.num_shards} ranks what {second.who} has dealt to {second.num_shards} "
        f"already: a rank reads 1 of {share} samples",
        "deal once: leave out one of the two, or say world=World(1, 0) to samplerkit",
    )


def not_sharded(patient: Patient) -> Iterator[Finding]:
    """A job of several ranks whose samplers know nothing of it."""
    if patient.is_ours or patient.is_iterable or patient.world.num_shards == 1 or patient.deals():
        return
    ours = [sampler for sampler in patient.samplers if isinstance(sampler, TorchSampler)]
    random = [sampler for sampler in patient.samplers if isinstance(sampler, SHUFFLING)]
    if ours or not random:
        return
    yield Finding(
        "not-sharded",
        "error",
        f"{type(random[0]).__name__} reads all samples on each of {patient.world.num_shards} ranks",
        "use sampler=sk.TorchSampler(sk.RandomSampler(), dataset) in place of shuffle=True, or sk.Loader",
    )


def reads_everything(patient: Patient) -> Iterator[Finding]:
    """A Loader that deals to nobody, which no trainer does in its place."""
    job = patient.job
    if job is None or job.num_shards == 1 or patient.world.num_shards > 1:
        return
    yield Finding(
        "reads-everything",
        "warning",
        f"the Loader was told that it is alone, and the job has {job.num_shards} ranks: each of them reads "
        "all samples, in one order",
        "leave out world= and num_shards=, so that the job is asked, unless all ranks share each batch",
    )


def other_world(patient: Patient) -> Iterator[Finding]:
    """A deal that does not fit the ranks of the job."""
    job = patient.world
    if patient.is_ours or job.num_shards == 1:
        return
    for deal in patient.deals():
        # Ranks that share a model share their samples: their deal has fewer ranks, and divides the job's.
        if job.num_shards % deal.num_shards:
            problem = f"{deal.who} deals to {deal.num_shards} ranks, and the job has {job.num_shards}"
        elif deal.num_shards == job.num_shards and deal.shard not in (None, job.shard_id):
            problem = f"{deal.who} reads shard {deal.shard} on rank {job.shard_id}"
        else:
            continue
        mend = "leave the numbers out, so that the running job is asked"
        yield Finding("other-world", "error", problem, mend)
