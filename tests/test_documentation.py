"""The Python blocks of README and docs run, with the values in their comments."""

import ast
import doctest
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

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
