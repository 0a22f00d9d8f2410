"""Checks the setup of a loader for mistakes, without reading a sample."""

import random
from typing import Any

import torch.utils.data

from samplerkit.errors import ArgumentTypeError, SamplerkitError

# These modules register their rules when they are imported.
from samplerkit.inspect.doctor import batches, datasets, epochs, samplers, workers  # noqa: F401
from samplerkit.inspect.doctor.findings import RULES, Finding
from samplerkit.inspect.doctor.inspection import Inspection
from samplerkit.inspect.doctor.probe import digests_of, saves_sampler_state, seeded
from samplerkit.inspect.view import HINT, is_counted
from samplerkit.order import arguments
from samplerkit.order.deal import World


def check(
    loader: Any,
    *,
    world: World | None = None,
    epoch: int | None = None,
    saves_state: bool = False,
) -> tuple[Finding, ...]:
    """Checks the setup of a samplerkit loader or any torch DataLoader for mistakes.

    No sample is read, and the random state of the process is kept. Samplers of unknown classes with at most
    2^20 samples are copied, and the copy is iterated for its first ids, to find out whether it draws from
    that state.

    Args:
        loader: a `Loader`, a `DeviceLoader`, a torch DataLoader with any sampler, a `Config`, or a function
            without arguments that returns one of these: it is called twice, and the results are compared.
            Or a trainer that has a loader: Hugging Face's, Composer's, or Lightning's while it trains.
        world: the world of the job, if it is not the running one. A samplerkit `Loader` has its own.
        epoch: the current epoch of training. By default, a sampler at epoch 0 that does not advance by itself
            is reported as one whose `set_epoch` is never called; before training, pass `epoch=0`.
        saves_state: whether the run saves the state of a `TorchSampler`. It is detected if a state was
            loaded, or if the module of a function has `sampler.state_dict()`.

    Returns:
        The findings, errors first; empty for a correct loader.

    Raises:
        ArgumentTypeError: `loader` is not a loader, or the function does not return one.

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
    findings: list[Finding] = []
    options: dict[str, Any] = {"epoch": epoch, "saves_state": saves_state}
    try:
        if callable(loader) and not isinstance(loader, torch.utils.data.DataLoader):
            make, loader = loader, loader()
            # With another process-wide random state, as on another rank.
            with seeded(random.SystemRandom().getrandbits(32)):
                second = make()
            where = "when the function is called a second time"
            findings += samplers.disagreement(digests_of(loader, world), digests_of(second, world), where)
            options["saves_state"] = saves_state or saves_sampler_state(make)
            options["ignores_tokens"] = batches.ignores_tokens(make)
        setup = Inspection.of(loader, world, **options)
        # All other rules need the number of samples, and the batches.
        if not is_counted(setup.dataset):
            return (Finding("lengths-unknown", "warning", _NOT_COUNTED, HINT),)
        findings += [finding for find in RULES for finding in find(setup)]
    except ArgumentTypeError:
        raise
    except SamplerkitError as error:
        findings.append(batches.refused(error))
    return tuple(sorted(findings, key=lambda finding: finding.severity == "warning"))


_NOT_COUNTED = (
    "the samples of remote files are not counted: before the first batch all files are fetched; and nothing "
    "that depends on their number was checked"
)
