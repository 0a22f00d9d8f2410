"""Writes the parts of the reference that come from the code: `python -m tests.docs.write_pages`."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path

from samplerkit.config.datasets import DATASETS
from samplerkit.config.loader import LOADER
from samplerkit.config.quality import MIN_QUALITY
from samplerkit.config.registry import BATCHES, SAMPLERS
from tests.docs.commands_page import described
from tests.docs.config_page import kinds_of, table_of

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
WRITTEN = re.compile(r"(<!-- written: (\w+) -->\n).*?(\n<!-- end -->\n)", re.DOTALL)


def _samplers() -> str:
    classes = [SAMPLERS[kind].make for kind in SAMPLERS]
    # Other tests register samplers of theirs.
    ours = [made.__name__ for made in classes if made.__module__.startswith("samplerkit.samplers.")]
    beside = ("Edit", "Shuffle", "Context", "RunConstants")
    base = "\n::: samplerkit.Sampler\n    options:\n      inherited_members: true\n"  # such as draw
    return base + "".join(f"\n::: samplerkit.{name}\n" for name in (*ours, *beside))


PARTS = {
    "sampler": partial(kinds_of, SAMPLERS),
    "dataset": partial(kinds_of, DATASETS),
    "batches": partial(kinds_of, BATCHES),
    "loader": partial(table_of, LOADER),
    "min_quality": partial(table_of, MIN_QUALITY),
    "commands": described,
    "samplers": _samplers,
}
"""The parts of pages, each between two comments that name it."""


def pages() -> dict[Path, str]:
    """Gives what each page with such parts should say."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
    return {
        path: WRITTEN.sub(lambda part: part[1] + PARTS[part[2]]() + part[3], text)
        for path, text in texts.items()
        if WRITTEN.search(text)
    }


def main() -> None:
    """Writes them."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {path.name}\n")


if __name__ == "__main__":
    main()
