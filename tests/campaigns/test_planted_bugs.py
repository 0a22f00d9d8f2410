"""Whether the tests would notice: bugs planted one at a time in a copy of the package.

`pytest -m campaign tests/campaigns/test_planted_bugs.py -k ledger` runs those of `planted/ledger.py`.
"""

import pytest

from tests.campaigns.planted import EVERY
from tests.campaigns.planted.loader import OVER_THREADS
from tests.campaigns.planting import notices, require_passing

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module", autouse=True)
def _tests_pass_without_bugs():
    yield
    require_passing()


@pytest.mark.parametrize("name", EVERY)
def test_a_planted_bug_is_noticed(name):
    assert notices(EVERY[name])


@pytest.mark.parametrize("bug", OVER_THREADS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_noticed_over_threads_alone(bug):
    assert notices(bug, among="threads")
