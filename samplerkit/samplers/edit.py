"""An edit of a run: what is said of the order from one position on, as a value, and digests of many."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

import numpy as np

from samplerkit.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError
from samplerkit.order import arguments
from samplerkit.order.arguments import LARGEST
from samplerkit.order.once import once
from samplerkit.order.typing import Ids

_DIGEST_BYTES = 8


@final
@dataclass(frozen=True, eq=False)
class Edit:
    """What becomes different in a run from a position on. The order before that position stays as it was.

    A position of a run counts samples: in epoch e of N samples, position p is e * N + p.

    Args:
        at: the position.
        weights: the shares of the sources of a mixture from there on, by their names; all of them.
        skip: so many positions leave, and the rest of each lane moves up. What is skipped counts as drawn.
        without: the ids that are not read any more.
        source: the name of a part of the dataset that the mixture reads too from there on; `weights` say how
            much.
        global_batch: the samples of all ranks in each step that begins there or behind it.

    Raises:
        ArgumentTypeError: an argument has the wrong type.
        ArgumentRangeError: a number is negative or too large, or a weight is no share.
        ArgumentValueError: the edit says nothing, or `source` comes without weights.

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
    source: str | None = None
    global_batch: int | None = None

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {"at": arguments.at_least("at", self.at, 0)}
        if checked["at"] > LARGEST:
            raise ArgumentRangeError("at", "must be at most 2^62", self.at)
        for name, check in _CHECKS.items():
            if getattr(self, name) is not None:
                checked[name] = check(getattr(self, name))
        if len(checked) == 1:
            raise ArgumentValueError(
                "edit", "says nothing but where", self.at, mend="say for instance skip=8192"
            )
        if checked["at"] + checked.get("skip", 0) > LARGEST:
            raise ArgumentRangeError("skip", "leads beyond the last position, 2^62", self.skip)
        if "source" in checked and checked["source"] not in checked.get("weights", {}):
            mend = "say weights= too, of all sources"
            raise ArgumentValueError("source", "comes without a share", self.source, mend=mend)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def said(self) -> dict[str, Any]:
        """The arguments that are given, by name, as plain data: JSON, or a section of a config."""
        said = {name: getattr(self, name) for name in self.__dataclass_fields__}
        if self.weights is not None:
            said["weights"] = dict(self.weights)
        if isinstance(self.without, np.ndarray):
            said["without"] = self.without.tolist()
        return {name: value for name, value in said.items() if value is not None}

    @once
    def digest(self) -> str:
        """16 hexadecimal digits of what is said."""
        return _digest(json.dumps(self.said, sort_keys=True))

    def __eq__(self, other: object) -> bool:
        return self.said == other.said if isinstance(other, Edit) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        said = self.said
        if isinstance(self.without, np.ndarray) and self.without.size > 6:
            said["without"] = f"<{self.without.size} ids>"
        return f"Edit({', '.join(f'{name}={value}' for name, value in said.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _edit, (self.said,)


def _edit(said: dict[str, Any]) -> Edit:
    return Edit(**said)


def checked_edits(edits: Any) -> tuple[Edit, ...]:
    """Takes edits in the order of their positions.

    Raises:
        ArgumentTypeError: no list, or one of something else.
        ArgumentValueError: an edit lies before the one that stands ahead of it.
    """
    if isinstance(edits, Edit | str | bytes | Mapping) or not hasattr(edits, "__iter__"):
        raise ArgumentTypeError("edits", "must be a list of edits", edits)
    listed = tuple(edits)
    for number, edit in enumerate(listed):
        if not isinstance(edit, Edit):
            raise ArgumentTypeError(f"edits[{number}]", "must be an Edit", edit)
    for number, (before, edit) in enumerate(pairwise(listed), 1):
        if edit.at < before.at:
            problem = f"lies before the edit ahead of it, at {before.at}"
            mend = "edits stand in the order of their positions"
            raise ArgumentValueError(f"edits[{number}].at", problem, edit.at, mend=mend)
    return listed


def chained(edits: Sequence[Edit]) -> list[str]:
    """Gives the digests of the first 0, 1, 2 ... edits: each follows from the one before and one edit.

    Example:
        >>> first, second = Edit(at=5, skip=1), Edit(at=9, skip=1)
        >>> chained([first, second])[:2] == chained([first]), chained([second])[1] == chained([first])[1]
        (True, False)
    """
    return list(accumulate((edit.digest for edit in edits), _digest, initial=_digest("edits")))


def lines_of(edits: Sequence[Edit]) -> str:
    """Gives the text of a file of edits: JSON, one a line."""
    return "".join(json.dumps(edit.said) + "\n" for edit in edits)


def edits_in(path: str | os.PathLike[str]) -> tuple[Edit, ...]:
    """Reads a file of edits; one that is not there holds none.

    Raises:
        ArgumentValueError: it cannot be read, or a line is no edit.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as error:
        raise ArgumentValueError("edits_file", f"cannot be read ({error})", os.fspath(path)) from None
    edits = []
    for number, line in enumerate(lines, 1):
        try:
            edits.append(Edit(**json.loads(line)))
        except (ValueError, TypeError, RuntimeError) as error:
            problem = f"holds no edit in line {number} ({error})"
            raise ArgumentValueError("edits_file", problem, os.fspath(path)) from None
    return checked_edits(edits)


def _digest(*texts: str) -> str:
    state = hashlib.blake2b("\n".join(texts).encode(), digest_size=_DIGEST_BYTES, person=b"samplerkit")
    return state.hexdigest()


def _shares(weights: Any) -> Mapping[str, float]:
    if not isinstance(weights, Mapping) or not all(isinstance(name, str) for name in weights):
        raise ArgumentTypeError("weights", "must be shares by the names of sources", weights)
    checked = arguments.weights(list(weights.values())).tolist()
    return MappingProxyType(dict(zip(weights, checked, strict=True)))


def _ids(without: Any) -> Ids:
    ids = np.unique(arguments.indices(without, "without"))
    ids.flags.writeable = False
    return ids


_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "weights": _shares,
    "skip": partial(arguments.positive, "skip"),
    "without": _ids,
    "source": partial(arguments.word, "source"),
    "global_batch": partial(arguments.positive, "global_batch"),
}
