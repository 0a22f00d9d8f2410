"""All errors of samplerkit.

Every error is a `SamplerkitError`, and also an instance of the builtin class that MindSpore documents for
the same mistake, so that code written for MindSpore still catches it. Each has a place, a problem, a value
and a hint, which make up its message.
"""

from typing import Any

_LONGEST_VALUE = 120


class SamplerkitError(Exception):
    """Base class of all errors that samplerkit raises.

    Args:
        place: where the invalid value is: an argument, a method or the path of a config key.
        problem: what is wrong with it, in a few words.
        value: the invalid value; omitted if there is none.
        hint: how to fix it.

    Example:
        >>> raise ArgumentValueError("num_samples", "must not be negative", -1, hint="use None for all")
        Traceback (most recent call last):
        samplerkit.errors.ArgumentValueError: num_samples: must not be negative, got -1; use None for all
    """

    _absent: Any = object()
    # The `id` of the innermost sampler that could not draw. Not the sampler itself: an error can be pickled,
    # and must not keep its objects alive.
    _sampler_id: int | None = None

    # `place` may also be the whole message: pickle and torch recreate an error in another process this way.
    def __init__(self, place: str, problem: str = "", value: Any = _absent, *, hint: str = "") -> None:
        self.place = place
        self.problem = problem
        self.value = None if value is SamplerkitError._absent else value
        self.hint = hint
        message = f"{place}: {problem}" if problem else place
        if value is not SamplerkitError._absent:
            message += f", got {_short_repr(value)}"
        super().__init__(f"{message}; {hint}" if hint else message)

    def __str__(self) -> str:
        # An error that is also a KeyError would be shown in quotes.
        return str(self.args[0])


class ArgumentTypeError(SamplerkitError, TypeError):
    """An argument has the wrong type."""


class ArgumentValueError(SamplerkitError, ValueError):
    """An argument has the right type and an invalid value."""


class ArgumentRangeError(SamplerkitError, RuntimeError):
    """An argument is outside of its range, which may depend on others (MindSpore: `RuntimeError`)."""


class NotSupportedError(SamplerkitError, NotImplementedError):
    """A combination of arguments is not supported, or an argument of MindSpore is not implemented."""


class CompositionError(SamplerkitError, RuntimeError):
    """Two samplers cannot be nested this way."""


class ShuffleModeError(SamplerkitError, RuntimeError):
    """A shuffle mode does not fit the dataset."""


class DatasetError(SamplerkitError, RuntimeError):
    """A dataset cannot be read, or lacks something that is needed of it."""


class OutOfDatasetError(SamplerkitError, RuntimeError, IndexError):
    """A sample id or a position is outside of the dataset or the order."""


class WorldError(SamplerkitError, RuntimeError):
    """The running job describes its ranks inconsistently."""


class InverseTooLargeError(SamplerkitError, MemoryError):
    """`positions_of` would have to scan more samples than its limit allows."""


class ConfigError(SamplerkitError, ValueError):
    """A config is invalid; `place` is the path of the key."""


class StateError(SamplerkitError, RuntimeError):
    """A saved state does not fit the run that loads it, or cannot be read.

    Args:
        field: the field of the state.
        problem: what is wrong with it.
        saved: the saved value.
        current: the value in this run.
        hint: how to fix it.
    """

    def __init__(
        self,
        field: str,
        problem: str = "",
        saved: Any = SamplerkitError._absent,
        current: Any = SamplerkitError._absent,
        *,
        hint: str = "",
    ) -> None:
        place, value = f"state: {field}" if problem else field, saved
        if current is not SamplerkitError._absent:
            problem = f"{problem}: saved {_short_repr(saved)}, here {_short_repr(current)}"
            value = SamplerkitError._absent
        super().__init__(place, problem, value, hint=hint)
        self.field = field
        self.saved = self.value = None if saved is SamplerkitError._absent else saved
        self.current = None if current is SamplerkitError._absent else current


class WorkerError(SamplerkitError, RuntimeError):
    """A worker of a loader died, or took longer than the timeout."""


class DisagreementError(SamplerkitError, RuntimeError):
    """Ranks of one job use different orders."""


def note_once(error: BaseException, note: str) -> None:
    """Adds a note to an error, unless it has this note already since it was raised before."""
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def _short_repr(value: Any) -> str:
    if type(value) in {list, tuple}:
        # Each entry takes at least one character, so the entries that are cut off would not be shown.
        value = value[:_LONGEST_VALUE]
    try:
        # One line, also for numpy arrays.
        text = " ".join(line.strip() for line in repr(value).splitlines())
    except Exception:
        # A user's __repr__ may raise anything; and Python refuses to print integers of over 4300 digits.
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
