"""What a docstring says of the whole, and of each argument."""

import inspect
import re
from typing import Any

_SECTION = re.compile(r"^(Args|Attributes|Example|Raises|Returns|Source):", re.MULTILINE)
_ARGUMENT = re.compile(r"^    (\w+): ")


def summary(documented: Any) -> str:
    """Gives the first sentence."""
    return _joined((inspect.getdoc(documented) or "").partition("\n\n")[0])


def arguments(documented: Any) -> dict[str, str]:
    """Gives what is said of each argument, by its name."""
    parts = _SECTION.split(inspect.getdoc(documented) or "")
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    found: dict[str, str] = {}
    name = ""
    for line in sections.get("Args", "").splitlines():
        if begun := _ARGUMENT.match(line):
            name = begun[1]
            found[name] = line[begun.end() :]
        elif name:
            found[name] += f" {line.strip()}"
    return {name: _joined(text) for name, text in found.items()}


def in_a_cell(text: str) -> str:
    """Writes text so that a table keeps its columns, and names are code."""
    return text.replace("|", "\\|")


def _joined(text: str) -> str:
    return " ".join(text.split())
