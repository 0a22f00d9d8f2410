"""What an error may show of a value in a config: the one place that hides passwords and tokens."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from samplerkit.config.place import meant
from samplerkit.config.telling import told

PRIVATE = ("storage_options", "digests")
"""Keys below which nothing is shown, nor below keys that were meant to be one of these."""

_SECRETS = re.compile(
    r"pass(word|wd|phrase)?$|pwd|secret|token|auth|credential|signature|account|(^|_)(key|keys|user|login)(_|$)",
    re.IGNORECASE,
)
"""Names of what is private, wherever it stands."""

_SECTIONS = ("remote",)
"""Sections that hold what is private: a text in place of one is likely to be it."""

_MOST_ENTRIES = 120
_SHORTEST_SECRET = 3


@final
class _Hidden:
    """Stands for what is not shown."""

    def __repr__(self) -> str:
        return "..."


HIDDEN = _Hidden()


def public(place: str, value: Any, *, shows_text: bool = True) -> Any:
    """Gives what may be shown of a value, in whatever section it stands.

    Args:
        place: the path of its key.
        value: plain data.
        shows_text: whether texts may be shown at all; not where nobody knows what the key means.

    Returns:
        Numbers, and texts that are words, numbers or paths; of a URL what is no secret, of a mapping its
        keys and numbers; and three dots for all else, and for all below `storage_options` or what looks
        like it, or is called like a password.

    Example:
        >>> public("dataset.remote", {"cache": "/a"}), public("sampler.indices", "https://user:word@host/a?b")
        ({'cache': ...}, 'https://host/a')
        >>> public("loader.storage_option", "hidden"), public("dataset.remote.timeout", -1)
        (..., -1)
    """
    keys = [key for key in re.split(r"[.\[\]']+", place) if key]
    if any(_is_private(key) for key in keys):
        return HIDDEN
    return _shown(value, shows_text and keys[-1:] != [*_SECTIONS])


def resembling(place: str, value: Any, hint: str) -> Any:
    """Gives what may be shown of a value that was to be one of some names: all, if it resembles one.

    Args:
        place: the path of its key.
        value: plain data.
        hint: what `meant` says of it.
    """
    return value if hint.startswith("did you mean") and isinstance(value, str) else public(place, value)


def scrubbed(text: str, section: Any) -> str:
    """Takes out of a foreign text, such as the message of an exception, what must not be shown of a section.

    Example:
        >>> scrubbed("cannot reach s3cr3t@host", {"address": "s3cr3t@host"})
        'cannot reach ...'
    """
    hidden = {
        part for whole in _texts(section) if told(whole) != whole for part in (whole, repr(whole)[1:-1])
    }
    for secret in sorted(hidden, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "...")
    return text


def _is_private(key: str) -> bool:
    return bool(_SECRETS.search(key)) or meant(key, PRIVATE).startswith("did you mean")


def _shown(value: Any, shows_text: bool) -> Any:
    if isinstance(value, str | bytes):
        text = value if isinstance(value, str) else value.decode("latin-1")
        found = told(text) if shows_text else None
        return HIDDEN if found is None else value if found == text else found
    if isinstance(value, dict):
        return {_key(key): _of_mapping(key, entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_shown(entry, shows_text) for entry in value[:_MOST_ENTRIES])
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "biuf" else HIDDEN
    plain = isinstance(value, int | float | complex | dt.date | dt.time | _Hidden | type(None))
    return value if plain else f"<{type(value).__name__}>"


def _key(key: Any) -> Any:
    return (
        HIDDEN if isinstance(key, str) and told(key) is None else told(key) if isinstance(key, str) else key
    )


def _of_mapping(key: Any, value: Any) -> Any:
    if key == "kind" and isinstance(value, str):
        return _shown(value, shows_text=True)
    is_number = isinstance(value, int | float | type(None))
    return value if is_number and not (isinstance(key, str) and _is_private(key)) else HIDDEN


def _texts(section: Any) -> Iterator[str]:
    waiting = [section]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            waiting += value
