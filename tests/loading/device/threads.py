"""What the tests of the device loader know of threads."""

from __future__ import annotations

import threading


def loading_threads():
    """The names of the loading threads that are alive."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("samplerkit-device")]
