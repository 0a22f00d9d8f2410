"""How much memory a piece of work takes at its peak, beyond what the process has before. Linux only."""

from pathlib import Path

RESET_PEAK = "5"
"""What makes the kernel forget the peak of a process, written to its clear_refs."""


def status_mib(field: str, pid: int | str = "self") -> float:
    """Gives a field of a process's status, in MiB; 0 where the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:")), 0.0)


class PeakGrowth:
    """The growth of this process's memory peak from now on."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text(RESET_PEAK, encoding="ascii")
        self._before = status_mib("VmRSS")

    def mib(self) -> float:
        """Gives the growth so far, in MiB."""
        return max(0.0, status_mib("VmHWM") - self._before)
