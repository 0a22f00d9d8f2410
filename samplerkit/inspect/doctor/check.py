"""The doctor: what is wrong with how a loader is set up, found without reading a sample."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.utils.data

from samplerkit.errors import ArgumentTypeError, SamplerkitError
from samplerkit.inspect.doctor import (
    agreement,
    batches,
    classes,
    epochs,
    files,
    memory,
    packs,
    parts,
    remote,
    repeats,
    resume,
    sharding,
    streams,
    tails,
    threads,
    tokens,
)
from samplerkit.inspect.doctor.finding import Finding
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.inspect.doctor.probe import appearance
from samplerkit.inspect.view import loader_of
from samplerkit.loading.generators import kept_generators
from samplerkit.order import arguments
from samplerkit.order.world import World

Rule = Callable[[Patient], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    memory.materialises,
    memory.too_many_weights,
    memory.python_lists,
    sharding.double_sharding,
    sharding.not_sharded,
    sharding.reads_everything,
    sharding.other_world,
    agreement.seed_from_clock,
    agreement.random_from_process,
    epochs.epoch_frozen,
    epochs.epoch_in_workers,
    streams.workers_repeat,
    streams.ranks_repeat,
    streams.idle_workers,
    resume.resume_inexact,
    resume.skipped_twice,
    files.partial_size_in_file,
    repeats.repeats_break_lanes,
    repeats.copies_together,
    repeats.trains_on_held_out,
    repeats.folds_overlap,
    files.few_files,
    files.lanes_do_not_divide,
    parts.empty_part,
    parts.same_part,
    parts.parts_not_told,
    threads.not_thread_safe,
    threads.generator_shared,
)
"""The rules that look at how things are put together; another one is another function here."""

RULES_ON_ORDERS: tuple[Rule, ...] = (
    tails.drops_everything,
    tails.batch_larger_than_shard,
    tails.padded_evaluation,
    tails.uneven_steps,
    tails.concat_padded,
    classes.one_class_batches,
    files.files_read_again,
    remote.costly_remote,
    tokens.seq_len_is_fixed,
    tokens.evaluation_with_phase,
    tokens.vocabulary_beyond_dtype,
    tokens.short_files,
    batches.boundaries_unreached,
    batches.padding_wasted,
    batches.abreast_does_not_fit,
    batches.samples_left_out,
    batches.fewer_batches_than_ranks,
    batches.loss_ignores_tokens,
    batches.batches_counted,
    packs.tokens_cut_off,
    packs.documents_read_again,
)
"""The rules that need the order, or how long it is."""


def check(
    loader: Any,
    *,
    world: World | None = None,
    epoch: int | None = None,
    saves_state: bool = False,
) -> tuple[Finding, ...]:
    """Looks for mistakes in how a loader is set up: samplerkit's, or anyone's torch DataLoader.

    No sample is read, and the random state of the process stays. Samplers of unknown classes with at most
    2^20 samples are asked for their first ids, to see whether they draw from that state; they are copied
    first.

    Args:
        loader: a `Loader`, a `DeviceLoader`, a torch DataLoader with any sampler, a `Config`, or a function
            without arguments that makes one of these: it is then called twice, and what it makes compared.
            Or a trainer that has its loader: Hugging Face's, Composer's, or Lightning's while it trains.
        world: of the job, where it is not the running one. A samplerkit `Loader` knows its own.
        epoch: the epoch at which training is. Left out, a sampler at epoch 0 that does not move on by itself
            counts as one whose `set_epoch` is never called; before training, say `epoch=0`.
        saves_state: whether the run saves the state of a `TorchSampler`. A state that was loaded shows, and
            so does `sampler.state_dict()` in the module of a function.

    Returns:
        The findings, errors first; none of a healthy loader.

    Raises:
        ArgumentTypeError: it is no loader, or the function does not make one.

    Example:
        >>> import torch
        >>> class Rows(torch.utils.data.Dataset):
        ...     def __len__(self):
        ...         return 10
        >>> shards = torch.utils.data.DistributedSampler(Rows(), num_replicas=4, rank=0, shuffle=False)
        >>> evaluation = torch.utils.data.DataLoader(Rows(), sampler=shards)
        >>> print(check(evaluation, world=World(4, 0))[0].what)
        DistributedSampler repeats 2 samples, so that all ranks get the same number: metrics over all ranks \
count them twice
    """
    if world is not None and not isinstance(world, World):
        raise ArgumentTypeError("world", "must be a World or None", world)
    epoch = None if epoch is None else arguments.epoch(epoch)
    made: list[Finding] = []
    unweighted = False
    try:
        if _is_function(loader):
            first, second = _called_twice(loader)
            one, other = Patient.of(first, world, epoch), Patient.of(second, world, epoch)
            where = "when the function is called a second time"
            made += agreement.disagreement(appearance(one), appearance(other), where)
            saves_state = saves_state or resume.saves_a_sampler(loader)
            unweighted = batches.ignores_tokens(loader)
            loader = first
        patient = Patient.of(loader_of(loader, world), world, epoch, saves_state=saves_state)
        patient = replace(patient, ignores_tokens=unweighted)
        # All other rules ask how many samples there are, and in which batches.
        if uncounted := tuple(remote.lengths_not_told(patient)):
            return uncounted
        if unmade := tuple(batches.no_plan(patient)):
            return (*made, *unmade)
        made += [finding for rule in RULES for finding in rule(patient)]
        # An order that takes minutes and gigabytes to make is not made to look at its tail.
        if patient.view is None or not any(finding.code == "materialises" for finding in made):
            made += [finding for rule in RULES_ON_ORDERS for finding in rule(patient)]
    except ArgumentTypeError:
        raise
    except SamplerkitError as error:
        made.append(Finding("refused", "error", f"{error.place}: {error.problem}", error.mend or "see above"))
    return tuple(sorted(made, key=lambda finding: finding.severity == "warning"))


def _is_function(loader: Any) -> bool:
    return callable(loader) and not isinstance(loader, torch.utils.data.DataLoader)


def _called_twice(make: Callable[[], Any]) -> tuple[Any, Any]:
    """Calls a function twice, the second time with other process-wide random states, as another rank has."""
    first = loader_of(make(), None)
    # What the caller draws next must not depend on whether the doctor was here.
    with kept_generators():
        random.seed()
        np.random.seed()  # noqa: NPY002  # the legacy state is what other people's code draws from
        torch.default_generator.seed()
        return first, loader_of(make(), None)
