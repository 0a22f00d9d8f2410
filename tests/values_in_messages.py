"""The values that errors tell: run `python -m tests.values_in_messages` to write them anew.

Words may be changed at will; the place, the numbers and what stands in quotes are what a reader acts upon.
"""

from __future__ import annotations

import ast
import json
import re
import tempfile
from pathlib import Path
from typing import Any

from samplerkit.errors import SamplerkitError
from tests import test_bad_arguments
from tests.docs.raised import MINE

FILE = Path(__file__).parent / "data" / "values_in_messages.json"

_VALUE = re.compile(r"'[^']*'|\b(?:True|False|None)\b|(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")
_DIGEST = re.compile(r"\b(?=\w*[a-f])[0-9a-f]{12,}\b")
_CHANGES_EACH_TIME = ("worker", "ranks: rank")
"""Process ids, and which of two threads is first."""


def calls() -> dict[str, Any]:
    """The wrong calls, by what is written there, or by the beginning of the message that they lead to."""
    source = Path(test_bad_arguments.__file__).read_text(encoding="utf-8")
    (table,) = (
        node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CASES"
    )
    assert isinstance(table, ast.List)
    written = [
        ast.unparse(row.elts[0]).removeprefix("lambda: ") for row in table.elts if isinstance(row, ast.Tuple)
    ]
    cases = [case[0] for case in test_bad_arguments.CASES]
    found: dict[str, Any] = {
        text: (lambda _, call=call: call()) for text, call in zip(written, cases, strict=True)
    }
    return found | {name: call for name, call in MINE.items() if not name.startswith(_CHANGES_EACH_TIME)}


def told(call: Any) -> list[Any]:
    """The place and the values that the error of a call tells; its folder is called FOLDER."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            call(Path(folder))
        except SamplerkitError as error:
            texts = [
                _DIGEST.sub("DIGEST", text.replace(folder, "FOLDER")) for text in (error.place, str(error))
            ]
            return [texts[0], *_VALUE.findall(texts[1].removeprefix(texts[0]))]
    raise AssertionError("nothing was raised")


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(told(call))}" for name, call in calls().items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
