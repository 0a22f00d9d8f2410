"""What the commands can fail with, beside what the library itself raises."""

from __future__ import annotations

from samplerkit.errors import SamplerkitError


class MissingExtraError(SamplerkitError, ImportError):
    """A command needs a package that comes with one of samplerkit's extras."""


class LaunchError(SamplerkitError, RuntimeError):
    """The job that a command launched failed; `report` is what the job said of it.

    Args:
        place: who failed: a rank, or torchrun.
        problem: what happened, in a few words.
        report: the traceback, or the last lines of the log.
        mend: what to do about it.
    """

    def __init__(self, place: str, problem: str, *, report: str, mend: str = "") -> None:
        super().__init__(place, problem, mend=mend)
        self.report = report
