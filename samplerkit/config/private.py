"""What an error may show of a value in a config: no storage options, no query of a URL, no credentials."""

from __future__ import annotations

import re
from typing import Any, final

from samplerkit.config.place import meant
from samplerkit.storage.remote.location import is_remote, shown

PUBLIC_SECTIONS = frozenset({"sampler", "loader", "min_quality"})
"""Sections that hold nothing private."""

PRIVATE = ("storage_options", "digests")
"""Keys below which nothing is shown, nor below keys that were meant to be one of these."""


@final
class _Hidden:
    """Stands for what is not shown."""

    def __repr__(self) -> str:
        return "..."


HIDDEN = _Hidden()


def public(place: str, value: Any) -> Any:
    """Gives what may be shown of a value.

    Args:
        place: the path of its key.
        value: plain data.

    Returns:
        The value; of a mapping its keys only, of a URL what is no secret, and three dots for all below
        `storage_options` or what looks like it. What stands in the sampler's and the loader's sections is
        shown as it is.

    Example:
        >>> public("dataset.remote", {"cache": "/a"}), public("dataset.url", "https://user:word@host/a?sign=1")
        ({'cache': ...}, 'https://host/a')
        >>> public("dataset.remote.storage_option", "secret"), public("dataset.remote.timeout", -1)
        (..., -1)
    """
    keys = re.split(r"[.\[]", place)
    if keys[0] in PUBLIC_SECTIONS:
        return value
    if any(meant(key, PRIVATE).startswith("did you mean") for key in keys):
        return HIDDEN
    return _shown(value)


def _shown(value: Any) -> Any:
    if isinstance(value, dict):
        return dict.fromkeys(value, HIDDEN)
    if isinstance(value, list):
        return [_shown(entry) for entry in value]
    return shown(value) if isinstance(value, str) and is_remote(value) else value
