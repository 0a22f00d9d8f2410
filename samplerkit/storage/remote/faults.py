"""What can go wrong with one attempt: to be tried again, or not.

None of these leaves the room: `retried` and `plainly` make a `DatasetError` of each. Exceptions of other
libraries hold URLs with their queries, so they are never chained, and their texts never used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, final

Result = TypeVar("Result")
Fault = TypeVar("Fault", bound=Exception)


@final
class Transient(Exception):  # noqa: N818  # not an error yet: it may go well the next time
    """An attempt failed in a way that may pass.

    Args:
        reason: what happened, in words of our own.
        wait: seconds that the server asks to wait before the next attempt; None if it does not say.
    """

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait = wait


class Refused(Exception):  # noqa: N818  # a DatasetError is made of it
    """Another attempt would not help.

    Args:
        problem: what is wrong, in words of our own.
        mend: what to do about it.
    """

    def __init__(self, problem: str, mend: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.mend = mend


@final
class Absent(Refused):
    """There is no such file, or it may not be read."""


def in_other_words(
    call: Callable[[], Result],
    kinds: type[Fault] | tuple[type[Fault], ...],
    said: Callable[[Fault], Exception],
) -> Result:
    """Calls, and raises something else in place of an error, which is no part of its chain.

    Args:
        call: may raise.
        kinds: of errors.
        said: gives what is raised in place of one; itself, too.
    """
    try:
        return call()
    except kinds as error:
        other = said(error)
    try:
        raise other
    finally:
        # An error holds the frames that it went through: one that holds the error holds a whole storage.
        del other


def changed() -> Refused:
    """Gives the fault of a file that was replaced after its version was asked."""
    return Refused("was changed while it was in use", "start again, so that all of it is of one version")
