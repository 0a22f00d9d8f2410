"""The Python blocks of README and docs run, with the values in their comments; reliability.md is complete."""

import ast
import doctest
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tests.campaigns.planted import EVERY, reliability

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


BLOCKS = {page.name: BLOCK.findall(page.read_text(encoding="utf-8")) for page in PAGES}

VALUE = r"  # (?:[\[(\d]|array\(|numpy int64$)"
"""A comment that begins like a value is the value of its expression."""

LAWS = {"files.md": 8, "samplers.md": 7}
"""The tests of the contracts that pages show."""


def shown(value):
    return repr(value).replace("np.int64", "")


@pytest.mark.parametrize("page", [name for name, codes in BLOCKS.items() if codes])
@pytest.mark.usefixtures("temporary_folder")
def test_the_blocks_of_a_page_run_one_after_another_with_the_values_in_their_comments(page, monkeypatch):
    # A module, so that what the page defines can be pickled.
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    codes, names = BLOCKS[page], vars(module)
    num_values = len(re.findall(VALUE, "".join(codes), re.MULTILINE))
    compared = 0
    for code in codes:
        lines = code.splitlines()
        for statement in ast.parse(code).body:
            source = ast.get_source_segment(code, statement)
            comment = lines[statement.end_lineno - 1].partition("#")[2].strip()
            if not isinstance(statement, ast.Expr):
                exec(compile(source, "page", "exec"), names)  # noqa: S102  # our own pages
                continue
            value = eval(compile(source, "page", "eval"), names)  # noqa: S307  # our own pages
            if re.match(r"[\[(\d]|array\(", comment):
                assert shown(value) == comment
                compared += 1
            elif comment == "numpy int64":
                assert value.dtype == np.int64
                compared += 1
    assert compared == num_values
    contracts = [value for name, value in names.items() if name.startswith("Test")]
    laws = [
        getattr(contract(), name) for contract in contracts for name in dir(contract) if name[:5] == "test_"
    ]
    for law in laws:
        law()
    assert len(laws) == LAWS.get(page, 0)


@pytest.mark.parametrize(("page", "examples"), [("cli.md", 17), ("history.md", 16)])
def test_the_examples_of_a_page_have_the_results_that_it_shows(page, examples):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    results = doctest.DocTestRunner().run(doctest.DocTestParser().get_doctest(text, {}, page, page, 0))
    assert (results.failed, results.attempted) == (0, examples)


TESTS = Path(__file__).parent
PAGE = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")

ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]*)\| ([^|]*)\|$", re.MULTILINE)
NAMED_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
NAMED_BUG = re.compile(r'planted bug "([^"]+)"')


@cache
def functions_of(path):
    """The functions of a file of tests, by name."""
    nodes = ast.walk(ast.parse((TESTS / path).read_text(encoding="utf-8")))
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}


def has_test(path, name):
    return (TESTS / path).is_file() and name in functions_of(path)


def missing(text):
    """The names on a page that do not exist."""
    tests = [f"{path}::{name}" for path, name in NAMED_TEST.findall(text) if not has_test(path, name)]
    bugs = {bug.name for bug in EVERY.values()}
    return tests + [name for name in NAMED_BUG.findall(text) if name not in bugs]


def test_all_tests_and_planted_bugs_that_the_page_names_exist():
    assert len(NAMED_TEST.findall(PAGE)) > 40
    assert missing(PAGE) == []


def test_the_page_has_all_its_rows_each_with_a_test_and_a_control():
    rows = ROW.findall(PAGE)
    assert sorted(int(number) for number, *_ in rows) == list(range(1, 66))
    for number, _, _, shown_by, control in rows:
        assert NAMED_TEST.search(shown_by), number
        assert NAMED_TEST.search(control) or NAMED_BUG.search(control), number


def is_over_threads(path, name):
    """Whether a test mentions threads, in its decorators or in itself."""
    return "threads" in ast.unparse(functions_of(path)[name]).lower()


def test_the_rows_listed_as_run_over_threads_are_and_the_others_have_a_reason():
    (listed,) = re.findall(r"^Of the rows of the loader.* over threads too: ([\d, ]+)\.", PAGE, re.MULTILINE)
    reasons = re.findall(r"^\| ([\d, ]+) \| [^|]+ \|$", PAGE, re.MULTILINE)
    over = {int(number) for number in listed.split(", ")}
    others = {int(number) for row in reasons for number in row.split(", ")}
    tests = {int(number): NAMED_TEST.findall(shown_by) for number, _, _, shown_by, _ in ROW.findall(PAGE)}
    run = {number for number in range(1, 27) if any(is_over_threads(*test) for test in tests[number])}
    assert over == run
    assert (over | others, over & others) == ({*range(1, 27)}, set())


def test_every_planted_bug_of_a_row_is_named():
    assert {bug.name for bug in reliability.BUGS} <= set(NAMED_BUG.findall(PAGE))
