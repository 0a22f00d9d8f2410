"""What is told of long work on a terminal."""

from __future__ import annotations

import io
import itertools

from samplerkit.storage import progress


class Terminal(io.StringIO):
    """A terminal that keeps what it is told."""

    def isatty(self):
        return True


def test_a_line_is_rewritten_a_few_times_a_second_and_not_at_each_step(monkeypatch):
    terminal, clock = Terminal(), itertools.count()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock) * progress.PATIENCE_SECONDS / 16)
    line = progress.TerminalLine()
    for done in range(101):
        line("counting", done, 1000)
    assert terminal.getvalue() == "".join(f"\rcounting {done} of 1,000" for done in range(5, 101, 5))
