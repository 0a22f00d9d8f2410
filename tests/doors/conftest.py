"""All tests of this folder are marked `doors`; where a package is not installed, its tests say so."""

from __future__ import annotations

import pytest

from tests.trainers.conftest import packages_are_installed as packages_are_installed  # noqa: PLC0414

# It runs in a process of its own, and imports at once what may not be installed.
collect_ignore = ["sft_job.py"]


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item):
    item.add_marker(pytest.mark.doors)
