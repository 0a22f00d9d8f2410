"""Makes one clear error from a mistake in a config, without showing secrets.

An error shows the path of the key, the name that was probably meant, and the value unless it may be secret.
All parts of a config that an error shows go through this module, for errors of pydantic, of a constructor
and of samplerkit.
"""

import datetime as dt
import math
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from enum import Enum
from typing import Any

import numpy as np
from pydantic import ValidationError

from samplerkit.errors import ConfigError, SamplerkitError
from samplerkit.storage.urls import is_remote, shown

_SEPARATORS = re.compile(r"[\s_\-./\\,:*!<>{}\[\]]+")
_PART = re.compile(r"[A-Za-z]{0,24}\d{0,2}|\d+")
_PATH = re.compile(r"[\w\s\-./\\,*~+{}\[\]]*\.[A-Za-z]\w{0,6}", re.ASCII)
_LONGEST_IN_CAPITALS = 3


def showable(text: str) -> str | None:
    """Returns what an error may show of a text: the text, a URL without its secret parts, or None.

    A text is shown if it consists of words and numbers, or is a path, since it is then unlikely to be a
    secret. Texts with digits inside words, long words, words in capitals, or characters of URLs and encodings
    are not shown. This is a heuristic: a password that is a short word is shown.

    Example:
        >>> showable("randon"), showable("1e6"), showable("https://user:word@host/a?sign=1")
        ('randon', '1e6', 'https://host/a')
        >>> {showable(text) for text in ("AKIA7Q2", "s3cr3t", "me:word@host", "SECRET", "pipe:curl a")}
        {None}
    """
    if is_remote(text):
        return shown(text)
    with suppress(ValueError):
        float(text)
        return text
    if text.startswith("pipe:") or "://" in text:
        return None
    if _PATH.fullmatch(text):
        return text
    if text.isupper() and sum(map(str.isalpha, text)) > _LONGEST_IN_CAPITALS:
        return None
    return text if all(_PART.fullmatch(part) for part in _SEPARATORS.split(text)) else None


_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]{0,59}", re.ASCII)
_LONGEST_KEY = 60
_MAX_NAMES = 12


def below(place: str, *keys: Any) -> str:
    """Returns the path of a key or an entry below a place, with `...` for a key that may be a secret.

    Example:
        >>> below("sampler", "child", "weights", 3), below("sampler", "two words"), below("remote", "s3cr3t")
        ('sampler.child.weights[3]', "sampler['two words']", 'remote[...]')
    """
    for key in keys:
        text = showable(key) if isinstance(key, str) else None
        if text is not None and _PLAIN_KEY.fullmatch(text):
            place = f"{place}.{text}" if place else text
            continue
        shown = "..." if isinstance(key, str) and text is None else repr(key if text is None else text)
        place += f"[{shown if len(shown) <= _LONGEST_KEY else shown[: _LONGEST_KEY - 3] + '...'}]"
    return place


def suggest(wrong: Any, names: Iterable[str]) -> str:
    """Returns a hint with the name that was probably meant, or else with the known names.

    Example:
        >>> suggest("randon", ["random", "subset"]), suggest("x", ["random", "subset"])
        ('did you mean random?', 'known: random, subset')
    """
    known = list(names)
    # Compared without case: names that differ only in case are close as well.
    lower = {name.lower(): name for name in reversed(known)}
    close = get_close_matches(wrong.lower(), lower, n=1) if isinstance(wrong, str) else []
    if close:
        return f"did you mean {lower[close[0]]}?"
    more = ", ..." if len(known) > _MAX_NAMES else ""
    return f"known: {', '.join(known[:_MAX_NAMES])}{more}"


_SECRETS = re.compile(
    r"option|digest|pass(word|wd|phrase)?$|pwd|secret|token|auth|credential|signature|account"
    r"|(^|_)(key|keys|user|login)(_|$)",
    re.IGNORECASE,
)
"""Names of keys whose values are private in any section, such as `storage_options`, `digests` and similar."""

_NO_SECRETS = re.compile(r"(batches\.(max_tokens|keys)|dataset\.(add_extra|pad)_token\w*)(\[|$)")
"""Keys that match `_SECRETS`, but are not private."""

_MAX_ENTRIES = 120
_SHORTEST_SECRET = 3


class _Hidden:
    """A placeholder for a value that is not shown."""

    def __repr__(self) -> str:
        return "..."


HIDDEN = _Hidden()


def public(place: str, value: Any, *, shows_text: bool = True) -> Any:
    """Returns what an error may show of a value, in any section.

    Args:
        place: the path of its key.
        value: plain data.
        shows_text: whether texts may be shown; False if the meaning of the key is unknown.

    Returns:
        Numbers; texts that are words, numbers or paths; URLs without their secret parts; and mappings with
        their keys and numbers. Everything else is `...`, and so are all values below a key that is similar to
        `storage_options` or named like a password.

    Example:
        >>> public("dataset.remote", {"cache": "/a"}), public("sampler.indices", "https://user:word@host/a?b")
        ({'cache': ...}, 'https://host/a')
        >>> public("loader.storage_option", "hidden"), public("dataset.remote.timeout", -1)
        (..., -1)
    """
    keys = [key for key in re.split(r"[.\[\]']+", place) if key]
    if any(map(_SECRETS.search, keys)) and not _NO_SECRETS.match(place):
        return HIDDEN
    # A text in place of a section with private values is probably one of them.
    return _shown(value, shows_text and keys[-1:] != ["remote"])


def scrub(text: str, section: Any) -> str:
    """Removes from a text, such as the message of an exception, the values of a section that may be secret.

    Example:
        >>> scrub("cannot reach s3cr3t@host", {"address": "s3cr3t@host"})
        'cannot reach ...'
    """
    hidden = {
        part for value in _texts(section) if showable(value) != value for part in (value, repr(value)[1:-1])
    }
    for secret in sorted(hidden, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "...")
    return text


def _shown(value: Any, shows_text: bool) -> Any:
    if isinstance(value, str | bytes):
        text = value if isinstance(value, str) else value.decode("latin-1")
        visible = showable(text) if shows_text else None
        return HIDDEN if visible is None else value if visible == text else visible
    if isinstance(value, dict):
        # Keys, numbers and the kind.
        return {
            _shown(key, True): HIDDEN if _SECRETS.search(str(key)) else _shown(entry, key == "kind")
            for key, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(_shown(entry, shows_text) for entry in value[:_MAX_ENTRIES])
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "biuf" else HIDDEN
    plain = isinstance(value, int | float | complex | dt.date | dt.time | _Hidden | type(None))
    return value if plain else f"<{type(value).__name__}>"


def _texts(section: Any) -> list[str]:
    if isinstance(section, str):
        return [section]
    if isinstance(section, dict):
        section = [*section, *section.values()]
    parts = section if isinstance(section, list | tuple) else ()
    return [text for part in parts for text in _texts(part)]


LONGEST_PROBLEM = 120
"""The most characters of a problem that contains a message of another package."""

_MAX_MEMBERS = 20


def require_mapping(section: Any, place: str, example: str) -> dict[str, Any]:
    """Returns a section if it is a mapping.

    Raises:
        ConfigError: the section is not a mapping.
    """
    if not isinstance(section, dict):
        shown = public(place, section)
        raise ConfigError(place, "must be a mapping", shown, hint=f"write for instance {example}")
    return section


def unknown_name(
    place: str, problem: str, value: Any, known: Iterable[str], hint: str | None = None
) -> ConfigError:
    """Makes the error for a value that should be one of some names, and is shown if it resembles one.

    Args:
        place: the path of its key.
        problem: what is wrong with it.
        value: plain data.
        known: the names.
        hint: the hint if it resembles none of them; None lists them.
    """
    guess = suggest(value, known)
    if guess.startswith("did you mean"):
        return ConfigError(place, problem, value, hint=guess)
    return ConfigError(place, problem, public(place, value), hint=guess if hint is None else hint)


def require_known_keys(
    place: str, section: dict[str, Any], known: Collection[str], of: str, others: Iterable[str] = ()
) -> None:
    """Refuses the first unknown key, and suggests the one that was probably meant.

    Args:
        place: the path of the section.
        section: the section.
        known: its keys.
        of: what it is a section of.
        others: more keys to suggest, which were read before.

    Raises:
        ConfigError: there is an unknown key.
    """
    for key, value in section.items():
        if key not in known:
            where, hint = below(place, key), suggest(key, [*known, *others])
            # The value of an unknown key may be a password.
            given = public(where, value, shows_text=False)
            raise ConfigError(where, f"is not a key of {of}", given, hint=hint)


def from_pydantic(place: str, error: ValidationError, section: dict[str, Any], of: str) -> ConfigError:
    """Makes one error from all of pydantic: one of ours that a validator raised, or else the first one."""
    mistakes = error.errors(include_url=False)
    for mistake in mistakes:
        raised = mistake.get("ctx", {}).get("error")
        if isinstance(raised, ConfigError):
            return raised
        if isinstance(raised, SamplerkitError):
            where = below(place, *_path_in(section, mistake["loc"]))
            return ConfigError(where, raised.problem, public(where, mistake["input"]), hint=raised.hint)
    # pydantic reports an error for each member of a union: the member with the longest path was meant.
    nearby = [mistake for mistake in mistakes[:_MAX_MEMBERS] if mistake["loc"][:1] == mistakes[0]["loc"][:1]]
    paths = [_path_in(section, mistake["loc"]) for mistake in nearby]
    path = max(paths, key=len)
    same = [mistake for mistake, other in zip(nearby, paths, strict=True) if other == path]
    where = below(place, *path)
    if same[0]["type"] == "missing":
        return ConfigError(where, f"is missing, and {of} needs it", hint=f"add {path[-1]}: ...")
    messages = dict.fromkeys(" ".join(mistake["msg"].split()) for mistake in same)
    problem = " or ".join(messages).replace("Input should be", "must be").replace(" or must be ", " or ")
    kinds = {mistake["type"].partition("_")[0] for mistake in same}
    shown = public(where, same[0]["input"])
    return ConfigError(where, problem[:LONGEST_PROBLEM], shown, hint=_hint(kinds, shown))


def from_constructor(
    place: str, error: Exception, names: Collection[str], of: str, given: dict[str, Any]
) -> ConfigError:
    """Makes a ConfigError from an error that a constructor raised."""
    if not isinstance(error, SamplerkitError):
        # The message comes from the author of the constructor, and may contain its arguments.
        reason = " ".join(scrub(f"{type(error).__name__}: {error}", given).split())[:LONGEST_PROBLEM]
        return ConfigError(place, f"{of} refuses its arguments ({reason})")
    shown = error.value.value if isinstance(error.value, Enum) else error.value
    # An error of an order that is built has the name of the sampler before the argument.
    key = error.place.rpartition(": ")[2]
    is_named = re.split(r"\W", key)[0] in names
    where = f"{place}.{key}" if is_named else place
    problem = error.problem if is_named else f"{error.place}: {error.problem}"
    return ConfigError(where, problem, *(() if shown is None else (public(where, shown),)), hint=error.hint)


def _path_in(section: Any, location: Sequence[Any]) -> list[Any]:
    """Removes the names of union members, which pydantic adds to the path of a value."""
    path: list[Any] = []
    for key in location:
        exists = isinstance(section, dict) and (key in section or not path)
        if exists or (isinstance(section, list) and isinstance(key, int)):
            path.append(key)
            with suppress(LookupError):  # a missing key is the last one
                section = section[key]
    return path


def _hint(kinds: set[str], value: Any) -> str:
    """Returns a hint on how to write in YAML what was probably meant."""
    if "bool" in kinds and str(value).lower() in ("true", "false", "1", "0", "yes", "no"):
        return f"write {str(str(value).lower() in ('true', '1', 'yes')).lower()}"
    if not kinds & {"int", "float"} or not isinstance(value, str | float):
        return ""
    try:
        number = float(value)
    except ValueError:
        return ""
    quoted = " without quotes" if isinstance(value, str) else ""
    why = f"YAML reads {value} as a string: " if quoted and "e" in str(value).lower() else ""
    if number.is_integer() and abs(number) < 2**63:
        return f"{why}write {int(number)}" + ("" if why else quoted)
    if "float" not in kinds or not math.isfinite(number):
        return ""
    # PyYAML's floats have a point, and a sign in the exponent.
    written = repr(number)
    return f"{why}write {written if '.' in written else written.replace('e', '.0e')}"
