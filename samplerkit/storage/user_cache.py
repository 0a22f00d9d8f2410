"""Where what can be made again is kept: never among the user's data unless that is asked for."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def user_cache_folder() -> Path:
    """Gives samplerkit's folder in the user's cache folder.

    Source: the XDG Base Directory Specification.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    if Path(base).is_absolute():
        return Path(base) / "samplerkit"
    try:
        return Path.home() / ".cache" / "samplerkit"
    except RuntimeError:  # no home folder is known
        return Path(tempfile.gettempdir()) / f"samplerkit-{os.getuid()}"
