"""What the tests of loaders share."""

from __future__ import annotations

import pytest

from samplerkit.loading import source
from tests.loading import numbers
from tests.loading.thread_ways import DicedTurns
from tests.loading.worker_kinds import beside


@pytest.fixture(params=[0, "2 threads", "2 threads and the loop"])
def beside_or_not(request, monkeypatch):
    """Has the loaders of numbers of a test read in the loop, over threads, and over both in turn."""
    monkeypatch.setattr(numbers, "BESIDE", beside(request.param))
    if request.param == "2 threads and the loop":
        monkeypatch.setattr(source, "ThreadTurns", DicedTurns)
