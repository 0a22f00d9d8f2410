"""Whether the tests of tokens would notice: bugs in blocks, lengths that change, and epochs of sources.

Run it with `pytest -m campaign tests/campaigns/test_planted_token_bugs.py`.
"""

from __future__ import annotations

import pytest

from tests.campaigns.planting import Bug, notices

pytestmark = pytest.mark.campaign

LAWS = "tests/samplers/test_blocks.py"
RESUMED = "tests/loading/test_tokens_resumed.py"
OTHER_LENGTHS = "tests/loading/test_other_window_lengths.py"
SOURCES = "tests/loading/test_epochs_of_sources.py"

BUGS = [
    Bug(
        "pools count windows, not blocks",
        "cut",
        "pool * pieces",
        "pool",
        LAWS,
    ),
    Bug(
        "a pass is lost where blocks are cut",
        "CutBlocks.passes_at",
        "positions // self._pieces",
        "positions % self._pieces",
        LAWS,
    ),
    Bug(
        "the number of windows is in the key of the permutation of blocks",
        "BlockSampler._blocks",
        'context.key(self.seed, "blocks")',
        'context.key(self.seed + (self.windows_per_block or 0), "blocks")',
        LAWS,
    ),
    Bug(
        "another length is taken within a pool",
        "RunTokens.rescaled",
        "state.position % of_pool and state.position != end",
        "False",
        OTHER_LENGTHS,
    ),
    Bug(
        "the position stays as it was, in windows of another length",
        "RunTokens.rescaled",
        "state.position * self.pieces // before",
        "state.position",
        RESUMED,
    ),
    Bug(
        "another length is taken whatever the order is",
        "RunTokens.require_survivable",
        'None in (saved["pool"], self.pool)',
        "False",
        OTHER_LENGTHS,
    ),
    Bug(
        "the phase is that of the epoch of the run, not of the source",
        "Part.epochs_at",
        "not self._runs_on",
        "True",
        SOURCES,
    ),
]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_the_tests_of_tokens_notice_a_planted_bug(bug):
    assert notices(bug)
