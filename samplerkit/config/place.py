"""Where a value stands in a config, and what a wrong name was meant to be."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from samplerkit.config.telling import told

_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]{0,59}", re.ASCII)
_LONGEST_KEY = 60
_MOST_NAMES = 12


def below(place: str, *keys: Any) -> str:
    """Gives the path of a key or an entry below a place; of a key that may be a secret three dots.

    Example:
        >>> below("sampler", "child", "weights", 3), below("sampler", "two words"), below("remote", "s3cr3t")
        ('sampler.child.weights[3]', "sampler['two words']", 'remote[...]')
    """
    for key in keys:
        text = told(key) if isinstance(key, str) else None
        if text is not None and _PLAIN_KEY.fullmatch(text):
            place = f"{place}.{text}" if place else text
            continue
        shown = "..." if isinstance(key, str) and text is None else repr(key if text is None else text)
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
