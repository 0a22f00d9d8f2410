"""What the tests of threads as workers know of threads."""

from __future__ import annotations

import threading


def threads_of_loaders():
    """Those that are alive: one whose start an interrupt has cut off is listed for ever, and never runs."""
    mine = [thread for thread in threading.enumerate() if thread.name.startswith("samplerkit-worker")]
    return [thread for thread in mine if thread.is_alive()]
