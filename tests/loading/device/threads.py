"""What the tests of the device loader know of threads."""

from __future__ import annotations

import threading
import time


def loading_threads():
    """The names of the loading threads that are alive."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("samplerkit-device")]


def wait_until(condition, seconds=10):
    """Waits for something that another thread brings about, and fails if it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.001)
