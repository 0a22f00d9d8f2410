"""One clear error of a mistake in a config, and what it may repeat of the config.

That is the path of a key, a name that was meant, and of a value no secret. Everything that an error repeats
of a config goes through here, be the error pydantic's, a constructor's or ours.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from enum import Enum
from typing import Any, NoReturn, final

import numpy as np
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from samplerkit.errors import ConfigError, SamplerkitError
from samplerkit.storage.urls import is_remote, shown

_SEPARATORS = re.compile(r"[\s_\-./\\,:*!<>{}\[\]]+")
_PART = re.compile(r"[A-Za-z]{0,24}\d{0,2}|\d+")
_PATH = re.compile(r"[\w\s\-./\\,*~+{}\[\]]*\.[A-Za-z]\w{0,6}", re.ASCII)
_LONGEST_IN_CAPITALS = 3


def told(text: str) -> str | None:
    """Gives what may be repeated of a text: itself, of a URL what is no secret, or None.

    A text is itself if it is made of words and numbers, or is a path, and so is unlikely to be a secret.
    Digits inside of words, long words, words in capitals and the signs of URLs and encodings are not
    repeated. It is a guess: a password that is a small word is one that passes.

    Example:
        >>> told("randon"), told("1e6"), told("https://user:word@host/a?sign=1")
        ('randon', '1e6', 'https://host/a')
        >>> {told(text) for text in ("AKIA7Q2", "s3cr3t", "me:word@host", "SECRET", "pipe:curl a")}
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
    letters = [sign for sign in text if sign.isalpha()]
    if len(letters) > _LONGEST_IN_CAPITALS and not any(sign.islower() for sign in letters):
        return None
    return text if all(_PART.fullmatch(part) for part in _SEPARATORS.split(text)) else None


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


_SECRETS = re.compile(
    r"option|digest|pass(word|wd|phrase)?$|pwd|secret|token|auth|credential|signature|account"
    r"|(^|_)(key|keys|user|login)(_|$)",
    re.IGNORECASE,
)
"""Names of what is private, wherever it stands: `storage_options` and `digests`, and what is called alike."""

_NO_SECRETS = re.compile(r"(batches\.(max_tokens|keys)|dataset\.(add_extra|pad)_token\w*)(\[|$)")
"""Places of the config that are called like a secret, and hold none."""

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
    if any(map(_SECRETS.search, keys)) and not _NO_SECRETS.match(place):
        return HIDDEN
    # A text in place of a section that holds what is private is likely to be it.
    return _shown(value, shows_text and keys[-1:] != ["remote"])


def resembling(place: str, value: Any, hint: str) -> Any:
    """Gives what may be shown of a value that was to be one of some names: all, if it resembles one."""
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


def _shown(value: Any, shows_text: bool) -> Any:
    if isinstance(value, str | bytes):
        text = value if isinstance(value, str) else value.decode("latin-1")
        found = told(text) if shows_text else None
        return HIDDEN if found is None else value if found == text else found
    if isinstance(value, dict):
        # Of a mapping the keys, numbers and the kind.
        return {
            _shown(key, True): HIDDEN if _SECRETS.search(str(key)) else _shown(entry, key == "kind")
            for key, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(_shown(entry, shows_text) for entry in value[:_MOST_ENTRIES])
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in "biuf" else HIDDEN
    plain = isinstance(value, int | float | complex | dt.date | dt.time | _Hidden | type(None))
    return value if plain else f"<{type(value).__name__}>"


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


_MISSING, _REFUSED = "missing", "samplerkit"
_LONGEST_PROBLEM = 120
_MOST_MEMBERS = 20


def require_mapping(section: Any, place: str, example: str) -> dict[str, Any]:
    """Takes a section that is a mapping.

    Raises:
        ConfigError: it is something else.
    """
    if not isinstance(section, dict):
        shown = public(place, section)
        raise ConfigError(place, "must be a mapping", shown, hint=f"write for instance {example}")
    return section


def refuse(problem: str, hint: str = "") -> NoReturn:
    """Refuses the value that pydantic is looking at: `from_pydantic` says so."""
    raise PydanticCustomError(_REFUSED, "refused", {"problem": problem, "hint": hint})


def unknown_key(place: str, section: dict[str, Any], known: Collection[str], of: str) -> ConfigError:
    """Says of the first key that is not known what it was meant to be."""
    key = next(key for key in section if key not in known)
    where = below(place, key)
    # A key that nobody knows may have been meant for a password.
    value = public(where, section[key], shows_text=False)
    return ConfigError(where, f"is no key of {of}", value, hint=meant(key, known))


def from_pydantic(place: str, error: ValidationError, section: dict[str, Any], of: str) -> ConfigError:
    """Makes one error of all that pydantic found: that of a section inside, or else the first."""
    found = error.errors(include_url=False)
    for mistake in found:
        inside = mistake.get("ctx", {}).get("error")
        if isinstance(inside, ConfigError):
            return inside
    first = found[0]
    path = _path_in(section, first["loc"])
    where = below(place, *path)
    if first["type"] == _MISSING:
        return ConfigError(where, f"is missing, and {of} needs it", hint=f"add {path[-1]}: ...")
    if first["type"] == _REFUSED:
        hint = first["ctx"]["hint"]
        shown = resembling(where, first["input"], hint)
        return ConfigError(where, first["ctx"]["problem"], shown, hint=hint)
    # The members of a union are told one by one, one after another: the one that came furthest was meant.
    nearby = [one for one in found[:_MOST_MEMBERS] if one["loc"][:1] == first["loc"][:1]]
    paths = [_path_in(section, mistake["loc"]) for mistake in nearby]
    path = max(paths, key=len)
    where = below(place, *path)
    same = [mistake for mistake, one in zip(nearby, paths, strict=True) if one == path]
    problems = dict.fromkeys(_problem(mistake["msg"]) for mistake in same)
    problem = " or ".join(problems).replace(" or must be ", " or ")[:_LONGEST_PROBLEM]
    kinds = {mistake["type"].partition("_")[0] for mistake in same}
    shown = public(where, same[0]["input"])
    return ConfigError(where, problem, shown, hint=_hint(kinds, shown))


def from_constructor(
    place: str, error: Exception, names: Collection[str], of: str, given: dict[str, Any]
) -> ConfigError:
    """Makes the error of a config from one that a constructor raised."""
    if not isinstance(error, SamplerkitError):
        # The text is the constructor's, and may repeat its arguments.
        reason = " ".join(scrubbed(f"{type(error).__name__}: {error}", given).split())[:_LONGEST_PROBLEM]
        return ConfigError(place, f"{of} refuses its arguments ({reason})")
    shown = error.value.value if isinstance(error.value, Enum) else error.value
    # What is found when an order is made names the sampler before the argument.
    key = error.place.rpartition(": ")[2]
    argument = re.match(r"\w+", key)
    is_named = argument is not None and argument[0] in names
    where = f"{place}.{key}" if is_named else place
    problem = error.problem if is_named else f"{error.place}: {error.problem}"
    return ConfigError(where, problem, *(() if shown is None else (public(where, shown),)), hint=error.hint)


def _path_in(section: Any, location: Sequence[Any]) -> list[Any]:
    """Leaves out what pydantic adds to the path of a value: the members of unions."""
    path: list[Any] = []
    for key in location:
        inside = section
        for step in path:
            inside = inside[step]
        known = isinstance(inside, dict) and (key in inside or not path)
        if known or (isinstance(inside, list) and isinstance(key, int)):
            path.append(key)
    return path


def _problem(message: str) -> str:
    return " ".join(message.replace("Input should be", "must be").split())


def _hint(kinds: set[str], value: Any) -> str:
    """Says how YAML writes what was probably meant."""
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
