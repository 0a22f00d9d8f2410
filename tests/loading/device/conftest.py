"""What each test of device loaders checks at its end."""

import gc

import pytest

from tests.loading.device.kinds import loading_threads
from tests.waiting import wait_until


@pytest.fixture
def no_thread_remains():
    yield
    gc.collect()
    wait_until(lambda: loading_threads() == [])
