"""Where an epoch stands, and whether all ranks of the job stand there."""

from __future__ import annotations

from typing import Final

from samplerkit.compat.partially_shuffle.files import FileTable
from samplerkit.compat.partially_shuffle.order import LocalShuffle
from samplerkit.loading.agreement import job_agreement
from samplerkit.loading.state import State
from samplerkit.order.keys import ALGORITHM
from samplerkit.order.world import World

AGREEMENT_SECONDS: Final = 10.0
"""How long the ranks of a job wait for one another when an epoch begins."""


def state_of(table: FileTable, shuffled: LocalShuffle, lanes: int, epoch: int, position: int) -> State:
    """Describes a place in an epoch.

    Args:
        table: the files.
        shuffled: what is shuffled.
        lanes: the number of ranks at the first start.
        epoch: from 0.
        position: how many samples all ranks together have received.
    """
    return State(
        algorithm=ALGORITHM,
        seed=(shuffled.seed,),
        epoch=epoch,
        position=position,
        lanes=lanes,
        limit=None,
        tail="pad",
        dataset=table.description,
        sampler=f"DistributedSamplerViaLocallyShuffle({shuffled})",
        num_shards=None,
    )


def require_agreement(beginning: State, world: World) -> None:
    """Compares, through the process group's store, what the ranks of the job begin to read.

    Ranks that list their files in another order would read some samples twice and others never. A rank with
    numbers of its own reads alone, and is not compared.

    Args:
        beginning: the place at which this rank begins.
        world: its rank.

    Raises:
        DisagreementError: another rank begins something else.
    """
    agreement = job_agreement()
    if agreement is None or World(agreement.ranks, agreement.rank) != world:
        return
    names = ("dataset", "sampler", "epoch", "position", "lanes")
    identity = {"seed": beginning.seed[0], **{name: getattr(beginning, name) for name in names}}
    agreement.require(identity, AGREEMENT_SECONDS)
