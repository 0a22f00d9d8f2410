"""Whether the ranks of a job begin the same order: digests compared through the process group's store.

Nothing here is a collective. A rank that begins an order which others do not, for an evaluation on rank 0 for
instance, waits for the time limit, is told in the log, and goes on.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from typing import Any, NamedTuple, final

import torch.distributed

from samplerkit.errors import DisagreementError
from samplerkit.loading.identity import digest

_log = logging.getLogger("samplerkit")
_POLL_SECONDS = 0.01

_LOOKED_AT = 64
"""How many other ranks one looks at between two pauses: thousands of ranks share one store."""


class _Turn(NamedTuple):
    """A common beginning of an order.

    Args:
        of: the digest of its identity.
        completed: how often all ranks have begun it before.
        refused: how often it was refused before.
    """

    of: str
    completed: int
    refused: int

    @property
    def key(self) -> str:
        """Where the ranks that have begun it are counted."""
        return f"joined/{self.of}/{self.completed}/{self.refused}"


@final
class Agreement:
    """What one rank waits to begin, and what it sees of the others.

    Args:
        store: shared by the ranks, as `torch.distributed.PrefixStore`.
        rank: of this process.
        ranks: how many processes there are.
    """

    def __init__(self, store: Any, rank: int, ranks: int) -> None:
        self.store = store
        self.rank = rank
        self.ranks = ranks
        self._completed: dict[str, int] = {}
        # How many refusals of an order this rank has been told: one that comes late is told too, once.
        self._refused: dict[str, int] = {}
        self._joined: set[_Turn] = set()

    def require(self, identity: dict[str, Any], seconds: float, *, alone: bool = True) -> None:
        """Waits until every rank begins the same.

        Args:
            identity: what must be the same on every rank: JSON values by name.
            seconds: how long to wait for the others.
            alone: whether a rank for which some do not come may go on, with a word in the log.

        Raises:
            DisagreementError: another rank waits to begin the same dataset, or the same sampler and seed,
                with something else; it names the ranks and what differs. All that wait for the one or the
                other are told. Or some did not come, and it may not go on alone.
        """
        text = json.dumps(identity, sort_keys=True)
        of = digest(text)
        self.store.set(f"identity/{of}", text)
        # A beginning that was given up stays open: a rank that comes late to it need not wait, and this one
        # does not count twice when it comes back.
        turn = _Turn(of, self._completed.get(of, 0), self._refused.get(of, 0))
        if turn not in self._joined:
            self._joined.add(turn)
            self.store.add(turn.key, 1)
        self.store.set(f"waits/{self.rank}", json.dumps(turn))
        try:
            self._wait(turn, identity, seconds, alone=alone)
        finally:
            with contextlib.suppress(torch.distributed.DistError):
                self.store.set(f"waits/{self.rank}", "")

    def _wait(self, turn: _Turn, identity: dict[str, Any], seconds: float, *, alone: bool) -> None:
        end, looked = time.monotonic() + seconds, 0
        while not self._all_joined(turn):
            self._heed_refusal(turn, identity)
            # A rank may have gone on to its next order since: then all have begun this one by now.
            others = self._others(turn, looked)
            if others and not self._all_joined(turn):
                self._refuse(others, turn, identity)
            if time.monotonic() > end and not alone:
                raise self._absence(turn, identity, seconds)
            if time.monotonic() > end:
                _log.warning(
                    "rank %d of %d begins an order that not all ranks began within %g s (%s); if it is meant "
                    "to read alone, say world=World(1, 0)",
                    self.rank,
                    self.ranks,
                    seconds,
                    json.dumps(identity, sort_keys=True),
                )
                return
            looked += _LOOKED_AT
            time.sleep(_POLL_SECONDS)
        self._joined.discard(turn)
        self._completed[turn.of] = turn.completed + 1

    def _all_joined(self, turn: _Turn) -> bool:
        joined: int = self.store.add(turn.key, 0)
        return joined >= self.ranks

    def _others(self, mine: _Turn, first: int) -> dict[_Turn, list[int]]:
        """Some ranks that wait for something else which not all have begun."""
        others: dict[_Turn, list[int]] = {}
        for number in range(first, first + min(self.ranks, _LOOKED_AT)):
            rank = number % self.ranks
            waits = self._read(f"waits/{rank}") if rank != self.rank else ""
            if waits:
                theirs = _Turn(*json.loads(waits))
                if theirs.of != mine.of and not self._all_joined(theirs):
                    others.setdefault(theirs, []).append(rank)
        return others

    def _refuse(self, others: dict[_Turn, list[int]], mine: _Turn, identity: dict[str, Any]) -> None:
        for theirs, ranks in others.items():
            if _is_the_same_loader(_differences(identity, self._identity(theirs.of))):
                self._tell(theirs, [self.rank], mine)
                self._tell(mine, ranks, theirs)
                raise self._disagreement(identity, ranks, mine, theirs)

    def _tell(self, turn: _Turn, ranks: list[int], other: _Turn) -> None:
        self.store.set(f"refused/{turn.of}/{turn.refused}", json.dumps([ranks, other]))

    def _heed_refusal(self, turn: _Turn, identity: dict[str, Any]) -> None:
        """Raises what another rank has found out."""
        told = self._read(f"refused/{turn.of}/{turn.refused}")
        if told:
            ranks, other = json.loads(told)
            raise self._disagreement(identity, ranks, turn, _Turn(*other))

    def _disagreement(
        self, identity: dict[str, Any], ranks: list[int], mine: _Turn, theirs: _Turn
    ) -> DisagreementError:
        for turn in (mine, theirs):
            self._refused[turn.of] = max(self._refused.get(turn.of, 0), turn.refused + 1)
        differs = _differences(identity, self._identity(theirs.of))
        here = {name: identity[name] for name in differs}
        return DisagreementError(
            "ranks",
            f"rank {self.rank} reads by {here}, but rank{'s' if len(ranks) > 1 else ''} "
            f"{', '.join(map(str, ranks))} by {differs}",
            mend="give every rank the same dataset, sampler, seed and checkpoint",
        )

    def _absence(self, turn: _Turn, identity: dict[str, Any], seconds: float) -> DisagreementError:
        """What is raised where ranks did not come; those that wait here are there."""
        came = {rank for rank in range(self.ranks) if self._read(f"waits/{rank}") == json.dumps(turn)}
        missing = [rank for rank in range(self.ranks) if rank not in came and rank != self.rank]
        return DisagreementError(
            "ranks",
            f"rank {self.rank} reads by {identity}, and rank{'s' if len(missing) > 1 else ''} "
            f"{', '.join(map(str, missing))} did not say the same within {seconds:g} s",
            mend="make the same edit on every rank, before the step at its position",
        )

    def _identity(self, of: str) -> dict[str, Any]:
        identity: dict[str, Any] = json.loads(self.store.get(f"identity/{of}"))
        return identity

    def _read(self, key: str) -> str:
        return self.store.get(key).decode() if self.store.check([key]) else ""


def job_agreement() -> Agreement | None:
    """Gives the agreement of this process's job; None where there is no process group of several ranks."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return None
    if distributed.get_world_size() == 1:
        return None
    store = distributed.distributed_c10d._get_default_store()
    if not _agreements or _agreements[-1][0] is not store:
        _agreements.clear()
        # torchrun may keep one store over its restarts, with what the ranks of before wrote to it.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        prefixed = distributed.distributed_c10d.PrefixStore(f"samplerkit/{attempt}", store)
        ranks = distributed.get_world_size()
        _agreements.append((store, Agreement(prefixed, distributed.get_rank(), ranks)))
    return _agreements[-1][1]


_agreements: list[tuple[Any, Agreement]] = []
"""That of the process group, beside its store, which is held: another one may come to lie at its address."""


def _differences(mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """What is another one there, by name."""
    return {name: theirs.get(name) for name in mine if theirs.get(name) != mine[name]}


def _is_the_same_loader(differs: dict[str, Any]) -> bool:
    """Two identities are of one loader if they share the dataset, or the sampler and its seed."""
    return "dataset" not in differs or not {"sampler", "seed"} & set(differs)
