"""What holds for all tests."""

import signal

# A shell that starts pytest in the background makes it, and every process that a test starts, deaf to Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
