"""Writes the golden vectors of a new algorithm id; run it as `python -m tests.order.write_golden_vectors`.

It writes files that are not there, and never overwrites: see `tests/order/golden_vectors.py` for why.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.order.golden_vectors import BLOCKS, FILE, LATER, blocks, evaluated, evaluated_later, later


def main() -> int:
    """Writes each file, one case a line, unless it exists; 1 if all of them did."""
    written = [
        write(FILE, evaluated()),
        write(LATER, evaluated_later(later())),
        write(BLOCKS, evaluated_later(blocks())),
    ]
    return 0 if any(written) else 1


def write(path: Path, frozen: dict[str, Any]) -> bool:
    """Writes one file; tells whether it was not there."""
    sections = []
    for name, content in frozen.items():
        if isinstance(content, list):
            lines = ",\n".join(json.dumps(case) for case in content)
            sections.append(f"{json.dumps(name)}: [\n{lines}\n]")
        else:
            sections.append(f"{json.dumps(name)}: {json.dumps(content)}")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write("{\n" + ",\n".join(sections) + "\n}\n")
    except FileExistsError:
        sys.stderr.write(f"{path} is frozen and stays as it is; a changed order is a new algorithm id\n")
        return False
    sys.stdout.write(f"wrote {path}\n")
    return True


if __name__ == "__main__":
    raise SystemExit(main())
