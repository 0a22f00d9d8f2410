"""Skips the tests of trainers that are not installed.

The reason is printed. Where SAMPLERKIT_NOT_INSTALLABLE is set, even to nothing, they fail
instead, except for the packages that it names: `SAMPLERKIT_NOT_INSTALLABLE=ray pytest -m trainers -rs`.
"""

import os
from importlib import metadata

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item):
    """Marks all tests of this folder, most of which start jobs: `pytest -m trainers` runs them."""
    item.add_marker(pytest.mark.trainers)


@pytest.fixture(autouse=True)
def packages_are_installed(request):
    """Checks for the packages that a test module names in NEEDS."""
    not_installable = os.environ.get("SAMPLERKIT_NOT_INSTALLABLE")
    for name in getattr(request.module, "NEEDS", ()):
        if _is_installed(name):
            continue
        reason = f"not run: {name} is not installed"
        if not_installable is not None and name not in not_installable.split(","):
            pytest.fail(f"{reason}, and SAMPLERKIT_NOT_INSTALLABLE does not name it", pytrace=False)
        pytest.skip(reason)


def _is_installed(name):
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True
