"""Corpora of tokens."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import samplerkit as sk


def write_tokens(prefix: str | Path, documents: Iterable[Any], dtype: str = "uint16") -> str:
    """Writes documents into one file and its index; returns the prefix of both."""
    with sk.TokenWriter(prefix, dtype, overwrite=True) as writer:
        for document in documents:
            writer.write(document)
    return str(prefix)
