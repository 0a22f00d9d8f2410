"""Bugs that tests must notice: `EVERY` has them by their file and name."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

FILES = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
EVERY = {f"{file}: {bug.name}": bug for file in FILES for bug in import_module(f"{__name__}.{file}").BUGS}
