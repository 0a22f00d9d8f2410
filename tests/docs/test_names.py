"""What pages and docstrings name by its module is there: a file that moved is named where it is now."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

import samplerkit as sk

PACKAGE = Path(sk.__file__).parent
ROOT = PACKAGE.parent
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(PACKAGE.rglob("*.py"))]
ROOMS = re.findall(
    r"^\| `(tar/\w*/?)` \|.*\| (.+) \|$",
    (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


def named_in(text):
    return set(re.findall(r"`(samplerkit(?:\.\w+)+)`", text))


def test_every_name_with_a_module_can_be_imported():
    named = {name for text in TEXTS for name in named_in(text.read_text(encoding="utf-8"))}
    assert len(named) > 5
    for name in sorted(named):
        pkgutil.resolve_name(name)


@pytest.mark.parametrize(("room", "told"), ROOMS, ids=[room for room, _ in ROOMS])
def test_the_rooms_of_tar_shards_name_each_of_their_files_once(room, told):
    files = sorted(file.stem for file in (PACKAGE / "storage" / room).glob("*.py") if file.stem != "__init__")
    assert sorted(re.findall(r"`(\w+)`", told)) == files
