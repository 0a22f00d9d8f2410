"""The table of rules, the subjects that rules examine, and the findings that they yield."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar, final

from samplerkit.batches.plan import BatchPlan
from samplerkit.batches.recipe import BatchRecipe
from samplerkit.inspect.doctor.inspection import InspectedRun, Inspection

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
        subject: returns what the predicate examines, from a loader: one of the functions below. It returns
            None if the rule does not apply to the loader.
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


@final
@dataclass(frozen=True, eq=False)
class PlannedRun:
    """A run whose batches come from a plan."""

    run: InspectedRun
    recipe: BatchRecipe
    plan: BatchPlan


def any_loader(setup: Inspection) -> Inspection:
    """A loader with any sampler."""
    return setup


def stream(setup: Inspection) -> Inspection | None:
    """A torch DataLoader of an iterable dataset."""
    return setup if setup.is_iterable else None


def loader_with_length(setup: Inspection) -> Inspection | None:
    """A loader whose batches can be counted.

    Orders that take minutes and gigabytes to build are excluded.
    """
    return None if setup.view is not None and setup.large_list is not None else setup


def run(setup: Inspection) -> InspectedRun | None:
    """A loader whose order is samplerkit's; the order is not built."""
    return setup if isinstance(setup, InspectedRun) else None


def order(setup: Inspection) -> InspectedRun | None:
    """A loader whose order is samplerkit's, and can be built in short time and memory."""
    return None if loader_with_length(setup) is None else run(setup)


def batches(setup: Inspection) -> PlannedRun | None:
    """A run whose batches come from a plan."""
    inspected = order(setup)
    plan = None if inspected is None else inspected.view.run.epoch(inspected.view.epoch).plan
    if inspected is None or plan is None or inspected.view.recipe is None:
        return None
    return PlannedRun(inspected, inspected.view.recipe, plan)
