"""The names in docs/reliability.md exist: tests, planted bugs, and all rows."""

import ast
import re
from functools import cache
from pathlib import Path

from tests.campaigns.planted import EVERY, reliability

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "reliability.md").read_text(encoding="utf-8")

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
