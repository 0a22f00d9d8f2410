"""The edits of a run: those on which a state depends, and their effect on ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from samplerkit.errors import ArgumentValueError, StateError
from samplerkit.loading.run.units import EpochUnits, Ramp
from samplerkit.loading.state.identity import describe_used_values
from samplerkit.loading.state.state import FieldCheck, Section, State, digest, int_in, list_of, require_fields
from samplerkit.order.caching import cached_property
from samplerkit.order.dataset_protocol import find_fingerprint
from samplerkit.order.layout import Layout
from samplerkit.samplers.base import Sampler
from samplerkit.samplers.block import ledger_below
from samplerkit.samplers.mixing.edit import Edit
from samplerkit.samplers.mixing.ledger import Ledger
from samplerkit.samplers.mixing.sources import parts_of

_DIGEST = FieldCheck(lambda value: isinstance(value, str) and len(value) == 16, "must be a digest")
_CHECKS = {
    "past": int_in(0, (1 << 32) - 1),
    "digest": _DIGEST,
    "before": list_of(_DIGEST),
    "all": _DIGEST,
}

_NO_EDITS = Ledger()


@dataclass(frozen=True, eq=False)
class EditHistory:
    """The edits of a run, from its ledger; a run without a ledger has none.

    Args:
        ledger: the outermost sampler, or the one below a `BlockSampler`; an empty one where there is none.
        dataset: of the run.
        below_blocks: whether they are below a `BlockSampler`, which shuffles its pools in another way then.
    """

    ledger: Ledger
    dataset: Any
    below_blocks: bool

    @classmethod
    def of(cls, sampler: Sampler, dataset: Any) -> EditHistory:
        """Finds the edits of a chain."""
        below = ledger_below(sampler)
        ledger = below or (sampler if isinstance(sampler, Ledger) else _NO_EDITS)
        return cls(ledger, dataset, below is not None)

    @cached_property
    def digests(self) -> list[str]:
        """The chained digests of the first 0, 1, 2 ... edits, and of what their new sources look at.

        Samplers of these may look at their part of the dataset, such as its labels.
        """
        used = accumulate(map(self._values_used, self.ledger.edits), initial="")
        return [digest(of, text) if text else of for of, text in zip(self.ledger.digests, used, strict=True)]

    def _values_used(self, edit: Edit) -> str:
        parts = parts_of(self.dataset) if edit.new_sources else {}
        return "".join(
            describe_used_values(sampler, parts[name])
            for name, sampler in edit.new_sources.items()
            if sampler is not None and name in parts
        )

    def saved(self, position: Callable[[], int]) -> dict[str, Section]:
        """Returns the section of a state: JSON values, under 500 bytes; nothing in a run without edits.

        Args:
            position: returns the position of the run, which is looked for only with edits.
        """
        if not self.ledger.edits and not self.below_blocks:
            return {}
        past, digests = self.ledger.past(position()), self.digests
        before = [digests[past - distance] for distance in _distances(past)]
        return {"ledger": {"past": past, "digest": digests[past], "before": before, "all": digests[-1]}}

    def require_fits(self, state: State, units: EpochUnits, ranks: int) -> None:
        """Refuses a state that depends on other edits than those of this run; later ones are free.

        Args:
            state: the state.
            units: of its epoch, in this run.
            ranks: how many there are now.

        Raises:
            StateError: the section is damaged; or an edit before the position is another one, is missing in
                this run, or was not made when the state was saved: it names the edit, or a narrow range of
                them. Or its sampler looks at something else in its part.
            ArgumentValueError: the ranks do not divide the samples of a step.
        """
        saved = state.sections.get("ledger")
        if saved is not None:
            require_fields("ledger", saved, _CHECKS)
        if saved is None and not self.ledger.edits:
            return
        position = units.run_position(state.position)
        self._require_past(saved or {"past": 0, "digest": "", "before": []}, position)
        require_divided(self.ledger, position, ranks)

    def _require_past(self, saved: Section, position: int) -> None:
        """Refuses other edits before a position than those of the state."""
        ledger, past, digests = self.ledger, saved["past"], self.digests
        current = ledger.past(position)
        before = zip(_distances(past), saved["before"], strict=False)
        recorded = {past - distance: of for distance, of in before}
        recorded |= {past: saved["digest"], 0: digests[0]}
        same = [count for count, of in recorded.items() if count <= current and digests[count] == of]
        agreed = max(same, default=0)
        if agreed == past == current:
            return
        end = min((count for count in recorded if count > agreed), default=current)
        name = f"edit {end}" if end == agreed + 1 else f"one of the edits {agreed + 1} to {end}"
        problem = f"{name}, before position {position}, is not the same as in the saved run"
        own = str(list(ledger.edits[agreed : min(end, current)])[:3])
        hint = "pass Ledger all edits of the saved run (edits_file= stores them), then any new ones"
        raise StateError("ledger", problem, f"{past} edits", own, hint=hint)

    def ramp(self, units: EpochUnits, start: int, ranks: int) -> Ramp:
        """Returns how many samples a step has, from positions of an epoch on.

        Args:
            units: of the epoch.
            start: the position at which the ranks begin.
            ranks: how many there are.

        Raises:
            ArgumentValueError: they do not divide a step.
        """
        if not self.ledger.ramp:
            return ()
        begin, end = units.run_position(0), units.run_position(0) + len(units.order)
        require_divided(self.ledger, begin + start, ranks)
        return tuple((at - begin, size) for at, size in self.ledger.ramp if at < end)

    def smaller_trees(self) -> Iterator[Any]:
        """Yields the trees before its last parts were appended, which edits add to the mixture.

        A state from before such an edit may be of one of them: no id of it has moved.
        """
        new_sources = self.ledger.new_sources
        parts = Layout.of(self.dataset).parts
        for count in range(len(parts) - 1, 0, -1):
            if list(parts)[count] not in new_sources:
                return
            if hasattr(self.dataset, "of_first_parts"):
                yield self.dataset.of_first_parts(count)
            elif find_fingerprint(self.dataset) is None:
                yield Layout.tree(dict(list(parts.items())[:count]))


def require_divided(ledger: Ledger, position: int, ranks: int) -> None:
    """Refuses a number of samples in a step that the ranks do not divide, from a position of the run on.

    Raises:
        ArgumentValueError: an edit says one.
    """
    before = [stage for stage in ledger.ramp if stage[0] <= position]
    for at, size in (*before[-1:], *ledger.ramp[len(before) :]):
        if size % ranks:
            problem = f"sets a global_batch that {ranks} ranks do not divide"
            hint = "start as many ranks as divide it, or edit the run again at the position of the state"
            raise ArgumentValueError(f"edit at {at}", problem, size, hint=hint)


def _distances(count: int) -> list[int]:
    """Returns the distances 1, 2, 4 ... below a count, at which earlier digests are saved."""
    return [1 << power for power in range(count.bit_length()) if 1 << power < count]
