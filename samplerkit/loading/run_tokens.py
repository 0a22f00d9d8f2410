"""The windows of tokens of a run: how long they are, and where a run may go on with another length.

A state counts windows, and says in its section `tokens` how many make a block. Read by a `BlockSampler`, the
first windows of each whole pool of blocks cover the same tokens, whatever their length: there, and at the end
of an epoch, a position is taken over by a run whose windows have another length, in windows of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, final

from samplerkit.errors import StateError
from samplerkit.loading.sections import Section
from samplerkit.loading.state import State
from samplerkit.order.arguments import LARGEST
from samplerkit.order.layout import Layout
from samplerkit.order.shuffle import Shuffle
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.block import BlockSampler
from samplerkit.samplers.context import RunConstants
from samplerkit.samplers.ledger import Ledger
from samplerkit.samplers.pieces import block_layout, pieces_of, required_pieces, token_lengths

VERSION: Final = 1
"""Of the section `tokens` in a state."""

_FIELDS = {"version", "windows_per_block", "pool", "seq_len", "block_len", "tokens"}
_OTHER = "is another one in the saved state"


def blocks_of(sampler: Sampler) -> BlockSampler | None:
    """Finds the sampler of blocks by which a run is read: the outermost, or what a deal alone stands above.

    Example:
        >>> import samplerkit as sk
        >>> root = sk.DistributedSampler(2, 0, shuffle=False)
        >>> root.add_child(sk.BlockSampler())
        >>> blocks_of(root), blocks_of(sk.RandomSampler())
        (BlockSampler(pool=64, seed=0, windows_per_block=None), None)
    """
    for link in sampler._links():
        if isinstance(link, BlockSampler):
            return link
        if link.deal is None or link.get_shuffle_mode() is not Shuffle.FALSE:
            break
    return None


def ledger_below(sampler: Sampler) -> Ledger | None:
    """Finds the ledger whose positions are the blocks of a run; None where there is none."""
    blocks = blocks_of(sampler)
    child = None if blocks is None else blocks.get_child()
    return child if isinstance(child, Ledger) else None


@final
@dataclass(frozen=True)
class RunTokens:
    """How the windows of a run are cut.

    Args:
        pieces: windows in a block.
        pool: blocks in a pool; None where no `BlockSampler` orders them.
        seq_len: tokens in a window, if it is known.
        block_len: tokens in a block, if it is known.
    """

    pieces: int
    pool: int | None
    seq_len: int | None
    block_len: int | None

    @classmethod
    def of(cls, sampler: Sampler, dataset: Any) -> RunTokens | None:
        """Looks at a run; None where windows are no part of blocks."""
        blocks = blocks_of(sampler)
        if blocks is not None:
            pieces = required_pieces(dataset, blocks.windows_per_block)
            return cls(pieces, blocks.pool, *token_lengths(dataset))
        said = pieces_of(dataset)
        return None if said is None else cls(said, None, *token_lengths(dataset))

    def blocks(self, dataset: Any) -> Layout | None:
        """Gives the blocks by which a dataset is described; None where no `BlockSampler` orders them."""
        return None if self.pool is None else block_layout(dataset, self.pieces)

    def section(self, position: int | None) -> Section:
        """Gives what a state says of windows: JSON values, under 200 bytes.

        Args:
            position: in windows; None where a state counts something else.
        """
        tokens = None if position is None or self.seq_len is None else position * self.seq_len
        return {
            "version": VERSION,
            "windows_per_block": self.pieces,
            "pool": self.pool,
            "seq_len": self.seq_len,
            "block_len": self.block_len,
            "tokens": tokens,
        }

    def pools_begun(self, position: int, num_windows: int) -> tuple[int, int]:
        """Gives the blocks of an epoch in pools that were begun, and all of the epoch.

        Args:
            position: in windows.
            num_windows: of the epoch.
        """
        pool, blocks = self.pool or 1, num_windows // self.pieces
        return min(blocks, -(-position // (pool * self.pieces)) * pool), blocks

    def require_survivable(self, state: State) -> None:
        """Refuses a state of windows of another length, where the order does not survive that.

        Raises:
            StateError: the section is damaged; or the lengths differ, and it was saved by, or is read by,
                another order than that of blocks, or counts batches.
        """
        saved = state.sections.get("tokens")
        if saved is None:
            return
        _require_plausible(saved)
        if saved["windows_per_block"] == self.pieces:
            return
        if None not in (saved["block_len"], self.block_len) and saved["block_len"] != self.block_len:
            mend = "say block_len= as it was: seq_len alone may change"
            raise StateError("block_len", _OTHER, saved["block_len"], self.block_len, mend=mend)
        if None in (saved["pool"], self.pool):
            mend = "read by a BlockSampler from the start: no other order survives that"
            raise self._other(saved, _OTHER, mend)
        if state.unit != "samples":
            raise self._other(saved, f"{_OTHER}, which counts batches", "make the loader with batch_size=")

    def rescaled(
        self, state: State, sampler: Sampler, dataset: Any, samples_a_step: int | None = None
    ) -> State:
        """Gives a state that fits, in windows of this run.

        Args:
            state: one that `require_survivable` let in.
            sampler: of this run.
            dataset: what it reads.
            samples_a_step: of all ranks, if it is known: the error then says how many steps are missing.

        Raises:
            StateError: it stands within a pool; the error says where the next one begins.
        """
        saved = state.sections.get("tokens")
        if saved is None or saved["windows_per_block"] == self.pieces or self.pool is None:
            return state
        before = saved["windows_per_block"]
        windows = len(sampler.undealt_order(dataset, state.epoch, constants=RunConstants(state.lanes)))
        of_pool, end = self.pool * before, windows * before // self.pieces
        if state.limit is not None and state.limit % of_pool:
            problem = "is no whole number of pools, so that another seq_len reads other tokens"
            raise StateError("limit", problem, state.limit, f"a multiple of {of_pool}")
        if state.position % of_pool and state.position != end:
            raise self._within(saved, state.position, of_pool, end, samples_a_step)
        limit = None if state.limit is None else state.limit * self.pieces // before
        return replace(state, position=state.position * self.pieces // before, limit=limit)

    def _within(
        self, saved: Section, position: int, of_pool: int, end: int, samples_a_step: int | None
    ) -> StateError:
        """What is raised where a state stands within a pool."""
        before, name = saved["windows_per_block"], "seq_len" if saved["seq_len"] else "windows_per_block"
        following = min(end, (position // of_pool + 1) * of_pool)
        how = f"to position {following}"
        # In units that both windows are made of, a step is the same one for both.
        missing = None
        if samples_a_step is not None and samples_a_step * before % self.pieces == 0:
            place, pool = position * self.pieces, of_pool * self.pieces
            missing = steps_to_a_multiple(place, pool, samples_a_step * before)
        if missing is not None and samples_a_step is not None:
            reached = position + missing * samples_a_step * before // self.pieces
            if reached <= end:
                following, how = reached, f"for {missing} more steps of as many tokens, to position {reached}"
        if saved["seq_len"]:
            how += f", {following * saved['seq_len']} tokens into the epoch"
        mend = f"go on with {name}={saved[name]} {how}: there it may change"
        size = f"{of_pool * saved['seq_len']} tokens" if saved["seq_len"] else f"{of_pool} windows"
        return self._other(saved, f"{_OTHER}, which stands within a pool of {size}", mend)

    def _other(self, saved: Section, problem: str, mend: str) -> StateError:
        name, here = "seq_len", self.seq_len
        if None in (saved["seq_len"], here):
            name, here = "windows_per_block", self.pieces
        return StateError(name, problem, saved[name], here, mend=mend)


def steps_to_a_multiple(position: int, of: int, step: int) -> int | None:
    """Gives the number of steps after which a position is a multiple of a number; None if it never is.

    Example:
        >>> steps_to_a_multiple(10, of=32, step=6), steps_to_a_multiple(10, of=32, step=4)
        (9, None)
    """
    common = math.gcd(of, step)
    missing = -position % of
    if missing % common:
        return None
    return missing // common * pow(step // common, -1, of // common) % (of // common)


def _require_plausible(saved: Mapping[str, Any]) -> None:
    """Refuses a section that no run saves, whose checksum may fit all the same."""
    if set(saved) - {"optional"} != _FIELDS:
        raise StateError("tokens", "has missing or unknown fields", sorted(map(str, saved)))
    for name in sorted(_FIELDS - {"version"}):
        value = saved[name]
        if value is None and name != "windows_per_block":
            continue
        if type(value) is not int or not (name != "tokens") <= value <= LARGEST:
            raise StateError(name, f"must be an integer in [{int(name != 'tokens')}, {LARGEST}]", value)
