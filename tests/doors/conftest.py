"""All tests of this folder are marked `doors`; where a package is not installed, its tests are skipped."""

from __future__ import annotations

import pytest

from tests.trainers.conftest import packages_are_installed as packages_are_installed  # noqa: PLC0414


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item):
    item.add_marker(pytest.mark.doors)
