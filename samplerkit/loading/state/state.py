"""The state of a run: where it is, and what it has read, as a small JSON value, on every rank the same.

A resume that lost or repeated a sample counted wrongly: see `loading/iteration.py`, and `run/delivery.py`.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from samplerkit.errors import ArgumentTypeError, ArgumentValueError, StateError
from samplerkit.order.arguments import INT64_MAX, MAX_LANES, is_iterable

SCHEMA = 1
"""The version of the state's fields; a newer one is refused."""

Section = Mapping[str, Any]
"""JSON values by name: what a run needs besides its position, such as the recipe of its batches."""

COMPARED = ("algorithm", "seed", "dataset", "sampler", "tail", "num_shards")
"""The fields that must be the same in the run that loads a state; each can be allowed to differ."""

_COMMON_SECTIONS = frozenset({"ids", "ledger", "read"})
"""Sections that any run reads, though its own state may not have them."""

_KEYWORD = "samplerkit"
_FINGERPRINT_DIGITS = 12
_WRITER = json.JSONEncoder(sort_keys=True, default=str)
_LOG = logging.getLogger("samplerkit")


def digest(*parts: str | bytes) -> str:
    """Returns a short digest of some strings and bytes.

    Example:
        >>> digest("a", "b") == digest("ab")
        False
    """
    state = hashlib.blake2b(digest_size=8, person=b"samplerkit")
    for part in parts:
        # Names of files may be bytes that are no UTF-8.
        encoded = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        state.update(len(encoded).to_bytes(8, "little"))
        state.update(encoded)
    return state.hexdigest()


class FieldCheck(NamedTuple):
    """The check of a field of a state, or of a section.

    Args:
        is_plausible: whether a run could have saved a value.
        problem: what it must be, for the error.
    """

    is_plausible: Callable[[Any], bool]
    problem: str


TEXT = FieldCheck(lambda value: isinstance(value, str), "must be a string")


def int_in(least: int, most: int) -> FieldCheck:
    """Returns the check of an integer in [least, most]."""
    problem = f"must be an integer in [{least}, {most}]"
    return FieldCheck(lambda value: type(value) is int and least <= value <= most, problem)


def optional(check: FieldCheck) -> FieldCheck:
    """Returns the check of a value that may be None."""
    return FieldCheck(lambda value: value is None or check.is_plausible(value), check.problem)


def list_of(check: FieldCheck, length: int | None = None) -> FieldCheck:
    """Returns the check of a list of values, of any length or of one."""

    def is_plausible(value: Any) -> bool:
        is_list = isinstance(value, list | tuple) and length in (None, len(value))
        return is_list and all(map(check.is_plausible, value))

    return FieldCheck(is_plausible, f"must be a list, of which each {check.problem}")


def require_fields(name: str, saved: Any, checks: Mapping[str, FieldCheck]) -> None:
    """Refuses values that no run saves, though their checksum may fit.

    Args:
        name: of the section, for the error.
        saved: the values.
        checks: of all fields.

    Raises:
        StateError: a field is missing, unknown or holds what no run saves; it names the field.
    """
    if not isinstance(saved, Mapping) or saved.keys() != checks.keys():
        names = sorted(map(str, saved)) if isinstance(saved, Mapping) else saved
        raise StateError(name, "has missing or unknown fields", names)
    for field_name, value in saved.items():
        if not checks[field_name].is_plausible(value):
            raise StateError(field_name, checks[field_name].problem, value)


def checks_of(kind: type[Any]) -> dict[str, FieldCheck]:
    """Returns the checks of the fields of a dataclass that are saved: those with a `check`."""
    return {each.name: each.metadata["check"] for each in fields(kind) if "check" in each.metadata}


def _are_sections(value: Any) -> bool:
    is_mapping = isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
    return is_mapping and all(isinstance(section, Mapping) for section in value.values())


_SECTIONS = FieldCheck(_are_sections, "must be sections by name")


class Place(NamedTuple):
    """A position of an epoch.

    Args:
        epoch: the epoch.
        position: how many of its units were handed out to all ranks.
        ended: the epoch that was read to its end just before, where nothing was handed out since; None where
            there is none, or where the same one is to be read again.
    """

    epoch: int
    position: int
    ended: int | None = None


@dataclass(frozen=True)
class State:
    """Where a run is.

    Args:
        algorithm: the id of the algorithm.
        seed: the seeds along the chain, outermost first.
        epoch: the epoch, from 0.
        position: how many units of the epoch's order all ranks together have received, pads not counted.
        ended: the epoch that was read to its end just before, if this is its end; else None.
        lanes: the number of lanes that the first start fixed.
        limit: the limit of samples that the first start fixed; None for all.
        tail: the loader's tail.
        dataset: a description of the dataset, with a digest.
        sampler: a description of the chain of samplers.
        num_shards: the number of shards of a distributed sampler below the root; None where there is none.
        unit: what the position counts.
        sections: everything else that a run needs, by name. The position depends on each.
    """

    algorithm: str = field(metadata={"check": TEXT})
    seed: tuple[int, ...] = field(metadata={"check": list_of(int_in(-INT64_MAX - 1, 2**64))})
    epoch: int = field(metadata={"check": int_in(0, INT64_MAX)})
    position: int = field(metadata={"check": int_in(-INT64_MAX, INT64_MAX)})  # checked against its order
    ended: int | None = field(metadata={"check": optional(int_in(-INT64_MAX, INT64_MAX))})
    lanes: int = field(metadata={"check": int_in(1, MAX_LANES)})
    limit: int | None = field(metadata={"check": optional(int_in(0, INT64_MAX))})
    tail: str = field(metadata={"check": TEXT})
    dataset: str = field(metadata={"check": TEXT})
    sampler: str = field(metadata={"check": TEXT})
    num_shards: int | None = field(metadata={"check": optional(int_in(1, INT64_MAX))})
    unit: str = field(default="samples", metadata={"check": TEXT})
    sections: Mapping[str, Section] = field(default_factory=dict, metadata={"check": _SECTIONS})

    @property
    def place(self) -> Place:
        """Where the run is."""
        return Place(self.epoch, self.position, self.ended)

    @property
    def fingerprint(self) -> str:
        """The short name of the orders of all epochs of the run: two runs with one name read by the same.

        It is not part of a state: it follows from the fields of one. Neither ranks nor batch sizes are in it.
        """
        parts = [self.algorithm, list(self.seed), self.dataset, self.sampler, self.lanes, self.limit]
        if "ledger" in self.sections:
            parts.append(self.sections["ledger"]["all"])
        return digest("order", json.dumps(parts))[:_FINGERPRINT_DIGITS]

    def to_dict(self) -> dict[str, Any]:
        """Returns the state as JSON values, with the schema and a checksum."""
        # The run may keep the sections: a change of the saved state must not change what is read next.
        sections = {name: dict(section) for name, section in self.sections.items()}
        values = {"schema": SCHEMA, **vars(self), "seed": list(self.seed), "sections": sections}
        return {_KEYWORD: "loader", **values, "checksum": _checksum(values)}

    @classmethod
    def from_dict(cls, saved: Any) -> State:
        """Reads a saved state.

        Raises:
            StateError: it is not a state of a loader, damaged, or of a newer schema; or a field holds what no
                run saves.
        """
        if not isinstance(saved, Mapping) or not _is_text(saved.get(_KEYWORD), "loader"):
            raise StateError("state", "is not the state of a samplerkit loader", saved)
        values = {name: value for name, value in saved.items() if name not in (_KEYWORD, "checksum")}
        schema = values.pop("schema", None)
        if type(schema) is not int or schema != SCHEMA:
            problem = "is not known to this version"
            raise StateError("schema", problem, schema, SCHEMA, hint="update samplerkit")
        require_fields("state", values, checks_of(cls))
        checksum = saved.get("checksum")
        if not _is_text(checksum, _checksum({"schema": schema, **values})):
            problem = "does not fit: the state is damaged or was edited"
            raise StateError("checksum", problem, checksum, hint="take an older checkpoint")
        if values["ended"] is not None and values["position"]:
            raise StateError("ended", "must be None in mid-epoch", values["ended"])
        return cls(**{**values, "seed": tuple(values["seed"])})

    def require_equal(self, current: State, allow: Collection[str] | None = None) -> None:
        """Compares the fields that identify a run; allowed differences are logged.

        Args:
            current: the state of the run that loads this one.
            allow: names of fields that may differ; None for a reader that has no such argument.

        Raises:
            ArgumentTypeError: `allow` is not a collection.
            ArgumentValueError: `allow` names a field that is not compared.
            StateError: a field differs; it names the field, the saved and the current value. Or this run does
                not read a section, without which the position means nothing.
        """
        allowed = () if allow is None else allow
        if isinstance(allowed, str) or not (isinstance(allowed, Collection) and is_iterable(allowed)):
            raise ArgumentTypeError("allow", "must be a set of field names", allow)
        for name in allowed:
            if name not in COMPARED:
                raise ArgumentValueError("allow", "is not a field that is compared", name)
        for name in self.differing(current):
            cost = f"the epoch resumes at position {self.position} of a different order, which may skip and "
            cost += f"repeat up to {self.position} {self.unit}"
            cost = "the order is the same" if name == "tail" else cost
            if name in allowed:
                _LOG.warning("state: %s differs, and is allowed: %s", name, cost)
                continue
            hint = "make it as it was when the state was saved"
            hint = hint if allow is None else f'if this is meant, use allow={{"{name}"}}: {cost}'
            raise mismatch(name, getattr(self, name), getattr(current, name), hint)
        if self.unit != current.unit:
            how = "batches" if self.unit == "batches" else "batch_size"
            hint = f"make the loader with {how}=, as it was made when the state was saved"
            raise mismatch("unit", self.unit, current.unit, hint)
        for name in self.sections:
            if name not in {*_COMMON_SECTIONS, *current.sections}:
                problem = "is a section of the state that this run does not read"
                hint = "make the run as it was when the state was saved, or update samplerkit"
                raise StateError(name, problem, self.sections[name], hint=hint)

    def differing(self, current: State) -> list[str]:
        """Returns the names of the compared fields that differ from another state."""
        return [name for name in COMPARED if getattr(self, name) != getattr(current, name)]


def mismatch(name: str, saved: Any, current: Any, hint: str) -> StateError:
    """Returns the error of a value that differs from the saved state."""
    return StateError(name, "differs from the saved state", saved, current, hint=hint)


def _is_text(value: Any, text: str) -> bool:
    """Compares with any object, also an array."""
    return isinstance(value, str) and value == text


def _checksum(values: Mapping[str, Any]) -> str:
    return digest(_WRITER.encode(values))


MAX_STRETCHES = 64
"""The most stretches in a state; older ones are only counted, so that it stays below 4 KB."""

READ_SECTION = "read"
"""The name of the section of a state that has the past."""

_STRETCH = list_of(int_in(-INT64_MAX, INT64_MAX), 4)


class EpochsRead(NamedTuple):
    """One stretch of what was read: the same part of some successive epochs.

    Args:
        epoch: the first of the epochs.
        epochs: how many.
        begin: the position at which it begins in each, in units of the run.
        end: the position at which it ends. As epochs may have different lengths, -G is the end of the last
            whole step of G units in each, and so -1 the end of each epoch.
    """

    epoch: int
    epochs: int
    begin: int
    end: int

    def end_in(self, total: int) -> int:
        """Returns the position at which it ends in an epoch of so many units."""
        return self.end if self.end >= 0 else total - (total - self.begin) % -self.end

    @property
    def reached(self) -> tuple[int, int]:
        """The epoch and the position up to which all was read or left out; the next epoch after its end."""
        last = self.epoch + self.epochs - 1
        return (last, self.end) if self.end >= 0 else (last + 1, 0)

    def joined(self, later: EpochsRead) -> EpochsRead | None:
        """Returns both as one stretch; None where they are not one."""
        if (later.begin, later.end) == (self.begin, self.end) and later.epoch == self.epoch + self.epochs:
            return self._replace(epochs=self.epochs + later.epochs)
        is_one_epoch = self.epochs == later.epochs == 1 and self.epoch == later.epoch
        # Whole steps end at the same place if they are counted from the beginning of the epoch.
        has_same_end = later.end >= 0 or later.begin % -later.end == 0
        if is_one_epoch and self.end == later.begin and has_same_end:
            return self._replace(end=later.end)
        return None


@dataclass(frozen=True)
class Past:
    """What was read, in the order in which it was read.

    Args:
        stretches: at most 64, in the order in which they were read.
        older: how many epochs, or parts of one, were read before, of which nothing else is known.

    Example:
        >>> past = Past()
        >>> for stretch in (EpochsRead(0, 1, 0, -1), EpochsRead(1, 1, 0, 40), EpochsRead(1, 1, 40, -1)):
        ...     past = past.then(stretch)
        >>> past.stretches
        (EpochsRead(epoch=0, epochs=2, begin=0, end=-1),)
    """

    stretches: tuple[EpochsRead, ...] = field(default=(), metadata={"check": list_of(_STRETCH)})
    older: int = field(default=0, metadata={"check": int_in(0, INT64_MAX)})

    def then(self, stretch: EpochsRead) -> Past:
        """Returns the past after one stretch more."""
        if stretch.end == stretch.begin:
            return self
        *before, last = self.stretches or (None,)
        if last is not None and (joined := last.joined(stretch)) is not None:
            # A stretch that is now a whole epoch may continue the epochs before it.
            return Past(tuple(before), self.older).then(joined)
        stretches = (*self.stretches, stretch)
        forgotten, stretches = stretches[:-MAX_STRETCHES], stretches[-MAX_STRETCHES:]
        return Past(stretches, self.older + sum(old.epochs for old in forgotten))

    def forgotten(self) -> Past:
        """Returns the past of a run that reads other samples at the same positions."""
        return Past((), self.older + sum(part.epochs for part in self.stretches))

    def rescaled(self, multiple: int, before: int, after: int) -> Past:
        """Returns the past in units of another size, without stretches that cannot be expressed in these.

        Args:
            multiple: the units between two positions at which both sizes have read the same.
            before: how many of the units make as many samples as `after` of the new ones.
            after: likewise.
        """
        past = Past((), self.older)
        for part in self.stretches:
            if part.begin % multiple or (part.end != -1 and (part.end < 0 or part.end % multiple)):
                past = Past((*past.stretches, part), past.older).forgotten()
                continue
            end = -1 if part.end == -1 else part.end * after // before
            past = past.then(part._replace(begin=part.begin * after // before, end=end))
        return past

    def saved(self) -> dict[str, Section]:
        """Returns the section of a state: JSON values, under 3 KB."""
        return {READ_SECTION: {"stretches": [list(part) for part in self.stretches], "older": self.older}}

    def in_state(self, state: State) -> State:
        """Returns a state with this past."""
        return replace(state, sections={**state.sections, **self.saved()})

    @classmethod
    def of(cls, state: State) -> Past:
        """Reads the section of a state; without it, as in states of torch's samplers, nothing is known.

        Raises:
            StateError: it holds what no run saves.
        """
        if (saved := state.sections.get(READ_SECTION)) is None:
            return cls((), state.epoch + (state.position > 0))
        require_fields(READ_SECTION, saved, checks_of(cls))
        stretches = tuple(EpochsRead(*part) for part in saved["stretches"])
        for part in stretches:
            are_epochs = 0 <= part.epoch < part.epoch + part.epochs <= INT64_MAX
            if not are_epochs or part.begin < 0 or 0 <= part.end <= part.begin:
                raise StateError(READ_SECTION, "has a stretch that no run reads", list(part))
        # At the beginning of an epoch another one may have been read last.
        if state.position and stretches and stretches[-1].reached != (state.epoch, state.position):
            last, problem = list(stretches[-1]), "does not end where the state is"
            raise StateError(READ_SECTION, problem, last, state.place[:2])
        return cls(stretches, saved["older"])
