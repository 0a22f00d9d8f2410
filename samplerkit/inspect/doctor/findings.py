"""The table of rules, and the findings that they yield."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar, final

from samplerkit.inspect.doctor.inspection import Inspection

Severity = Literal["error", "warning"]
"""An error means wrong data, a hang or a failure; a warning means lost quality, time or memory."""

_Subject = TypeVar("_Subject")


@final
@dataclass(frozen=True)
class Finding:
    """A mistake in the setup of a loader.

    Args:
        code: the kind of mistake, a key of `KINDS`.
        severity: `error` or `warning`.
        what: what is wrong, with numbers.
        hint: how to fix it.

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
    """The result of a rule: what is wrong; and a hint and severity, if they differ from those of the rule."""

    what: str
    hint: str = ""
    severity: Severity | None = None


Faults = Iterator[Fault]


@final
@dataclass(frozen=True)
class FindingKind:
    """A kind of mistake: its code, its usual severity, and a sentence for the table in the docs."""

    code: str
    severity: Severity
    meaning: str

    def finding(self, what: str, hint: str, severity: Severity | None = None) -> Finding:
        """Returns a finding of this kind."""
        return Finding(self.code, severity or self.severity, what, hint)


KINDS: dict[str, FindingKind] = {}
"""All kinds of mistakes by code."""

RULES: list[Callable[[Inspection], Iterator[Finding]]] = []
"""All rules; each finds one kind of mistake."""


def kind(code: str, severity: Severity, meaning: str) -> FindingKind:
    """Adds a kind of mistake to the table."""
    return KINDS.setdefault(code, FindingKind(code, severity, meaning))


def rule(
    severity: Severity, subject: Callable[[Inspection], _Subject | None]
) -> Callable[[Callable[[_Subject], Faults]], Callable[[_Subject], Faults]]:
    """Returns a decorator that registers a predicate as a rule.

    The name of the predicate is the code, its docstring the meaning, and the text below `Hint:` in it the
    hint of faults without one of their own.

    Args:
        severity: the severity of the findings.
        subject: returns what the predicate examines: a method of `Inspection`. It returns None if the rule
            does not apply to the loader.
    """

    def register(predicate: Callable[[_Subject], Faults]) -> Callable[[_Subject], Faults]:
        meaning, _, hint = (inspect.getdoc(predicate) or "").partition("\n\nHint:\n")
        entry, hint = kind(predicate.__name__.replace("_", "-"), severity, meaning), " ".join(hint.split())

        def find(setup: Inspection) -> Iterator[Finding]:
            examined = subject(setup)
            if examined is not None:
                for fault in predicate(examined):
                    yield entry.finding(fault.what, fault.hint or hint, fault.severity)

        RULES.append(find)
        return predicate

    return register
