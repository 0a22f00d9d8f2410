"""Whether the ranks of a job begin the same order: digests compared through the process group's store.

Nothing here is a collective. A rank that begins an order which others do not, for an evaluation on rank 0 for
instance, waits for the time limit, is told in the log, and goes on.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass, field
from typing import Any, final

import torch.distributed

from samplerkit.errors import DisagreementError
from samplerkit.loading.identity import digest

_log = logging.getLogger("samplerkit")
_POLL_SECONDS = 0.01


@final
@dataclass
class Agreement:
    """What one rank has begun, and what it sees of the others.

    Args:
        store: shared by the ranks, as `torch.distributed.PrefixStore`.
        rank: of this process.
        ranks: how many processes there are.
    """

    store: Any
    rank: int
    ranks: int
    _begun: dict[str, int] = field(default_factory=dict)

    def require(self, identity: dict[str, Any], seconds: float) -> None:
        """Waits until every rank begins the same.

        Args:
            identity: what must be the same on every rank: JSON values by name.
            seconds: how long to wait for the others.

        Raises:
            DisagreementError: another rank begins the same dataset, or the same sampler and seed, with
                something else; it names the ranks and what differs.
        """
        text = json.dumps(identity, sort_keys=True)
        mine = digest(text)
        times = self._begun[mine] = self._begun.get(mine, 0) + 1
        self.store.set(f"identity/{mine}", text)
        self.store.set(f"latest/{self.rank}", mine)
        self.store.add(f"count/{mine}", 1)
        end = time.monotonic() + seconds
        while self._count(mine) < times * self.ranks:
            others = self._others(mine)
            # A rank may have gone on to its next order since: then all have begun this one by now.
            if others and self._count(mine) < times * self.ranks:
                self._refuse(others, identity)
            if time.monotonic() > end:
                _log.warning(
                    "rank %d of %d begins an order that not all ranks began within %g s (%s); if it is meant "
                    "to read alone, say world=World(1, 0)",
                    self.rank,
                    self.ranks,
                    seconds,
                    text,
                )
                return
            time.sleep(_POLL_SECONDS)

    def _count(self, digest_of_order: str) -> int:
        count: int = self.store.add(f"count/{digest_of_order}", 0)
        return count

    def _others(self, mine: str) -> dict[str, list[int]]:
        """The ranks that have begun something else which not all have begun, by its digest."""
        others: dict[str, list[int]] = {}
        for rank in range(self.ranks):
            if rank == self.rank or not self.store.check([f"latest/{rank}"]):
                continue
            theirs = self.store.get(f"latest/{rank}").decode()
            if theirs != mine and self._count(theirs) % self.ranks:
                others.setdefault(theirs, []).append(rank)
        return others

    def _refuse(self, others: dict[str, list[int]], identity: dict[str, Any]) -> None:
        for theirs, ranks in others.items():
            other = json.loads(self.store.get(f"identity/{theirs}"))
            differs = {name: other.get(name) for name in identity if other.get(name) != identity[name]}
            if _is_the_same_loader(differs):
                here = {name: identity[name] for name in differs}
                raise DisagreementError(
                    "ranks",
                    f"rank {self.rank} reads by {here}, but rank{'s' if len(ranks) > 1 else ''} "
                    f"{', '.join(map(str, ranks))} by {differs}",
                    mend="give every rank the same dataset, sampler, seed and checkpoint",
                )


def job_agreement() -> Agreement | None:
    """Gives the agreement of this process's job; None where there is no process group of several ranks."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    if distributed.get_world_size() == 1:
        return None
    store = distributed.distributed_c10d._get_default_store()
    if id(store) not in _agreements:
        _agreements.clear()
        prefixed = distributed.distributed_c10d.PrefixStore("samplerkit", store)
        ranks = distributed.get_world_size()
        _agreements[id(store)] = Agreement(prefixed, distributed.get_rank(), ranks)
    return _agreements[id(store)]


_agreements: dict[int, Agreement] = {}


def _is_the_same_loader(differs: dict[str, Any]) -> bool:
    """Two identities are of one loader if they share the dataset, or the sampler and its seed."""
    return "dataset" not in differs or not {"sampler", "seed"} & set(differs)
