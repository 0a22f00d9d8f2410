"""An edit of a run: a change of the order from one position on, as a value, and digests of many."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

import numpy as np

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError
from samplerkit.order import arguments
from samplerkit.order.caching import cached_property
from samplerkit.order.typing import Ids
from samplerkit.samplers.base import Sampler, from_plain, plain
from samplerkit.samplers.mixing.sources import require_source

_DIGEST_BYTES = 8


@final
@dataclass(frozen=True, eq=False)
class Edit:
    """A change of a run from a position on. The order before that position does not change.

    A position of a run counts samples: in epoch e of N samples, position p is e * N + p.

    Args:
        at: the position.
        weights: the shares of the sources of a mixture from there on, by their names; all of them.
        skip: how many positions are removed; the rest of each lane moves up. Skipped samples count as drawn.
        without: the ids that are not read any more.
        source: the name of a part of the dataset that the mixture reads too from there on; or parts by name,
            each with the sampler that reads it, None for all of its samples. `weights` say how much.
        global_batch: the samples of all ranks in each step that begins there or later.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is negative or too large, or a weight is no share.
        ArgumentValueError: the edit says nothing, or `source` comes without weights.
        CompositionError: a sampler of `source` is distributed, a ledger, or of an algorithm that replays
            another package.
        NotSupportedError: an argument of a sampler of `source` is no plain value.

    Example:
        >>> Edit(at=1000, skip=20)
        Edit(at=1000, skip=20)
        >>> Edit(at=1000, weights={"web": 1, "code": 3}) == Edit(at=1000, weights={"web": 1.0, "code": 3.0})
        True
    """

    at: int
    weights: Mapping[str, float] | None = None
    skip: int | None = None
    without: Sequence[int] | np.ndarray[Any, Any] | None = None
    source: str | Mapping[str, Sampler | None] | None = None
    global_batch: int | None = None

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {"at": arguments.at_least("at", self.at, 0)}
        if checked["at"] > arguments.LARGEST:
            raise ArgumentRangeError("at", "must be at most 2^62", self.at)
        for name, check in _CHECKS.items():
            given = getattr(self, name)
            if given is not None:
                checked[name] = check(given)
        if len(checked) == 1:
            hint = "use for instance skip=8192"
            raise ArgumentValueError("edit", "has a position but no change", self.at, hint=hint)
        if checked["at"] + checked.get("skip", 0) > arguments.LARGEST:
            raise ArgumentRangeError("skip", "leads beyond the last position, 2^62", self.skip)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        for name in self.new_sources:
            if name not in checked.get("weights", {}):
                hint = "use weights= too, of all sources"
                raise ArgumentValueError("source", "is given without a share", name, hint=hint)

    @property
    def new_sources(self) -> dict[str, Sampler | None]:
        """The parts that are read too, and the sampler of each; None for all of its samples."""
        if self.source is None:
            return {}
        return {self.source: None} if isinstance(self.source, str) else dict(self.source)

    @property
    def fields(self) -> dict[str, Any]:
        """The arguments that are given, by name, as plain data: a line of JSON."""
        return {name: plain(value, name) for name, value in self._given().items()}

    def _given(self) -> dict[str, Any]:
        given = {name: getattr(self, name) for name in self.__dataclass_fields__}
        pairs = ((name, value) for name, value in given.items() if value is not None)
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in pairs}

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits of its arguments."""
        return _digest(json.dumps(self.fields, sort_keys=True))

    def __eq__(self, other: object) -> bool:
        return self.fields == other.fields if isinstance(other, Edit) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        fields = self._given()
        if isinstance(self.without, np.ndarray):
            ids = self.without
            fields["without"] = f"<{ids.size} ids>" if ids.size > 6 else ids.tolist()
        return f"Edit({', '.join(f'{name}={value}' for name, value in fields.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Edit, **self._given()), ()


def checked_edits(edits: Any) -> tuple[Edit, ...]:
    """Takes edits in the order of their positions.

    Raises:
        ArgumentTypeError: no list, or one of something else.
        ArgumentValueError: an edit is before the previous one, or says again what holds from its position on.
    """
    if isinstance(edits, Edit | str | bytes | Mapping) or not arguments.is_iterable(edits):
        raise ArgumentTypeError("edits", "must be a list of edits", edits)
    listed, set_by = tuple(edits), dict[tuple[int, str], int]()
    for number, edit in enumerate(listed):
        if not isinstance(edit, Edit):
            raise ArgumentTypeError(f"edits[{number}]", "must be an Edit", edit)
        before = listed[max(0, number - 1)]
        if edit.at < before.at:
            problem = f"is before the previous edit, at {before.at}"
            hint = "edits are in the order of their positions"
            raise ArgumentValueError(f"edits[{number}].at", problem, edit.at, hint=hint)
        # Skips at one position add up, and so do removed ids; of these arguments only the last one would
        # count.
        for name in ("weights", "global_batch"):
            value = getattr(edit, name)
            first = number if value is None else set_by.setdefault((edit.at, name), number)
            if first != number:
                problem = f"is set at position {edit.at} by edits[{first}] already"
                hint = "give it once at each position"
                raise ArgumentValueError(f"edits[{number}].{name}", problem, value, hint=hint)
    return listed


def chained(edits: Sequence[Edit]) -> list[str]:
    """Returns the digests of the first 0, 1, 2 ... edits: each is made from the previous one and one edit.

    Example:
        >>> first, second = Edit(at=5, skip=1), Edit(at=9, skip=1)
        >>> chained([first, second])[:2] == chained([first]), chained([second])[1] == chained([first])[1]
        (True, False)
    """
    return list(accumulate((edit.digest for edit in edits), _digest, initial=_digest("edits")))


def to_lines(edits: Sequence[Edit]) -> str:
    """Returns the text of a file of edits: JSON, one a line."""
    return "".join(json.dumps(edit.fields) + "\n" for edit in edits)


def edit_from_fields(fields: dict[str, Any]) -> Edit:
    """Makes an edit from the data that `Edit.fields` gives.

    Raises:
        ArgumentValueError: a sampler in it is not samplerkit's own; and what the constructor raises.
    """
    return Edit(**{name: from_plain(value) for name, value in fields.items()})


def read_edits(path: str | os.PathLike[str]) -> tuple[Edit, ...]:
    """Reads a file of edits; a missing file holds none.

    Raises:
        ArgumentValueError: it cannot be read, or a line is no edit.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ()
    except TypeError:
        raise ArgumentTypeError("edits_file", "must be a path", path) from None
    except (OSError, ValueError) as error:
        raise ArgumentValueError("edits_file", f"cannot be read ({error})", os.fspath(path)) from None
    edits = []
    for number, line in enumerate(lines, 1):
        try:
            edits.append(edit_from_fields(json.loads(line)))
        except (ValueError, TypeError, RuntimeError, AttributeError) as error:
            problem = f"holds no edit in line {number} ({error})"
            hint = "write one edit a line, as JSON, or take the line out if the run never made that edit"
            raise ArgumentValueError("edits_file", problem, os.fspath(path), hint=hint) from None
    return checked_edits(edits)


def _digest(*texts: str) -> str:
    state = hashlib.blake2b("\n".join(texts).encode(), digest_size=_DIGEST_BYTES, person=b"samplerkit")
    return state.hexdigest()


def _shares(weights: Any) -> Mapping[str, float]:
    if not isinstance(weights, Mapping) or not all(isinstance(name, str) for name in weights):
        raise ArgumentTypeError("weights", "must be shares by the names of sources", weights)
    checked = arguments.weights("weights", list(weights.values())).tolist()
    return MappingProxyType(dict(zip(weights, checked, strict=True)))


def _ids(without: Any) -> Ids:
    ids = np.unique(arguments.indices("without", without))
    ids.flags.writeable = False
    return ids


def _source(given: Any) -> str | Mapping[str, Sampler | None]:
    if not isinstance(given, Mapping):
        return arguments.word("source", given)
    if not given:
        raise ArgumentValueError("source", "must not be empty", given)
    for name, sampler in given.items():
        place = f"source.{arguments.word('source', name)}"
        require_source(place, sampler)
        plain(sampler, place)
    (first, sampler), *more = given.items()
    return first if sampler is None and not more else MappingProxyType(dict(given))


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "weights": _shares,
    "skip": partial(arguments.positive, "skip"),
    "without": _ids,
    "source": _source,
    "global_batch": partial(arguments.positive, "global_batch"),
}
