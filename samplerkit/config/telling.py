"""Which texts of a config an error may repeat: words, numbers and paths, and nothing like a token."""

from __future__ import annotations

import re

from samplerkit.storage.urls import is_remote, shown

_SEPARATORS = re.compile(r"[\s_\-./\\,:*!<>{}\[\]]+")
_PART = re.compile(r"[A-Za-z]{0,24}\d{0,2}|\d+")
_PATH = re.compile(r"[\w\s\-./\\,*~+{}\[\]]*\.[A-Za-z]\w{0,6}", re.ASCII)
_LONGEST_IN_CAPITALS = 3


def is_telling(text: str) -> bool:
    """Tells a text that is made of words and numbers, or is a path, from one that may be a secret.

    Digits inside of words, long words, words in capitals and the signs of URLs and encodings are not
    repeated. It is a guess: a password that is a small word is one that passes.

    Example:
        >>> [is_telling(text) for text in ("randon", "1e6", "/data/keep.npy", "samplerkit.PKSampler")]
        [True, True, True, True]
        >>> [is_telling(text) for text in ("AKIA7Q2", "s3cr3t", "me:word@host", "SECRET", "pipe:curl a")]
        [False, False, False, False, False]
    """
    if _is_number(text):
        return True
    if text.startswith("pipe:") or "://" in text:
        return False
    if _PATH.fullmatch(text):
        return True
    letters = [sign for sign in text if sign.isalpha()]
    if len(letters) > _LONGEST_IN_CAPITALS and not any(sign.islower() for sign in letters):
        return False
    return all(_PART.fullmatch(part) for part in _SEPARATORS.split(text))


def told(text: str) -> str | None:
    """Gives what may be repeated of a text: itself, of a URL what is no secret, or None.

    Example:
        >>> told("randon"), told("https://user:word@host/a?sign=1"), told("s3cr3t")
        ('randon', 'https://host/a', None)
    """
    if is_remote(text):
        return shown(text)
    return text if is_telling(text) else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
