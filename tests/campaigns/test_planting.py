"""The place of a planted bug is found by name and syntax, wherever it moves and however it is formatted."""

import ast
import json

import pytest

from tests.campaigns.planted import EVERY
from tests.campaigns.planting import RECORD, Bug, planted
from tests.jobs import ROOT

BUG = Bug("one too many", "Deck.cards", "range(self.low, self.high)", "range(self.low, self.high + 1)", "")
DECK = """
class Deck:
    def cards(self):
        {statement}
    def others(self):
        return list(range(self.low, self.high))
"""


def of_files(folder, **statements):
    for name, statement in statements.items():
        (folder / f"{name}.py").write_text(DECK.format(statement=statement))
    return folder


def test_every_planted_bug_has_its_place():
    files = [planted(bug)[0] for bug in EVERY.values()]
    assert len({bug.name for bug in EVERY.values()}) == len(files) >= 120


def test_every_test_that_a_planted_bug_names_exists():
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    assert {key.removesuffix(", threads") for key in recorded} <= {bug.name for bug in EVERY.values()}
    named = {name for bug in EVERY.values() for name in bug.tests.split()}
    named |= {test.partition("[")[0] for test in recorded.values()}
    assert all(bug.tests.split() for bug in EVERY.values())
    for file in {name.partition("::")[0] for name in named}:
        nodes = ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        tests = {f"{file}::{node.name}" for node in nodes if isinstance(node, ast.FunctionDef)}
        assert {name for name in named if name.startswith(f"{file}::")} <= tests
        assert any("::test_" in test for test in tests), file


@pytest.mark.parametrize("file", ["here", "elsewhere"])
@pytest.mark.parametrize(
    "statement",
    ["return list(range(self.low, self.high))", "return list(  # all\n  range(self.low,\n self.high,))"],
)
def test_a_bug_is_planted_wherever_and_however_its_place_is_written(tmp_path, file, statement):
    path, module = planted(BUG, of_files(tmp_path, **{file: statement}))
    assert path.stem == file
    assert ast.unparse(module).split() == DECK.format(statement=f"return list({BUG.wrong})").split()


def test_statements_are_replaced_by_any_number_of_them(tmp_path):
    folder = of_files(tmp_path, deck="print('a')\n        print(\"b\")\n        return 1")
    for right, wrong, statements in [
        ('print("a")\nprint("b")', "pass", "pass"),
        ('print("b")', "print('c')\nprint('d')", "print('a') print('c') print('d')"),
    ]:
        _, module = planted(BUG._replace(right=right, wrong=wrong), folder)
        assert f"def cards(self): {statements} return 1" in " ".join(ast.unparse(module).split())


@pytest.mark.parametrize(
    ("statements", "times"),
    [
        ({}, "0 times in no file"),
        ({"deck": "return list(range(self.high))"}, "0 times in deck.py"),
        (
            {"deck": "return list(range(self.low, self.high)), range(self.low, self.high)"},
            "2 times in deck.py",
        ),
        ({"a": f"return {BUG.right}", "b": f"return {BUG.right}"}, "2 times in a.py, b.py"),
    ],
)
def test_a_place_that_does_not_occur_once_is_an_error_with_the_text_to_look_for(tmp_path, statements, times):
    with pytest.raises(LookupError) as caught:
        planted(BUG, of_files(tmp_path, **statements))
    assert str(caught.value) == (
        f"'one too many': look for `range(self.low, self.high)` in a definition of Deck.cards; found {times}"
    )
