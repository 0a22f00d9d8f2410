"""The reference is up to date: what comes from the code is what it says now, and it has all public names."""

import importlib
import re

import pytest

import samplerkit as sk
from samplerkit import inspect, testing
from samplerkit.compat import partially_shuffle
from samplerkit.compat import torch as compat_torch
from samplerkit.inspect import quality
from tests.docs.write_pages import FOLDER, PARTS, WRITTEN, pages

REFERENCE = "\n".join(path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md")))


def named(identifier):
    """Gives what a page names, wherever it is imported from."""
    module, _, name = identifier.rpartition(".")
    return getattr(importlib.import_module(module), name)


SHOWN = [named(identifier) for identifier in re.findall(r"^::: (\S+)$", REFERENCE, re.MULTILINE)]


def test_each_part_from_the_code_is_on_a_page():
    assert sorted(part for _, part, _ in WRITTEN.findall(REFERENCE)) == sorted(PARTS)


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_the_page_is_what_the_code_says_now(path):
    assert path.read_text(encoding="utf-8") == pages()[path], "run: python -m tests.docs.write_pages"


@pytest.mark.parametrize(
    "package",
    [sk, inspect, quality, testing, compat_torch, partially_shuffle],
    ids=lambda module: module.__name__,
)
def test_each_public_name_stands_in_the_reference_once(package):
    counts = {name: sum(shown is getattr(package, name) for shown in SHOWN) for name in package.__all__}
    assert counts == dict.fromkeys(package.__all__, 1)


def test_the_page_of_configs_has_each_kind_and_key_with_a_meaning():
    page = pages()[FOLDER / "config.md"]
    kinds = re.findall(r"^### (\S+)$", page, re.MULTILINE)
    assert {"random", "distributed", "mixture", "size", "layout", "files", "tar"} <= set(kinds)
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) > 60
    assert [row for row in rows if not all(row)] == []


def test_the_page_of_commands_has_each_command_with_its_options():
    page = pages()[FOLDER / "commands.md"]
    shown = re.findall(r"^## (\S+)$", page, re.MULTILINE)
    assert shown[:3] == ["demo", "validate", "schema"]
    assert page.count("`--json`") == len(shown)
    assert re.search(r"^\| `CONFIG` \| required \| \w.* \|$", page, re.MULTILINE)
