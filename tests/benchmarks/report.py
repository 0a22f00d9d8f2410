"""Tables in Markdown, and the line above them with what was measured. Standard library only."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import version


def versions(*packages: str) -> str:
    """The versions of Python and of some packages, and the kind of machine."""
    # A checkout need not be installed, but an imported package has its version.
    numbers = (getattr(sys.modules.get(name), "__version__", None) or version(name) for name in packages)
    named = ", ".join(f"{name} {number}" for name, number in zip(packages, numbers, strict=True))
    return f"Python {platform.python_version()}, {named}, {platform.machine()}"


def print_header(*titles: str) -> None:
    """Begins a table."""
    print_row(*titles)
    print(f"|{'---|' * len(titles)}", flush=True)


def print_row(*cells: object) -> None:
    """Prints a row of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
