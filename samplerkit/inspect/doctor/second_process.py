"""A function is called in another process too: what comes from hashes shows only there.

Run as `python -m samplerkit.inspect.doctor.second_process module:function`, it prints what it saw.
"""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from samplerkit.errors import ArgumentTypeError, ArgumentValueError
from samplerkit.inspect.doctor.patient import Patient
from samplerkit.inspect.doctor.probe import appearance
from samplerkit.inspect.view import loader_of

PATIENCE_SECONDS = 120.0

_MARK = "samplerkit saw "


def function_named(name: str) -> Callable[[], Any]:
    """Imports a function by its name, `module:function`, as seen from the working directory.

    Raises:
        ArgumentValueError: there is no such module, or it has no such function.
        ArgumentTypeError: it is no function.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        function = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ArgumentValueError(
            "function", f"cannot be imported ({error})", name, mend="write module:function"
        ) from error
    if not callable(function):
        raise ArgumentTypeError("function", "cannot be called", name)
    made: Callable[[], Any] = function
    return made


def seen_there(name: str) -> dict[str, str] | None:
    """Calls a function in another process, whose strings have other hashes, and tells what it made.

    Args:
        name: `module:function`.

    Returns:
        The `appearance` of what was made; None where the function fails there.
    """
    # 0 and 1 are two ways to hash; unset and "random" are a third one.
    here = os.environ.get("PYTHONHASHSEED")
    environment = {**os.environ, "PYTHONHASHSEED": "1" if here != "1" else "0"}
    try:
        ended = subprocess.run(  # noqa: S603  # our own module, with the function that the user has named
            [sys.executable, "-m", "samplerkit.inspect.doctor.second_process", name],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    lines = [line for line in ended.stdout.splitlines() if line.startswith(_MARK)]
    if ended.returncode or not lines:
        return None
    seen: dict[str, str] = json.loads(lines[-1].removeprefix(_MARK))
    return seen


if __name__ == "__main__":
    patient = Patient.of(loader_of(function_named(sys.argv[1])(), None))
    sys.stdout.write(f"\n{_MARK}{json.dumps(appearance(patient))}\n")
