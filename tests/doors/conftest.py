"""All tests of this folder are marked `doors`; a missing package is reported by its tests."""

import pytest

from tests.trainers.conftest import packages_are_installed as packages_are_installed  # noqa: PLC0414


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item):
    item.add_marker(pytest.mark.doors)
