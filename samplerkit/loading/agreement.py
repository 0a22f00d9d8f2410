"""Whether the ranks of a job begin the same order: digests compared through the process group's store.

Nothing here is a collective. A rank that begins an order which others do not, for an evaluation on rank 0 for
instance, waits for the time limit, logs a warning, and continues alone.

The store is one process that the whole job uses, so requests to it are few. A rank joins its group, which is
all ranks that begin the same, with two requests, and then polls one counter with growing pauses. Groups
that wait longer are listed under one key, by one rank of each; ranks that join another group find them there.
The members of a group are read only for errors and, by the last rank to join, where ranks share shards.
"""

import contextlib
import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import torch.distributed
import torch.utils.data

from samplerkit.errors import DisagreementError
from samplerkit.loading.state.state import digest
from samplerkit.loading.world import process_group
from samplerkit.order.deal import World

_log = logging.getLogger("samplerkit")

_SHORTEST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.01, 1.0, 1.5
"""Seconds between two polls of a rank, and the growth of each pause."""

_POLLS_PER_SECOND = 50_000
"""Polls per second of all ranks together; with many ranks the first pause is longer."""

_UNLISTED_SECONDS = 1.0
"""How long a group waits before it is listed: ranks that begin at about the same time need no list."""

_LISTED = "waiting"
"""The key of the list of waiting groups. No two of them disagree: the later one was refused."""

MAX_NAMED = 64
"""Ranks or shards that an error names."""

JOINED = (1 << 20) - 1
"""The bits of a group's counter for the number of ranks that have joined."""

IN_PLACE = 1 << 20
"""What a rank that reads the shard of its number, of as many as ranks, adds to the counter when it joins."""

AGREED = 1 << 40
"""What is added to the counter when all ranks have joined."""

REFUSED = 1 << 42
"""What is added to the counter, once or more often, when ranks disagree."""


_SAME_HINT = "give every rank the same dataset, sampler, seed and checkpoint"
_SHARDS_HINT = "leave out num_shards and shard_id, which the job then sets, or have each shard read"


class Group(NamedTuple):
    """The ranks that begin one order.

    Args:
        of: the digest of its identity.
        round: how often it was begun before: by all ranks together, or refused.
    """

    of: str
    round: int

    def key(self, name: str) -> str:
        """The key of a value of this group in the store."""
        return f"{name}/{self.of}/{self.round}"


class Agreement:
    """The comparison of one rank with the others, before it begins.

    Args:
        store: shared by the ranks, as `torch.distributed.PrefixStore`.
        rank: of this process.
        ranks: how many processes there are.
        clock: has `monotonic` and `sleep`, as the module `time`.
    """

    def __init__(self, store: Any, rank: int, ranks: int, clock: Any = time) -> None:
        self.store = store
        self.rank = rank
        self.ranks = ranks
        self._clock = clock
        # By the digest of an order; a rank that is late raises each refusal too, once.
        self._rounds: Counter[str] = Counter()
        self._joined: set[Group] = set()

    def require(
        self, identity: dict[str, Any], seconds: float, *, world: World | None = None, alone: bool = True
    ) -> None:
        """Waits until every rank begins the same run.

        Args:
            identity: what must be the same on every rank: JSON values by name.
            seconds: how long to wait for the others.
            world: the shard that this rank reads; None for one shard per rank.
            alone: whether a rank may continue without missing ranks, with a warning in the log.

        Raises:
            DisagreementError: another rank waits to begin the same dataset, or the same sampler and seed,
                with something else; it names the ranks and what differs, on all ranks that wait for either.
                Or the ranks leave a shard unread. Or some did not come, and `alone` is false.
        """
        of = digest(_to_json(identity))
        # A group after a time-out stays open: a late rank need not wait, and this rank does not count twice
        # when it begins again.
        own = Group(of, self._rounds[of])
        self._join(own, world or World(self.ranks, self.rank))
        is_listed = False
        try:
            begin, pause = self._clock.monotonic(), max(_SHORTEST_PAUSE, self.ranks / _POLLS_PER_SECOND)
            is_first = True  # a late rank checks at once: others may soon time out
            while not self._has_agreed(own):
                waited = self._clock.monotonic() - begin
                is_late = waited >= min(_UNLISTED_SECONDS, seconds / 2)
                if (is_first or is_late) and not is_listed:
                    is_listed, is_first = self._check_listed(own, identity, lists=is_late), False
                if waited >= seconds:
                    self._give_up(own, identity, seconds, alone=alone)
                    return
                self._clock.sleep(min(pause, seconds - waited))
                pause = min(_LONGEST_PAUSE, pause * _GROWTH)
        finally:
            if is_listed:
                with contextlib.suppress(torch.distributed.DistError):
                    self._unlist(own)
        self._joined.discard(own)
        self._rounds[of] = own.round + 1

    def _join(self, own: Group, world: World) -> None:
        entry = f"{self.rank} {world.num_shards} {world.shard_id},"
        self.store.append(own.key("members"), entry)
        if own in self._joined:
            return
        self._joined.add(own)
        is_in_place = world == World(self.ranks, self.rank)
        count = self.store.add(own.key("joined"), 1 + IN_PLACE * is_in_place)
        if count & JOINED == self.ranks:
            self._complete(own, count == self.ranks * (1 + IN_PLACE))

    def _complete(self, own: Group, reads_all: bool) -> None:
        """Lets all ranks continue, if they read all shards: called by the last rank to join.

        Args:
            own: the group.
            reads_all: whether each rank reads the shard of its number; else the members are read.
        """
        problem = "" if reads_all else unread_shards(self._members(own))
        if problem:
            self._refuse(own, {"problem": problem, "groups": [own], "hint": _SHARDS_HINT})
        else:
            self.store.add(own.key("joined"), AGREED)
        self.store.set(own.key("members"), "")  # the store keeps its keys for as long as the job runs

    def _has_agreed(self, own: Group) -> bool:
        """Whether all ranks have joined; raises the error that another rank has found."""
        count = self.store.add(own.key("joined"), 0)
        if count & AGREED:
            return True
        if count >= REFUSED:
            raise self._disagreement(json.loads(self.store.get(own.key("refusal"))))
        return False

    def _check_listed(self, own: Group, identity: dict[str, Any], *, lists: bool) -> bool:
        """Compares this group with those that are listed, unless it is one of them.

        Args:
            own: the group.
            identity: what it begins.
            lists: whether to list it, if it agrees with all of them.

        Returns:
            Whether it was listed here.
        """
        listed = self.store.compare_set(_LISTED, "", "[]").decode()  # as it is, or an empty list
        groups = [Group(*group) for group in json.loads(listed)]
        if own in groups:
            return False
        self._require_agreeing(own, identity, groups)
        if not lists:
            return False
        self.store.set(f"identity/{own.of}", _to_json(identity))
        extended = json.dumps([*groups, own])
        # If another group was listed meanwhile, compare with it first.
        return bool(self.store.compare_set(_LISTED, listed, extended).decode() == extended)

    def _unlist(self, own: Group) -> None:
        listed = self.store.get(_LISTED).decode()
        while own in (groups := [Group(*group) for group in json.loads(listed)]):
            groups.remove(own)
            listed = self.store.compare_set(_LISTED, listed, json.dumps(groups)).decode()

    def _require_agreeing(self, own: Group, identity: dict[str, Any], groups: list[Group]) -> None:
        if not groups:
            return
        keys = [group.key("joined") for group in (own, *groups)]
        values = self.store.multi_get([*keys, *(f"identity/{group.of}" for group in groups)])
        own_count, *counts = map(int, values[: len(keys)])
        for group, count, text in zip(groups, counts, values[len(keys) :], strict=True):
            theirs = json.loads(text)
            names = [name for name in {**identity, **theirs} if identity.get(name) != theirs.get(name)]
            # Two are of one loader if they share the dataset, or the sampler and its seed.
            are_of_one = "dataset" not in names or not {"sampler", "seed"} & set(names)
            # Ranks may have joined, and continued to their next order, since the list was read.
            if (own_count | count) & AGREED or not are_of_one:
                continue
            own_ranks, their_ranks = (named("rank", self._members(side)) for side in (own, group))
            if not (own_ranks and their_ranks):  # all have joined one of them just now
                continue
            ours, other = ({name: of.get(name) for name in names} for of in (identity, theirs))
            refusal = {"groups": [own, group], "hint": _SAME_HINT}
            if count < REFUSED:
                self._refuse(group, {**refusal, "common": f"has {other}, unlike {own_ranks} with {ours}"})
            refusal["common"] = f"has {ours}, unlike {their_ranks} with {other}"
            if own_count < REFUSED:
                self._refuse(own, refusal)
            raise self._disagreement(refusal)

    def _refuse(self, group: Group, refusal: dict[str, Any]) -> None:
        self.store.set(group.key("refusal"), json.dumps(refusal))
        self.store.add(group.key("joined"), REFUSED)

    def _disagreement(self, refusal: dict[str, Any]) -> DisagreementError:
        self._wait_for_refused([Group(*group) for group in refusal["groups"]])
        # What all ranks of the group have in common begins with the name of each.
        problem = f"rank {self.rank} {refusal['common']}" if "common" in refusal else refusal["problem"]
        return DisagreementError("ranks", problem, hint=refusal["hint"])

    def _wait_for_refused(self, groups: list[Group]) -> None:
        """Waits for two pauses of the refused ranks: the first rank to end may hold the store."""
        for group in groups:
            following = group._replace(round=group.round + 1)
            # A late rank raises one error, however often the others have disagreed before.
            while self.store.add(following.key("joined"), 0) >= REFUSED:
                following = following._replace(round=following.round + 1)
            self._rounds[group.of] = max(self._rounds[group.of], following.round)
        self._clock.sleep(2 * _LONGEST_PAUSE)

    def _give_up(self, own: Group, identity: dict[str, Any], seconds: float, *, alone: bool) -> None:
        """Continues without the missing ranks, or raises an error that names them."""
        if alone:
            _log.warning(
                "rank %d of %d starts an order that not all ranks started within %g s (%s); if it is meant "
                "to read alone, pass world=World(1, 0)",
                *(self.rank, self.ranks, seconds, _to_json(identity)),
            )
            return
        missing = named("rank", set(range(self.ranks)) - self._members(own).keys())
        problem = f"rank {self.rank} has {identity}, but {missing} did not report it within {seconds:g} s"
        hint = "make the same edit on every rank, before the step at its position"
        raise DisagreementError("ranks", problem, hint=hint)

    def _members(self, group: Group) -> dict[int, World]:
        """The ranks that have joined a group, each with the shard that it reads."""
        entries = self.store.get(group.key("members")).decode().split(",")[:-1]
        numbers = (map(int, entry.split()) for entry in entries)
        return {rank: World(num_shards, shard) for rank, num_shards, shard in numbers}


def agree(
    world: World, seconds: float, make_identity: Callable[[], dict[str, Any]], *, alone: bool = True
) -> None:
    """Compares what the ranks of this process's job begin, as `Agreement.require` does.

    Args:
        world: the shard that this rank reads; a rank that reads everything is not compared.
        seconds: how long to wait for the others.
        make_identity: makes the values that must be the same on every rank, if there are others.
        alone: whether a rank may continue without missing ranks.
    """
    distributed = process_group()
    # A worker has its parent's connection to the store, which two processes must not use at the same time.
    is_worker = torch.utils.data.get_worker_info() is not None
    if is_worker or distributed is None or 1 in (world.num_shards, distributed.get_world_size()):
        return
    agreement = _agreement_by(distributed.distributed_c10d._get_default_store())
    agreement.require(make_identity(), seconds, world=world, alone=alone)


@lru_cache(maxsize=1)  # it holds the store: another one may get its address
def _agreement_by(store: Any) -> Agreement:
    """Makes the agreement of a process group, once."""
    # torchrun may keep one store over its restarts, with the keys of the previous ranks.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    job = process_group()
    prefixed = job.distributed_c10d.PrefixStore(f"samplerkit/{attempt}", store)
    return Agreement(prefixed, job.get_rank(), job.get_world_size())


def _to_json(identity: dict[str, Any]) -> str:
    return json.dumps(identity, sort_keys=True)


def unread_shards(members: Mapping[int, World]) -> str:
    """Returns a sentence with the shards that no rank reads; empty if each is read by at least one rank.

    Example:
        >>> unread_shards({0: World(2, 0), 1: World(2, 0)})
        'no rank reads shard 1 of 2; ranks 0, 1 have shard 0'
    """
    for count in sorted({world.num_shards for world in members.values()}):
        ranks = {rank: world.shard_id for rank, world in members.items() if world.num_shards == count}
        read = set(ranks.values())
        if len(read) < count:
            unread = islice((shard for shard in range(count) if shard not in read), MAX_NAMED)
            shards = named("shard", unread, count - len(read))
            return f"no rank reads {shards} of {count}; {named('rank', ranks)} have {named('shard', read)}"
    return ""


def named(kind: str, numbers: Iterable[int], count: int | None = None) -> str:
    """Names numbered things, or the first ones if there are many."""
    numbers = sorted(numbers)
    count = len(numbers) if count is None else count
    others = f" and {count - MAX_NAMED:,} others" if count > MAX_NAMED else ""
    shown = ", ".join(map(str, numbers[:MAX_NAMED]))
    return f"{kind}{'s' if count > 1 else ''} {shown}{others}" if numbers else ""
