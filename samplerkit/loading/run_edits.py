"""The edits of a run: what of them a state carries, and from which position on one may still be made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from threading import Lock
from typing import Any, Final, final

from samplerkit.errors import ArgumentValueError, StateError
from samplerkit.loading.identity import describe_looks, digest
from samplerkit.loading.sections import Section
from samplerkit.loading.stages import Ramp
from samplerkit.order.layout import Layout
from samplerkit.order.told import told_fingerprint
from samplerkit.samplers.edit import Edit
from samplerkit.samplers.ledger import Ledger
from samplerkit.samplers.mixed_parts import part_of

VERSION: Final = 1
"""Of the section `ledger` in a state."""

_FIELDS = {"version", "past", "digest", "before", "all"}
_AT_TIMES = {"optional", "looks"}
_HEX = set("0123456789abcdef")


@final
class Looks:
    """What the samplers of sources that edits add look at in their parts, such as labels.

    Args:
        dataset: of the run.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._kept: tuple[Ledger, list[str]] | None = None

    def __call__(self, ledger: Ledger | None) -> list[str]:
        """Gives its digest for the first 0, 1, 2 ... edits; "" where nothing is looked at."""
        if ledger is None or not ledger.new_sources:
            return []
        kept = self._kept
        if kept is None or kept[0] is not ledger:
            kept = (ledger, list(accumulate(map(self._told, ledger.edits), _also, initial="")))
            self._kept = kept
        return kept[1]

    def _told(self, edit: Edit) -> str:
        parts = Layout.of(self._dataset).parts
        return "".join(
            describe_looks(sampler, part_of(self._dataset, name))
            for name, sampler in edit.new_sources.items()
            if sampler is not None and name in parts
        )


def _also(before: str, told: str) -> str:
    return digest(before, told) if told else before


def section_of(ledger: Ledger, position: int, looks: Sequence[str] = ()) -> Section | None:
    """Gives what a state at a position of the run says of edits: JSON values, under 500 bytes.

    Args:
        ledger: with the edits.
        position: of the run.
        looks: from `Looks`.

    Returns:
        None where there are no edits. Without one before the position, the section is optional: a version
        that knows no ledgers may read that state.
    """
    if not ledger.edits:
        return None
    past, digests = ledger.past(position), ledger.digests
    section: dict[str, Any] = {
        "version": VERSION,
        "past": past,
        "digest": digests[past],
        "before": [digests[past - distance] for distance in _distances(past)],
        "all": digests[-1],
    }
    if any(looks):
        section["looks"] = [looks[past], looks[-1]]
    return section if past else {**section, "optional": True}


def require_past(
    ledger: Ledger | None, saved: Section | None, position: int, looks: Sequence[str] = ()
) -> None:
    """Refuses a state behind other edits than those of this run; later ones are free.

    Args:
        ledger: of this run, if it has one.
        saved: the section of the state.
        position: of the state, in the run.
        looks: from `Looks`; a state of a version that did not look has none to compare.

    Raises:
        StateError: the section is damaged; or an edit before the position is another one, is missing in this
            run, or was not made when the state was saved. It names the edit, or a narrow range of them. Or
            its sampler looks at something else in its part.
    """
    if saved is not None:
        _require_plausible(saved)
    ledger = Ledger() if ledger is None else ledger
    past = 0 if saved is None else saved["past"]
    here = ledger.past(position)
    known = {0: ledger.digests[0]}
    if saved is not None and past:
        known |= {past - distance: of for distance, of in zip(_distances(past), saved["before"], strict=True)}
        known[past] = saved["digest"]
    same = [count for count, of in known.items() if count <= here and ledger.digests[count] == of]
    agreed = max(same, default=0)
    if agreed == past == here:
        looked, sees = (saved or {}).get("looks"), looks[past] if looks else ""
        if looked is not None and looked[0] != sees:
            problem = "says a source whose sampler looks at the dataset, such as its labels, and sees others"
            raise StateError("ledger", problem, looked[0], sees)
        return
    if agreed == past:
        raise StateError(
            "ledger",
            f"was saved at position {position}, before which this run has an edit that its run had not",
            f"{past} edits",
            ledger.edits[past],
            mend="an edit must lie at or behind the position of the state that is loaded",
        )
    end = min((count for count in known if count > agreed), default=past)
    which = f"edit {end}" if end == agreed + 1 else f"one of the edits {agreed + 1} to {end}"
    if end <= here:
        problem, mine = "is another one in this run", str(list(ledger.edits[agreed:end])[:3])
    else:
        problem, mine = "is missing in this run", f"{here} edits before position {position}"
    mend = "give the ledger all the edits that the run had, edits_file= keeps them"
    raise StateError("ledger", f"{which} of the saved run {problem}", f"{past} edits", mine, mend=mend)


def smaller_trees(ledger: Ledger | None, dataset: Any) -> Iterator[Any]:
    """Gives what a tree was before its last parts were appended, which edits add to the mixture.

    A state from before such an edit may be of one of them: no id of it has moved.

    Args:
        ledger: of the run, if it has one.
        dataset: of the run.
    """
    parts = Layout.of(dataset).parts if ledger is not None and ledger.new_sources else {}
    for count in range(len(parts) - 1, 0, -1):
        if ledger is None or list(parts)[count] not in ledger.new_sources:
            return
        if hasattr(dataset, "of_first_parts"):
            yield dataset.of_first_parts(count)
        elif told_fingerprint(dataset) is None:
            yield Layout.tree(dict(list(parts.items())[:count]))


def ramp_of(ledger: Ledger | None, begin: int, length: int) -> Ramp:
    """Gives what edits say of the samples in a step, in the positions of an epoch.

    Args:
        ledger: of the run, if it has one.
        begin: the position of the run at which the epoch begins.
        length: how many positions it has.
    """
    said = () if ledger is None else ledger.ramp
    before = [size for at, size in said if at <= begin][-1:]
    inside = [(at - begin, size) for at, size in said if begin < at < begin + length]
    return (*((0, size) for size in before), *inside)


def require_divided(ledger: Ledger | None, position: int, ranks: int) -> None:
    """Refuses a number of samples in a step that the ranks do not divide, from a position of the run on.

    Raises:
        ArgumentValueError: an edit says one.
    """
    said = () if ledger is None else ledger.ramp
    before = [one for one in said if one[0] <= position]
    for at, size in (*before[-1:], *said[len(before) :]):
        if size % ranks:
            problem = f"says a global_batch that {ranks} ranks do not divide"
            mend = "start as many ranks as divide it, or edit the run again at the position of the state"
            raise ArgumentValueError(f"edit at {at}", problem, size, mend=mend)


def _distances(count: int) -> list[int]:
    """1, 2, 4 and so on: how far before a count digests are saved, and none at 0, which is always known."""
    return [1 << power for power in range(count.bit_length()) if 1 << power < count]


def _require_plausible(saved: Mapping[str, Any]) -> None:
    """Refuses a section that no run saves, whose checksum may fit all the same."""
    if set(saved) - _AT_TIMES != _FIELDS:
        raise StateError("ledger", "has missing or unknown fields", sorted(map(str, saved)))
    past, before = saved["past"], saved["before"]
    if type(past) is not int or not 0 <= past < 1 << 32:
        raise StateError("past", "must be a number of edits", past)
    if not isinstance(before, list | tuple) or len(before) != len(_distances(past)):
        raise StateError("before", "must be a digest for each power of two below the edits", before)
    looks = saved.get("looks", ["", ""])
    if not isinstance(looks, list | tuple) or len(looks) != 2:
        raise StateError("looks", "must be two digests", looks)
    for one in (saved["digest"], saved["all"], *before, *filter(None, looks)):
        if not isinstance(one, str) or len(one) != 16 or not set(one) <= _HEX:
            raise StateError("ledger", "holds what is no digest", one)


@final
class Requested:
    """How far the samples of a run were asked for: behind that, and not before, it may be edited.

    A thread beside the loop may ask. So whoever makes a request, and whoever edits, holds the lock.

    Attributes:
        edition: how often the run was edited since it was made.
        position: of the run; all before it was asked for.
        made: all edits of the run, if one was made since it began.
    """

    def __init__(self) -> None:
        self.lock = Lock()
        self.edition = 0
        self.position = 0
        self.made: tuple[Edit, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        return {"edition": self.edition, "position": self.position, "made": self.made}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__init__()  # a lock does not travel
        self.__dict__.update(saved)
