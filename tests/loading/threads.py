"""What the tests of threads as workers know of threads."""

from __future__ import annotations

import threading


def threads_of_loaders():
    return [thread for thread in threading.enumerate() if thread.name.startswith("samplerkit-worker")]
