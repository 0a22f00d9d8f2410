"""An edit of a run: a change of the order from one position on, as a value, and digests of many."""

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
from samplerkit.samplers.base import Sampler, from_plain, plain, shown
from samplerkit.samplers.mixing.sources import checked_sources, named_weights

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
        ArgumentRangeError: a number is negative or too large, or a weight is not a share.
        ArgumentValueError: the edit says nothing, or `source` comes without weights.
        CompositionError: a sampler of `source` is distributed, a ledger, or of an algorithm that replays
            another package.
        NotSupportedError: an argument of a sampler of `source` is not a plain value.

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
        given = {"at": self.at, **self._given()}
        for name, value in given.items():
            object.__setattr__(self, name, _CHECKS[name](name, value))
        if len(given) == 1:
            hint = "use for instance skip=8192"
            raise ArgumentValueError("edit", "has a position but no change", self.at, hint=hint)
        if self.at + (self.skip or 0) > arguments.LARGEST:
            place = "at" if self.at > arguments.LARGEST else "skip"
            raise ArgumentRangeError(place, "leads beyond the last position, 2^62", given[place])
        for name in self.new_sources:
            if name not in (self.weights or {}):
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
        given = {name: getattr(self, name) for name in _CHECKS if getattr(self, name) is not None}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in given.items()}

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits of its arguments."""
        return _digest(json.dumps(self.fields, sort_keys=True))

    def __eq__(self, other: object) -> bool:
        return self.fields == other.fields if isinstance(other, Edit) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Edit({', '.join(f'{name}={shown(value)}' for name, value in self._given().items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Edit, **self._given()), ()


def checked_edits(edits: Any) -> tuple[Edit, ...]:
    """Validates edits, which must be in the order of their positions.

    Raises:
        ArgumentTypeError: no list, or one of something else.
        ArgumentValueError: an edit is before the previous one, or two at one position set the same field.
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
        ArgumentValueError: it cannot be read, or a line is not an edit.
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


def _shares(place: str, weights: Any) -> Mapping[str, float]:
    if not isinstance(weights, Mapping) or not all(isinstance(name, str) for name in weights):
        raise ArgumentTypeError(place, "must be shares by the names of sources", weights)
    return MappingProxyType(named_weights(place, weights))


def _ids(place: str, without: Any) -> Ids:
    return arguments.read_only(np.unique(arguments.indices(place, without)))


def _source(place: str, given: Any) -> str | Mapping[str, Sampler | None]:
    if not isinstance(given, Mapping):
        return arguments.word(place, given)
    samplers = checked_sources(place, given)
    plain(samplers, place)
    (first, sampler), *more = samplers.items()
    return first if sampler is None and not more else MappingProxyType(samplers)


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "at": partial(arguments.at_least, least=0),
    "weights": _shares,
    "skip": arguments.positive,
    "without": _ids,
    "source": _source,
    "global_batch": arguments.positive,
}
