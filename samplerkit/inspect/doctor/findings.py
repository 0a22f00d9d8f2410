"""What the doctor can find: the table of rules, and the findings that they yield."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar, final

from samplerkit.inspect.doctor.inspection import Inspection

Severity = Literal["error", "warning"]
"""An error trains on wrong data, hangs or fails; a warning costs quality, time or memory."""

_Subject = TypeVar("_Subject")


@final
@dataclass(frozen=True)
class Finding:
    """A mistake in how a loader is set up.

    Args:
        code: of which kind it is, a key of `KINDS`.
        severity: `error` or `warning`.
        what: what is wrong here, with its numbers.
        hint: what to do about it.

    Example:
        >>> print(Finding("few-files", "warning", "2 files for 8 ranks", "write more files"))
        few-files: 2 files for 8 ranks; write more files
    """

    code: str
    severity: Severity
    what: str
    hint: str

    def __str__(self) -> str:
        return f"{self.code}: {self.what}; {self.hint}"


class Fault(NamedTuple):
    """What a rule found: what is wrong, what to do about it, and how bad it is if not as its kind is."""

    what: str
    hint: str
    severity: Severity | None = None


Faults = Iterator[Fault]


@final
@dataclass(frozen=True)
class FindingKind:
    """A kind of mistake: its code, how bad it mostly is, and a sentence for the table of the docs."""

    code: str
    severity: Severity
    meaning: str

    def found(self, what: str, hint: str, severity: Severity | None = None) -> Finding:
        """Returns a finding of this kind."""
        return Finding(self.code, severity or self.severity, what, hint)


KINDS: dict[str, FindingKind] = {}
"""What there is to find, by its code."""

RULES: list[Callable[[Inspection], Iterator[Finding]]] = []
"""Each looks for one kind of mistake."""


def kind(code: str, severity: Severity, meaning: str) -> FindingKind:
    """Adds a kind of mistake to the table."""
    return KINDS.setdefault(code, FindingKind(code, severity, meaning))


def rule(
    severity: Severity, subject: Callable[[Inspection], _Subject | None]
) -> Callable[[Callable[[_Subject], Faults]], Callable[[_Subject], Faults]]:
    """Adds a rule to the table, where it is written: the decorator of a predicate.

    The name of the predicate is the code, and its docstring the meaning.

    Args:
        severity: of what it finds.
        subject: what it looks at, made from a loader: one of `subjects`. None where the loader has no such
            thing; then there is nothing to find.
    """

    def added(predicate: Callable[[_Subject], Faults]) -> Callable[[_Subject], Faults]:
        found = kind(predicate.__name__.replace("_", "-"), severity, predicate.__doc__ or "")

        def find(seen: Inspection) -> Iterator[Finding]:
            looked_at = subject(seen)
            if looked_at is not None:
                yield from (found.found(*fault) for fault in predicate(looked_at))

        RULES.append(find)
        return predicate

    return added
