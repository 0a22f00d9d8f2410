"""What holds for all tests."""

import gc
import signal

# A shell that starts pytest in the background makes it, and every process that a test starts, deaf to Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish():
    """Sets aside what was imported, which each collection of garbage would look through."""
    gc.collect()
    gc.freeze()
