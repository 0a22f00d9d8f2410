"""What the tests of loaders share."""

from __future__ import annotations

import pytest

from tests.loading import numbers
from tests.loading.worker_kinds import beside


@pytest.fixture(params=[0, "2 threads"])
def beside_or_not(request, monkeypatch):
    """Has the loaders of numbers of a test read in the loop, and once more over threads."""
    monkeypatch.setattr(numbers, "BESIDE", beside(request.param))
