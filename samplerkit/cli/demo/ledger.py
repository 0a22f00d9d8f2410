"""What the ranks of the demo received: each writes its own file of JSON lines, and the command counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO


def opened(folder: Path, run: str, rank: int) -> TextIO:
    """Begins the file of a rank in a run."""
    return (folder / f"{run}.{rank}.jsonl").open("w", encoding="utf-8")


def write(file: TextIO, **line: Any) -> None:
    """Writes a line: the `ids` that the training loop received, and what else is said of them."""
    file.write(json.dumps(line) + "\n")
    file.flush()


def lines(folder: Path, run: str, rank: int) -> list[dict[str, Any]]:
    """Gives what a rank wrote."""
    text = (folder / f"{run}.{rank}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
