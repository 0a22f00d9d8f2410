"""The named sections of a state: what a run has to know beside its position, such as how batches are made.

A section is a mapping of JSON values with a `version` of its own. Where there is none, all is as it was
before there were sections. One that says `"optional": true` may be passed over by a version that does not
know it. On any other one the position depends, so that a state with it is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from samplerkit.errors import StateError

Section = Mapping[str, Any]
"""JSON values by name, `version` among them."""

KNOWN: Final[Mapping[str, int]] = {"batches": 1, "ledger": 1, "tokens": 1}
"""The sections that this version reads, each with the newest version of it that it reads."""


def require_sections(value: Any) -> None:
    """Refuses what are no sections, known or not.

    Raises:
        StateError: it is no mapping of sections by name, or one of them has no version.
    """
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise StateError("sections", "must be sections by name", value)
    for name, section in value.items():
        version = section.get("version") if isinstance(section, Mapping) else None
        if type(version) is not int or version < 1:
            raise StateError("sections", f"must have a version from 1 on in {name!r}", value)
        if type(section.get("optional", False)) is not bool:
            raise StateError("sections", f"must say true or false as 'optional' in {name!r}", value)


def require_known(sections: Mapping[str, Section]) -> None:
    """Refuses sections on which the position depends and which this version does not read.

    Raises:
        StateError: there is such a section; the error has its name as the field.
    """
    for name, section in sections.items():
        known = KNOWN.get(name, 0)
        if section["version"] > known and not section.get("optional", False):
            raise StateError(
                name,
                "is a section of the state that this version of samplerkit does not know",
                section["version"],
                known or "none",
                mend="update samplerkit: without it the position means nothing",
            )
