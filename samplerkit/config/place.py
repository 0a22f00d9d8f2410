"""Where a value stands in a config, and what a wrong name was meant to be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]{0,59}", re.ASCII)
_LONGEST_KEY = 60
_MOST_NAMES = 12


def below(place: str, *keys: Any) -> str:
    """Gives the path of a key or an entry below a place.

    Example:
        >>> below("sampler", "child", "weights", 3), below("sampler", "two words")
        ('sampler.child.weights[3]', "sampler['two words']")
    """
    for key in keys:
        if isinstance(key, str) and _PLAIN_KEY.fullmatch(key):
            place = f"{place}.{key}" if place else key
            continue
        shown = repr(key)
        place += f"[{shown if len(shown) <= _LONGEST_KEY else shown[: _LONGEST_KEY - 3] + '...'}]"
    return place


def meant(wrong: Any, names: Iterable[str]) -> str:
    """Says which of the names a wrong one was meant to be, or else which there are.

    Example:
        >>> meant("randon", ["random", "subset"]), meant("x", ["random", "subset"])
        ('did you mean random?', 'known: random, subset')
    """
    known = list(names)
    # Names that differ in upper and lower case only are close as well.
    lower = {name.lower(): name for name in reversed(known)}
    close = get_close_matches(wrong.lower(), lower, n=1) if isinstance(wrong, str) else []
    if close:
        return f"did you mean {lower[close[0]]}?"
    more = ", ..." if len(known) > _MOST_NAMES else ""
    return f"known: {', '.join(known[:_MOST_NAMES])}{more}"
