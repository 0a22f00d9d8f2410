"""Rules about samplers: whether ranks share one order and each sample once, and mistakes in chains."""

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import torch.utils.data

from samplerkit.inspect.doctor.findings import Fault, Faults, Finding, rule
from samplerkit.inspect.doctor.inspection import GIB, SHUFFLING, InspectedRun, Inspection, length_of
from samplerkit.inspect.doctor.probe import ids_with_seed, seeds
from samplerkit.loading.torch_sampler import TorchSampler
from samplerkit.order.modes import FILE_AWARE, Shuffle
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.groups import FoldSampler, PKSampler
from samplerkit.samplers.repeat import RepeatFactorSampler, RepeatSampler
from samplerkit.samplers.shuffled import ModedSampler, RandomSampler
from samplerkit.samplers.subset import WindowSampler

_DAY = 86_400
_OLDEST = 30 * _DAY
_UNITS = {"seconds": 1, "milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}


@rule("error", Inspection.any_loader)
def double_sharding(setup: Inspection) -> Faults:
    """The samples are dealt to the ranks twice, so that most are never read.

    Hint:
        deal once: leave out one of the two, or pass world=World(1, 0) to samplerkit
    """
    if len(setup.deals) < 2:
        return
    first, second = setup.deals[:2]
    yield Fault(
        f"{first.name} deals to {first.num_shards} ranks what {second.name} has dealt to {second.num_shards} "
        f"already: a rank reads 1 of {first.num_shards * second.num_shards} samples"
    )


@rule("error", Inspection.any_loader)
def not_sharded(setup: Inspection) -> Faults:
    """Every rank reads all samples, each in a random order of its own.

    Hint:
        use sampler=sk.TorchSampler(sk.RandomSampler(), dataset) in place of shuffle=True, or sk.Loader
    """
    if setup.is_ours or setup.is_iterable or setup.world.num_shards == 1 or setup.deals or setup.bridges:
        return
    for sampler in setup.others:
        if isinstance(sampler, SHUFFLING):
            yield Fault(
                f"{type(sampler).__name__} reads all samples on each of {setup.world.num_shards} ranks"
            )


@rule("warning", Inspection.any_loader)
def reads_everything(setup: Inspection) -> Faults:
    """A Loader reads all samples on every rank of a job of several, since it was given a world of one rank.

    Hint:
        leave out world= and num_shards=, so that the job is asked, unless all ranks share each batch
    """
    if setup.job is not None and setup.job.num_shards > 1 and setup.world.num_shards == 1:
        yield Fault(
            f"the Loader was given a world of one rank, and the job has {setup.job.num_shards} ranks: "
            "each of them reads all samples, in one order"
        )


@rule("error", Inspection.any_loader)
def other_world(setup: Inspection) -> Faults:
    """Samples are dealt to another rank, or to another number of ranks, than the job has.

    Hint:
        leave the numbers out, so that the running job is asked
    """
    job = setup.job if setup.is_ours else setup.world
    if job is None or job.num_shards == 1:
        return
    for deal in setup.deals:
        # Ranks that share a model share their samples: the deal then has fewer ranks, which divide the job's.
        if job.num_shards % deal.num_shards:
            yield Fault(f"{deal.name} deals to {deal.num_shards} ranks, and the job has {job.num_shards}")
        elif deal.num_shards == job.num_shards and deal.shard not in (None, job.shard_id):
            yield Fault(f"{deal.name} reads shard {deal.shard} on rank {job.shard_id}")


@rule("warning", Inspection.any_loader)
def seed_from_clock(setup: Inspection) -> Faults:
    """The seed looks like the time of day, so that it differs from rank to rank.

    Hint:
        take the seed from the config, the same on all ranks
    """
    now = time.time()
    units = ((seed, unit, now - seed / second) for seed in seeds(setup) for unit, second in _UNITS.items())
    for seed, unit, age in units:
        if -_DAY < age < _OLDEST:
            is_job = setup.world.num_shards > 1
            follows = "ranks get different ones" if is_job else "no run can be repeated or resumed"
            yield Fault(
                f"seed {seed} is the time of day in {unit}: {follows}",
                severity="error" if is_job else "warning",
            )
            return


@rule("error", Inspection.any_loader)
def random_from_process(setup: Inspection) -> Faults:
    """The order comes from the process-wide random state, which differs between ranks.

    Hint:
        give it a generator with the same seed on all ranks, or use sk.RandomSampler(seed=...)
    """
    is_dealt = setup.world.num_shards > 1 and (setup.deals or setup.view is not None)
    sampler = _drawing_from_process(setup) if is_dealt else None
    if sampler is not None:
        yield Fault(
            f"{type(sampler).__name__} draws from the process-wide random state, which differs between "
            "ranks, so that their shards overlap"
        )


def _drawing_from_process(setup: Inspection) -> Any:
    """Returns the sampler that draws from the process-wide random state; None if none does."""
    shuffling = [sampler for sampler in setup.others if isinstance(sampler, SHUFFLING)]
    if shuffling:  # torch's own samplers draw at least their seed from it
        # accelerate copies rank 0's random state to all ranks at the start of an epoch.
        is_synchronised = setup.is_managed or bool(getattr(setup.loader, "rng_types", None))
        return next((one for one in shuffling if one.generator is None and not is_synchronised), None)
    foreign = next(filter(_is_foreign, setup.samplers), None)
    if foreign is None:
        return None
    first, repeat, other = (ids_with_seed(setup, seed) for seed in (1, 1, 2))
    return foreign if first is not None and first == repeat != other else None


def _is_foreign(sampler: Any) -> bool:
    if isinstance(sampler, Sampler):
        return sampler.is_foreign
    is_known = type(sampler).__module__.startswith(("torch.", "samplerkit."))
    return not is_known and not isinstance(sampler, TorchSampler)


def disagreement(first: dict[str, str], other: dict[str, str], where: str) -> list[Finding]:
    """Compares the digests of two results of one function, which must be the same."""
    differs = [name for name in first if first[name] != other.get(name)]
    if not differs:
        return []
    what = f"{where}, {' and '.join(differs)} {'differs' if len(differs) == 1 else 'differ'}"
    hint = "take seeds from the config, and sort values from sets, hashes or the file system"
    return [Finding("ranks-disagree", "error", what, hint)]


MAX_WEIGHTS = 1 << 24
"""The most weights that `torch.multinomial` takes."""

_FIRST_BATCHES = 64

_Link = TypeVar("_Link", bound=Sampler)


@rule("warning", Inspection.any_loader)
def materialises(setup: Inspection) -> Faults:
    """The sampler builds a list of all samples in the memory of every rank.

    Hint:
        use sk.TorchSampler(sk.RandomSampler(), dataset) or sk.Loader, whose orders are computed
    """
    if setup.large_list is None:
        return
    sampler, needed = setup.large_list
    dataset: Any = getattr(sampler, "dataset", getattr(sampler, "data_source", None))
    length = length_of(dataset) or setup.size or 0
    ranks = setup.world.num_shards
    on_all = f", {needed * ranks / GIB:.1f} GiB on {ranks} ranks" if ranks > 1 else ""
    yield Fault(
        f"{type(sampler).__name__} builds a list of {length} samples: about {needed / GIB:.1f} GiB in this "
        f"process{on_all}, and a wait at each epoch's start"
    )


@rule("error", Inspection.any_loader)
def too_many_weights(setup: Inspection) -> Faults:
    """torch refuses to draw from more than 2^24 weights.

    Hint:
        use sk.WeightedRandomSampler(weights) with sk.Loader or sk.TorchSampler
    """
    for sampler in setup.others:
        is_weighted = isinstance(sampler, torch.utils.data.WeightedRandomSampler)
        if is_weighted and len(sampler.weights) > MAX_WEIGHTS:
            yield Fault(f"{len(sampler.weights)} weights, and torch.multinomial takes at most {MAX_WEIGHTS}")


@rule("warning", Inspection.run)
def repeats_break_lanes(setup: InspectedRun) -> Faults:
    """Copies are dealt above an order that keeps files together, so that each rank reads the files of all.

    Hint:
        use GLOBAL below it, or repeat a sample where it is read
    """
    ranks = setup.view.num_ranks
    if ranks == 1 or not setup.view.layout.has_files:
        return
    for sampler, _, below in _links(setup, RepeatSampler):
        keeps_files = any(
            isinstance(link, ModedSampler) and link.mode.shuffle in FILE_AWARE for link in below
        )
        if sampler.repeats > 1 and keeps_files:
            yield Fault(
                f"RepeatSampler({sampler.repeats}) deals copies to {ranks} ranks above an order that keeps "
                "files together: each rank reads the files of all"
            )


@rule("warning", Inspection.run)
def draws_limited(setup: InspectedRun) -> Faults:
    """`num_samples` of `RandomSampler` is more than the samples that it draws from, and is not reached."""
    for sampler, _, _ in _links(setup, RandomSampler):
        count = sampler.num_samples or 0
        size = len(sampler.undealt_order(setup.dataset)) if count else 0
        if 0 < size < count:
            place = "over" if sampler.shuffle in FILE_AWARE else "below"
            yield Fault(
                f"RandomSampler(num_samples={count}) yields {size} samples, as many as it draws from",
                f"put sk.RepeatSampler({-(-count // size)}) {place} it, by add_child, for {count} samples",
            )


@rule("warning", Inspection.any_loader)
def copies_together(setup: Inspection) -> Faults:
    """`RepeatFactorSampler` yields copies next to one another, and nothing shuffles them.

    Hint:
        put sk.RandomSampler() over it, by add_child
    """
    for _, above, _ in _links(setup, RepeatFactorSampler):
        if not any(map(_shuffles, above)):
            yield Fault(
                "RepeatFactorSampler yields the copies of a sample next to one another, and nothing above it "
                "shuffles"
            )


@rule("warning", Inspection.any_loader)
def held_out_shuffled(setup: Inspection) -> Faults:
    """The held-out part of a `FoldSampler` is shuffled, as one does for training.

    Hint:
        use held_out=False for training, or leave the shuffling out for an evaluation
    """
    for sampler, above, _ in _links(setup, FoldSampler):
        if sampler.held_out and any(map(_shuffles, above)):
            yield Fault(
                f"fold {sampler.fold} of {sampler.num_folds} is held out, and shuffled as for training"
            )


@rule("error", Inspection.any_loader)
def folds_overlap(setup: Inspection) -> Faults:
    """Windows that share samples are split into folds one by one, so that folds share samples.

    Hint:
        use by_files=True, or groups
    """
    for sampler, _, below in _links(setup, FoldSampler):
        for window in below if not sampler.by_files and sampler.groups is None else ():
            if isinstance(window, WindowSampler) and window.stride < window.size:
                yield Fault(
                    f"windows of {window.size} samples, {window.stride} apart, share samples, and "
                    "FoldSampler splits them one by one: held-out samples are also trained on"
                )


@rule("warning", Inspection.run_with_order)
def one_class_batches(setup: InspectedRun) -> Faults:
    """Batches hold samples of one class, since `PKSampler` draws class after class.

    Hint:
        put sk.RandomSampler() over it, by add_child, or use a num_val that is a part of the batch
    """
    view = setup.view
    drawing = next((sampler for sampler, _, _ in _links(setup, PKSampler)), None)
    if drawing is None or view.batch_size == 1:
        return
    labels = drawing._labels_of(setup.dataset)
    if np.unique(labels).size < 2:
        return
    batches = islice(view.reading(view.epoch, view.run.world.shard_id).batches(), _FIRST_BATCHES)
    classes = [np.unique(labels[ids]).size for _, ids in batches if ids.size > 1]
    single = classes.count(1)
    if 2 * single > len(classes):
        yield Fault(
            f"{single} of the first {len(classes)} batches hold one class: PKSampler draws {drawing.num_val} "
            "samples of one class, then those of the next; its shuffle only permutes the classes"
        )


def _links(setup: Inspection, kind: type[_Link]) -> Iterator[tuple[_Link, list[Sampler], list[Sampler]]]:
    """Yields the samplers of a class in samplerkit's chain, each with the samplers above and below it."""
    for place, sampler in enumerate(setup.chain):
        if isinstance(sampler, kind):
            yield sampler, setup.chain[:place], setup.chain[place + 1 :]


def _shuffles(sampler: Sampler) -> bool:
    return isinstance(sampler, ModedSampler) and sampler.mode.shuffle is not Shuffle.FALSE
