"""What the tests of loaders share."""

from __future__ import annotations

import signal
import tempfile

import pytest

from samplerkit.loading.workers import loader_workers
from tests.loading import numbers
from tests.loading.worker_kinds import RandomSchedule, beside


@pytest.fixture
def short_folder():
    """A temporary folder whose name leaves room for that of a socket, as `tmp_path` does not."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


@pytest.fixture(params=[0, "2 threads", "2 threads and the loop"])
def beside_or_not(request, monkeypatch):
    """Has the loaders of numbers of a test read in the loop, over threads, and over both in turn."""
    monkeypatch.setattr(numbers, "BESIDE", beside(request.param))
    if request.param == "2 threads and the loop":
        monkeypatch.setattr(loader_workers, "ThreadSchedule", RandomSchedule)


@pytest.fixture
def no_hang():
    """Raises in the test after a minute, so that a loop that hangs is a failure."""

    def ring(*_):
        raise TimeoutError("the loop hangs")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
