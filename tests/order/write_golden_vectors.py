"""Writes the golden vectors of a new algorithm id; run it as `python -m tests.order.write_golden_vectors`.

It never overwrites: see `tests/order/golden_vectors.py` for why.
"""

from __future__ import annotations

import json
import sys

from tests.order.golden_vectors import FILE, evaluated


def main() -> int:
    """Writes the file, one case a line, unless it exists."""
    frozen = evaluated()
    sections = []
    for name, content in frozen.items():
        if isinstance(content, list):
            lines = ",\n".join(json.dumps(case) for case in content)
            sections.append(f"{json.dumps(name)}: [\n{lines}\n]")
        else:
            sections.append(f"{json.dumps(name)}: {json.dumps(content)}")
    try:
        with FILE.open("x", encoding="utf-8") as file:
            file.write("{\n" + ",\n".join(sections) + "\n}\n")
    except FileExistsError:
        sys.stderr.write(f"{FILE} is frozen and stays as it is; a changed order is a new algorithm id\n")
        return 1
    sys.stdout.write(f"wrote {FILE}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
