"""The world of this process, by the variables and the process group of the running job."""

import functools
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from samplerkit.errors import SamplerkitError, WorldError
from samplerkit.order.deal import World
from samplerkit.samplers.base import Sampler

_log = logging.getLogger("samplerkit")

_VARIABLES = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    # After those: if mpirun runs within a Slurm job, Slurm's variables number the nodes.
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    # A batch script has a number, and that of all tasks only if it says `--ntasks`.
    ("SLURM_NTASKS", "SLURM_PROCID"),
)
"""The variables of Open MPI, of MVAPICH, of MPICH and Intel MPI, of a task of srun, and of Slurm."""


def detect_world(environment: Mapping[str, str] = os.environ) -> World:
    """Returns which rank of how many this process is.

    Asked in this order: an initialised `torch.distributed` process group, the variables RANK and WORLD_SIZE
    (torchrun), those of `mpirun` (Open MPI, MPICH, Intel MPI, MVAPICH), those of a Slurm step. If none are
    set, one process that reads everything.

    Args:
        environment: the environment variables.

    Raises:
        WorldError: only one of the variables is set, one is not an integer, or they contradict each other.

    Example:
        >>> detect_world({"RANK": "3", "WORLD_SIZE": "8"})
        World(num_shards=8, shard_id=3)
    """
    if (group := process_group()) is not None:
        return World(group.get_world_size(), group.get_rank())
    if "RANK" in environment or "WORLD_SIZE" in environment:
        return _world_from(environment, "WORLD_SIZE", "RANK")
    for size_name, rank_name in _VARIABLES:
        if size_name in environment and rank_name in environment:
            world = _world_from(environment, size_name, rank_name)
            if size_name == "SLURM_NTASKS" and "SLURM_STEP_ID" not in environment and world.num_shards > 1:
                _warn_of_no_srun(world)
            return world
    return World()


@functools.cache
def _warn_of_no_srun(world: World) -> None:
    """Warns once per process."""
    _log.warning(
        "Slurm sets rank %d of %d, but this process was apparently not started by srun; "
        "if it runs alone, pass world=World(1, 0)",
        *(world.shard_id, world.num_shards),
    )


def _world_from(environment: Mapping[str, str], *names: str) -> World:
    """Makes a world of the variables of its size and its rank."""
    values = [environment.get(name) for name in names]
    try:
        return World(*(int(value or "") for value in values))
    except (SamplerkitError, ValueError) as error:
        problem = "must be set to a number of ranks, and a rank below it"
        raise WorldError(" and ".join(names), problem, values, hint="set both or none") from error


def world_of(sampler: Sampler, given: World | None) -> World:
    """Returns which rank this process is for a sampler; by default, that in the running job.

    Args:
        sampler: may be a distributed one, which has some of the numbers.
        given: by the user; None for nothing.
    """
    return sampler.chain.world(detect_world() if given is None and sampler.chain.deal is None else given)


def require_same_world(world: World, detect: Callable[[], World]) -> None:
    """Refuses to read as a rank of another job than that of the process group.

    A reader whose length was needed before the process group existed would read everything, on each rank.

    Args:
        world: what the job reported when it was first asked.
        detect: asks it again.

    Raises:
        WorldError: it reports other numbers now.
    """
    if process_group() is None or (current := detect()) == world:
        return
    problem = "was read before the process group was initialised, or from another one; now it is"
    hint = "initialise the process group first, or make this again; to read everything, pass World(1, 0)"
    raise WorldError("world", f"{problem} {current}", world, hint=hint)


def process_group() -> Any:
    """Returns torch's module, if a process group is initialised: then it has been imported."""
    distributed: Any = sys.modules.get("torch.distributed")
    exists = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return distributed if exists else None
