"""What each test of whole device loaders holds itself to."""

from __future__ import annotations

import gc

import pytest

from tests.loading.device.kinds import loading_threads
from tests.waiting import wait_until


@pytest.fixture
def no_thread_is_left():
    yield
    gc.collect()
    wait_until(lambda: loading_threads() == [])
