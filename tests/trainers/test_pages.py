"""The blocks of the pages are those of the examples, which are run; and every example has a page."""

import re
import textwrap

import pytest

from tests.trainers.jobs import EXAMPLES, ROOT

BLOCK = re.compile(r"^```(?:python|yaml)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = sorted(path.name for path in EXAMPLES.glob("*.md"))
JOBS = [path for room in ("trainers", "doors") for path in (ROOT / "tests" / room).glob("*_job.py")]
SOURCES = [*EXAMPLES.glob("*.py"), *EXAMPLES.rglob("*.yaml"), *JOBS]


def is_in_one_of(block, texts):
    """Whether a text has these lines one after another, however far they are indented there."""
    lines = re.escape(textwrap.dedent(block).rstrip("\n")).split("\\\n")
    pattern = r"\n".join(rf"[ ]*{line}" if line else "" for line in lines)
    return any(re.search(rf"^{pattern}$", text, re.MULTILINE) for text in texts)


def blocks_of(text):
    """All blocks of Python and YAML on a page."""
    blocks = BLOCK.findall(text)
    assert len(blocks) == len(re.findall(r"^\s*```\s*(?:py|yaml)", text, re.MULTILINE))
    return blocks


@pytest.mark.parametrize("page", [page for page in PAGES if page != "index.md"])
def test_the_blocks_of_a_page_are_in_code_that_is_run(page):
    texts = [path.read_text() for path in SOURCES]
    blocks = blocks_of((EXAMPLES / page).read_text())
    assert blocks
    assert [block for block in blocks if not is_in_one_of(block, texts)] == []


def test_a_missing_block_is_found():
    text = "def f():\n    a = 1\n    b = 2\n"
    assert is_in_one_of("a = 1\nb = 2\n", [text])
    assert not is_in_one_of("a = 1\nb = 3\n", [text])
    assert not is_in_one_of("a = 1\n\nb = 2\n", [text])


def test_every_example_and_every_page_is_named():
    index = (EXAMPLES / "index.md").read_text()
    assert [page for page in PAGES if page != "index.md" and f"]({page})" not in index] == []
    pages = "".join((EXAMPLES / page).read_text() for page in PAGES)
    assert [path.name for path in sorted(EXAMPLES.glob("train_*.py")) if path.name not in pages] == []
