"""Runs a command, and ends it when the process that reads its output has ended in any way.

This file is run as a separate program that imports as little as possible: `python -I -S supervisor.py PROGRAM
ARGUMENT...`. The command writes to the supervisor's standard output. The supervisor's standard input is a
pipe: it ends when the reader writes to the pipe, or when the pipe is closed because the reader has ended.
"""

import _thread
import os
import signal
import sys


def main() -> int:
    """Runs the command of the command line.

    Returns:
        Its exit code; 128 plus the number of the signal that ended it; 127 if it cannot be started.
    """
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        try:
            os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606  # an argument list that the user allowed
        except OSError:
            os._exit(127)
    try:  # noqa: SIM105  # importing contextlib takes longer than the whole program
        # Also called here, since either process may run first.
        os.setpgid(child, child)
    except OSError:
        pass
    _thread.start_new_thread(_end_with_input, (child,))
    # The reader would not notice that the command has closed its output while this copy is open.
    os.close(1)
    _, status = os.waitpid(child, 0)
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _end_with_input(child: int) -> None:
    os.read(0, 1)
    os.killpg(child, signal.SIGKILL)


if __name__ == "__main__":
    os._exit(main())
