"""One clear error of a mistake in a config: from pydantic's errors, and from a constructor's."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from enum import Enum
from typing import Any, NoReturn

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from samplerkit.config.redaction import below, meant, public, resembling, scrubbed
from samplerkit.errors import ConfigError, SamplerkitError

_EXTRA, _MISSING, _REFUSED = "extra_forbidden", "missing", "samplerkit"
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
    shown = public(where, section[key], shows_text=False)
    return ConfigError(where, f"is no key of {of}", shown, hint=meant(key, known))


def from_pydantic(place: str, error: ValidationError, section: dict[str, Any], of: str) -> ConfigError:
    """Makes one error of all that pydantic found: the first, a wrong key before all others."""
    found = error.errors(include_url=False)
    at = next((number for number, mistake in enumerate(found) if mistake["type"] == _EXTRA), 0)
    first = found[at]
    path = _path_in(section, first["loc"])
    where = below(place, *path)
    if first["type"] == _MISSING:
        return ConfigError(where, f"is missing, and {of} needs it", hint=f"add {path[-1]}: ...")
    if first["type"] == _REFUSED:
        hint = first["ctx"]["hint"]
        shown = resembling(where, first["input"], hint)
        return ConfigError(where, first["ctx"]["problem"], shown, hint=hint)
    # The members of a union are told one by one, one after another: the one that came furthest was meant.
    nearby = [one for one in found[at : at + _MOST_MEMBERS] if one["loc"][:1] == first["loc"][:1]]
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
        # The text is of whoever wrote the constructor, and may repeat what it was given.
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
