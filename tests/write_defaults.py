"""Writes down the defaults of public arguments; what stands there already must stay.

python -m tests.write_defaults
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import samplerkit as sk

FILE = Path(__file__).with_name("data") / "defaults.json"


def defaults() -> dict[str, str]:
    """Gives each default that is a plain value, by the name of what is called and that of the argument."""
    called = {name: getattr(sk, name) for name in sk.__all__}
    found = dict(sorted(_of_all(called)))
    assert len(found) > 200
    return found


def _of_all(called: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, each in called.items():
        if isinstance(each, type) and issubclass(each, Exception | Enum):
            continue
        for argument in inspect.signature(each).parameters.values():
            default = argument.default
            if argument.name.startswith("_"):
                continue
            if isinstance(default, Enum):
                yield f"{name}.{argument.name}", default.name
            elif default is None or isinstance(default, bool | int | float | str | tuple):
                yield f"{name}.{argument.name}", repr(default)


def main() -> None:
    """Adds what is new."""
    before = json.loads(FILE.read_text()) if FILE.exists() else {}
    FILE.write_text(json.dumps({**defaults(), **before}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
