"""Windows of tokens, samples whose length may change where a run resumes.

A state counts windows, and its section `tokens` says how many make a block. Read by a `BlockSampler`, every
whole pool of blocks covers the same tokens at any length of windows. So between pools, and at the end of an
epoch, a run with another length can resume, at the same position in its own windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from samplerkit.errors import StateError
from samplerkit.loading.run.units import EpochUnits, RunFacts, Unit
from samplerkit.loading.state.state import Past, Section, State, checks_of, int_in, optional, require_fields
from samplerkit.order.arguments import LARGEST
from samplerkit.order.layout import Layout
from samplerkit.samplers import block
from samplerkit.samplers.base import Sampler

_POSITIVE = int_in(1, LARGEST)
_DIFFERS = "differs from the saved state"
_LENGTHS = ("block_len", "seq_len", "windows_per_block")


@dataclass(frozen=True, eq=False)
class TokenWindowUnit(Unit):
    """Counts windows of tokens.

    Args:
        windows_per_block: windows in a block.
        pool: blocks in a pool; None where no `BlockSampler` orders them.
        seq_len: tokens in a window, if it is known.
        block_len: tokens in a block, if it is known.
        is_edited: whether a ledger below the `BlockSampler` counts positions of the run in blocks.
    """

    windows_per_block: int = field(metadata={"check": _POSITIVE})
    pool: int | None = field(metadata={"check": optional(_POSITIVE)})
    seq_len: int | None = field(metadata={"check": optional(_POSITIVE)})
    block_len: int | None = field(metadata={"check": optional(_POSITIVE)})
    is_edited: bool = False

    @classmethod
    def of(cls, sampler: Sampler, dataset: Any) -> TokenWindowUnit | None:
        """Returns the windows of a run; None where they are not part of blocks."""
        blocks, windows = block.block_sampler_of(sampler), block.shared_value(dataset, "windows_per_block")
        if blocks is not None:
            windows = block.required_pieces(dataset, blocks.windows_per_block)
        if windows is None:
            return None
        seq_len, block_len = (block.shared_value(dataset, name) for name in ("seq_len", "block_len"))
        pool = None if blocks is None else blocks.pool
        return cls(windows, pool, seq_len, block_len, is_edited=block.ledger_below(sampler) is not None)

    def of_epoch(self, run: RunFacts, epoch: int) -> EpochTokenWindows:
        """Returns the windows of an epoch."""
        return EpochTokenWindows(epoch, run.order_maker(epoch), self)

    def described_layout(self, dataset: Any) -> Layout | None:
        """Returns the blocks that describe a dataset; None where no `BlockSampler` orders them."""
        return None if self.pool is None else block.block_layout(dataset, self.windows_per_block)

    def require_resumable(self, state: State) -> None:
        """Refuses a state of windows of another length, where the order does not survive that.

        Raises:
            StateError: the section is damaged; or the lengths differ, and it was saved by, or is read by,
                another order than that of blocks, or counts batches.
        """
        saved = state.sections.get("tokens")
        if saved is None:
            return
        require_fields("tokens", saved, {**checks_of(type(self)), "tokens": optional(int_in(0, LARGEST))})
        names = self._differing(saved)
        can_change = None not in (saved["pool"], self.pool) and state.unit == "samples"
        if names and (not can_change or "block_len" in names):
            name = names[0]
            hint = (
                f"allow= does not cover this: finish the epoch with {name}={saved[name]}; within an "
                "epoch seq_len alone may change, in a run of samples, not batches, that is read by a "
                "BlockSampler from the start, with one block_len= that is a multiple of all lengths"
            )
            raise StateError(name, _DIFFERS, saved[name], getattr(self, name), hint=hint)

    def converted(self, state: State, samples_per_step: int) -> State:
        """Converts the position of a state to windows of this length."""
        saved = state.sections.get("tokens")
        if saved is None or saved["windows_per_block"] == self.windows_per_block or self.pool is None:
            return state
        before = saved["windows_per_block"]
        pool_size = self.pool * before
        if state.limit is not None and state.limit % pool_size:
            problem = "is not a whole number of pools, so that another seq_len reads other tokens"
            raise StateError("limit", problem, state.limit, f"a multiple of {pool_size}")
        if state.position % pool_size:
            raise self._pool_error(saved, state.position, pool_size, samples_per_step)
        limit = None if state.limit is None else state.limit * self.windows_per_block // before
        state = Past.of(state).rescaled(pool_size, before, self.windows_per_block).in_state(state)
        return replace(state, position=state.position * self.windows_per_block // before, limit=limit)

    def _pool_error(self, saved: Section, position: int, pool_size: int, samples_per_step: int) -> StateError:
        """The error of a state within a pool, which names the next place between two."""
        missing, how = -position % pool_size, ""
        # The saved windows in a step of as many tokens.
        step, rest = divmod(samples_per_step * saved["windows_per_block"], self.windows_per_block)
        common = math.gcd(step, pool_size)
        if not rest and missing % common == 0:
            inverse = pow(step // common, -1, pool_size // common)
            steps = missing // common * inverse % (pool_size // common)
            missing, how = steps * step, f"for {steps} more steps of as many tokens, "
        name, place = self._differing(saved)[0], f"position {position + missing} or the end of the epoch"
        hint = f"continue with {name}={saved[name]} {how}to {place}: there it may change"
        problem = f"{_DIFFERS}, which is within a pool of {pool_size} windows"
        return StateError(name, problem, saved[name], getattr(self, name), hint=hint)

    def _differing(self, saved: Section) -> list[str]:
        """Returns the names of lengths that are others in a state, as far as both are known."""
        both = {name: (saved[name], getattr(self, name)) for name in _LENGTHS}
        return [name for name, pair in both.items() if None not in pair and pair[0] != pair[1]]


@dataclass(frozen=True, eq=False)
class EpochTokenWindows(EpochUnits):
    """The windows of an epoch.

    Args:
        unit: how they are cut.
    """

    unit: TokenWindowUnit

    def saved(self, position: int | None) -> dict[str, Section]:
        """Returns the section of a state: JSON values, under 200 bytes; None where batches are counted."""
        section = {name: getattr(self.unit, name) for name in checks_of(type(self.unit))}
        length = self.unit.seq_len
        section["tokens"] = None if position is None or length is None else position * length
        return {"tokens": section}

    def run_position(self, position: int) -> int:
        """Returns the position of the run; with a ledger below, in blocks, of the pools that were begun."""
        if not self.unit.is_edited:
            return super().run_position(position)
        pool = self.unit.pool or 1
        blocks = len(self.order) // self.unit.windows_per_block
        started = -(-position // (pool * self.unit.windows_per_block)) * pool
        return self.epoch * blocks + min(blocks, started)

    def require_position(self, state: State) -> None:
        """Refuses a position within a pool that was shuffled in another way."""
        super().require_position(state)
        saved = "a ledger" if "ledger" in state.sections else "no ledger"
        current = "a ledger" if self.unit.is_edited else "no ledger"
        if self.unit.pool is None or saved == current or state.position == len(self.order):
            return
        if state.position % (self.unit.windows_per_block * self.unit.pool):
            hint = "continue without this change to the end of a pool: there a ledger can be added or removed"
            problem = "was saved within a pool: a BlockSampler over a Ledger shuffles it differently"
            raise StateError("ledger", problem, saved, current, hint=hint)
