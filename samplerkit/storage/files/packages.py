"""Optional packages that parse formats: they are imported when needed, and their errors are converted."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from samplerkit.errors import DatasetError, SamplerkitError, note_once
from samplerkit.storage.open_files import MISSING, REWRITE
from samplerkit.storage.threads import importing

Result = TypeVar("Result")


def extra(module: str, name: str) -> Any:
    """Imports a module of an optional package.

    Args:
        module: the full name of the module.
        name: the extra of samplerkit that installs the package.

    Raises:
        DatasetError: the package is not installed.

    Example:
        >>> extra("json", "json").dumps([1])
        '[1]'
        >>> extra("no_such_package", "nothing")
        Traceback (most recent call last):
        samplerkit.errors.DatasetError: nothing: needs no_such_package, which is not installed; \
install it with: pip install "samplerkit[nothing]"
    """
    try:
        return import_package(module)
    except ImportError as error:
        package = module.split(".", maxsplit=1)[0]
        hint = f'install it with: pip install "samplerkit[{name}]"'
        raise DatasetError(name, f"needs {package}, which is not installed", hint=hint) from error


def import_package(module: str) -> Any:
    """Imports a module of an optional package; a process is not forked meanwhile, since it could hang in it.

    Raises:
        ImportError: the package is not installed.
    """
    with importing:
        return import_module(module)


def guarded(place: str, verb: str, call: Callable[[], Result], hint: str = REWRITE) -> Result:
    """Calls a function of a parsing package; any exception is turned into an error that names the place.

    A `SamplerkitError` or `MemoryError` is raised unchanged, with a note of the place.

    Args:
        place: the file, and the position in it.
        verb: the participle for the message, as "read" in "cannot be read".
        call: the function.
        hint: the hint of the error.

    Raises:
        DatasetError: the function raised an error.
    """
    try:
        return call()
    except (SamplerkitError, MemoryError) as error:
        note_once(error, f"while {place} was {verb}")
        raise
    except Exception as error:
        message = " ".join(str(error).split())[:200]
        problem = f"cannot be {verb} ({type(error).__name__}: {message})"
        hint = MISSING if isinstance(error, FileNotFoundError) else hint
        raise DatasetError(place, problem, hint=hint) from error
