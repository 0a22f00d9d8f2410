"""Writes the pages of the reference that come from the code: `python -m tests.docs.write_pages`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.docs import commands_page, config_page, samplers_page

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


def pages() -> dict[Path, str]:
    """Gives what each of the pages should say."""
    return {FOLDER / module.NAME: module.page() for module in (commands_page, config_page, samplers_page)}


def main() -> None:
    """Writes them."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {path.name}\n")


if __name__ == "__main__":
    main()
