"""The table of rules, and the findings that they yield."""

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
        code: the kind of mistake, a key of `MEANINGS`.
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


MEANINGS = {
    "lengths-unknown": "Remote files have to be fetched to count their samples, before the first batch.",
    "ranks-disagree": "The same function makes another order in another process.",
    "refused": "The sampler does not fit the dataset.",
    "lengths-do-not-fit": "There is not one valid length, key or label for each sample.",
    "sample-above-budget": "A single sample is above `max_tokens`, `seq_len`, or the last boundary.",
}
"""The code and the meaning of each kind of mistake, for the table in the docs; rules add theirs."""

RULES: list[Callable[[Inspection], Iterator[Finding]]] = []
"""All rules; each finds one kind of mistake."""


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
        code, hint = predicate.__name__.replace("_", "-"), " ".join(hint.split())
        MEANINGS[code] = meaning

        def find(setup: Inspection) -> Iterator[Finding]:
            examined = subject(setup)
            if examined is not None:
                for fault in predicate(examined):
                    yield Finding(code, fault.severity or severity, fault.what, fault.hint or hint)

        RULES.append(find)
        return predicate

    return register
