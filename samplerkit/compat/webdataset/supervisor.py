"""Runs a command, and ends it when the reader of its output is gone, however that ended.

It is run as a program of its own, with as little of Python as possible: `python -I -S supervisor.py PROGRAM
ARGUMENT...`. The command writes to our standard output. Our standard input is a pipe into which nobody writes
but to end us; it ends by itself with the process at its other end.
"""

import _thread
import os
import signal
import sys


def main() -> int:
    """Runs the command of the command line.

    Returns:
        Its exit code; 128 and the number of the signal that ended it; 127 if it cannot be started.
    """
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        try:
            os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  # an argument list that the user allowed
        except OSError:
            os._exit(127)
    try:  # noqa: SIM105  # contextlib takes longer to import than all of this to run
        # Here too, since nobody knows which of the two processes is first.
        os.setpgid(child, child)
    except OSError:
        pass
    _thread.start_new_thread(_end_with_input, (child,))
    # Who reads holds the other end: this copy would hide that the command has closed its own.
    os.close(1)
    _, status = os.waitpid(child, 0)
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _end_with_input(child: int) -> None:
    os.read(0, 1)
    os.killpg(child, signal.SIGKILL)


if __name__ == "__main__":
    os._exit(main())
