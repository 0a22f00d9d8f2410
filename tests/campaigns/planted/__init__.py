"""Bugs that tests must notice: `EVERY` has them by their file and name.

They are the controls of docs/reliability.md, and of laws that are asked of many cases at once, of which
nobody sees by reading what they would notice. An example says so itself; whether examples are missing is
asked of random mutants.
"""

from importlib import import_module
from pathlib import Path

FILES = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
EVERY = {f"{file}: {bug.name}": bug for file in FILES for bug in import_module(f"{__name__}.{file}").BUGS}
