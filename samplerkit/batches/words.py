"""Recipes for batches in words, as states name them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

_LONGEST_WORDS = 160


def in_words(name: str, given: Mapping[str, Any]) -> str:
    """Writes a recipe with its arguments; a long one is cut, and told by its digest."""
    words = f"{name}({', '.join(f'{argument}={_word(value)}' for argument, value in given.items())})"
    return words if len(words) <= _LONGEST_WORDS else f"{words[:120]}... {short_digest(words.encode())}"


def is_same(value: Any, default: Any) -> bool:
    """Tells whether an argument is as by default."""
    return type(value) is type(default) and not isinstance(value, np.ndarray) and value == default


def _word(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"<{value.size} values, {short_digest(value.astype(value.dtype.newbyteorder('<')).tobytes())}>"
    if isinstance(value, partial) or callable(value):
        return getattr(value, "__qualname__", type(value).__qualname__)
    return repr(value)


def short_digest(content: bytes) -> str:
    """Gives a short digest."""
    return hashlib.blake2b(content, digest_size=8, person=b"samplerkit").hexdigest()
