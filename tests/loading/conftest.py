"""What the tests of loaders share."""

import signal
import tempfile

import pytest

from samplerkit.loading.workers import loader_workers
from tests.loading import numbers
from tests.loading.worker_kinds import RandomSchedule, with_workers


@pytest.fixture
def short_folder():
    """A temporary folder whose name leaves room for that of a socket, as `tmp_path` does not."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


@pytest.fixture(params=[0, "2 threads", "2 threads and the loop"])
def each_worker_kind(request, monkeypatch):
    """The loaders of numbers of a test read in the loop, in threads, and in both in turn."""
    monkeypatch.setattr(numbers, "WORKERS", with_workers(request.param))
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
