"""The doctor: what is wrong with how a loader is set up, found without reading a sample."""

from __future__ import annotations

import random
from typing import Any

import torch.utils.data

from samplerkit.errors import ArgumentTypeError, SamplerkitError

# Each adds its rules to the table when it is imported.
from samplerkit.inspect.doctor import batches, datasets, epochs, samplers, workers  # noqa: F401
from samplerkit.inspect.doctor.findings import RULES, Finding, kind
from samplerkit.inspect.doctor.inspection import Inspection
from samplerkit.inspect.doctor.probe import appearance, saves_a_sampler, seeded
from samplerkit.inspect.view import HINT, is_counted, loader_of
from samplerkit.order import arguments
from samplerkit.order.deal import World

_LENGTHS_UNKNOWN = kind(
    "lengths-unknown",
    "warning",
    "Remote files have to be fetched to count their samples, before the first batch.",
)


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
    ignores_tokens = False
    try:
        if callable(loader) and not isinstance(loader, torch.utils.data.DataLoader):
            make, loader = loader, loader_of(loader(), None)
            # With other process-wide random states, as another rank has.
            with seeded(random.SystemRandom().getrandbits(32)):
                second = loader_of(make(), None)
            where = "when the function is called a second time"
            made += samplers.disagreement(appearance(loader, world), appearance(second, world), where)
            saves_state = saves_state or saves_a_sampler(make)
            ignores_tokens = batches.ignores_tokens(make)
        seen = Inspection.of(
            loader_of(loader, world),
            world,
            epoch=epoch,
            saves_state=saves_state,
            ignores_tokens=ignores_tokens,
        )
        # All other rules ask how many samples there are, and in which batches.
        if not is_counted(seen.dataset):
            return (_LENGTHS_UNKNOWN.found(_NOT_COUNTED, HINT),)
        made += [finding for find in RULES for finding in find(seen)]
    except ArgumentTypeError:
        raise
    except SamplerkitError as error:
        made.append(batches.refused(error))
    return tuple(sorted(made, key=lambda finding: finding.severity == "warning"))


_NOT_COUNTED = (
    "the samples of remote files are not counted: before the first batch all files are fetched; and nothing "
    "that depends on how many there are was looked at"
)
