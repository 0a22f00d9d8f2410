"""Writes the states that this version saves; run it as `python -m tests.loading.write_saved_states`.

It never overwrites: what was saved once must load for ever.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

from tests.loading.saved_states import DATA, KINDS, goes_on_with, saved_after

FILE = DATA / "states.json"


def main() -> int:
    """Writes the file, one state a line, unless it exists."""
    if FILE.exists():
        sys.stderr.write(f"{FILE} is frozen and stays as it is\n")
        return 1
    warnings.simplefilter("ignore")
    lines = []
    for kind, make_in in KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            make = partial(make_in, Path(folder))
            for when, state in saved_after(make):
                case = {"kind": kind, "when": when, "state": state, "goes on with": goes_on_with(make, state)}
                lines.append(json.dumps(case))
    FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    sys.stdout.write(f"wrote {FILE}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
