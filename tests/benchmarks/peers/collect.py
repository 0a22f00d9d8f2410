"""Runs every cell of every peer, and collects the results in one JSON value."""

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.benchmarks.peers.cases import CURVE_CELLS, QUICK_ROWS, QUICK_SIZES, ROWS, SIZES
from tests.benchmarks.peers.environments import PEERS, Environment
from tests.benchmarks.peers.limits import ENDED, ROOT, cells_of
from tests.benchmarks.timing import printed_by

Cells = list[dict[str, Any]]

MODULE = "tests.benchmarks.peers"


def command_of(python: str, peer: str, *arguments: object) -> list[str]:
    """Gives the command that measures one thing with one peer."""
    return [python, "-m", f"{MODULE}.{peer}", *map(str, arguments)]


def once(python: str, peer: str, *arguments: object) -> Cells:
    """Measures one thing with one peer."""
    return [dict(cell) for cell in cells_of(command_of(python, peer, *arguments))]


@dataclass
class Measured:
    """What one peer has measured so far.

    Args:
        name: of the peer.
        python: the interpreter of its environment.
        versions: of what is measured.
        curve: the cells at growing sizes.
        rows: the cells of rows in memory.
        ranks: the cells of changes of the number of ranks.
        settled: why some cells of a curve are not tried any more.
    """

    name: str
    python: str
    versions: dict[str, str]
    curve: Cells = field(default_factory=list)
    rows: Cells = field(default_factory=list)
    ranks: Cells = field(default_factory=list)
    settled: dict[str, dict[str, str]] = field(default_factory=dict)

    def measure_size(self, size: int) -> None:
        """Measures the cells of a curve; one over a limit or not offered is not tried at a larger size."""
        remaining = [cell for cell in CURVE_CELLS if cell not in self.settled]
        self.curve += [{"cell": cell, "size": size, **answer} for cell, answer in self.settled.items()]
        while remaining:
            run = once(self.python, self.name, "curve", size, ",".join(remaining))
            if not run:
                run = [{ENDED: "it printed nothing"}]
            for cell in run:
                if ENDED in cell:
                    # The cell that was under way; those after it are tried in a process of their own.
                    self.settled[remaining[0]] = cell
                    self.curve.append({"cell": remaining.pop(0), "size": size, **cell})
                else:
                    remaining.remove(cell["cell"])
                    if "none" in cell:
                        self.settled[cell["cell"]] = {"none": cell["none"]}
                    self.curve.append(cell)

    def results(self) -> dict[str, Any]:
        """Gives what was measured."""
        return {"versions": self.versions, "curve": self.curve, "rows": self.rows, "ranks": self.ranks}


def started(environments: dict[str, Environment], peer: str) -> Measured | str:
    """Starts a peer once; gives it, or why it does not run."""
    environment = environments[PEERS[peer]]
    if environment.reason is not None:
        return environment.reason
    versions = once(environment.python, peer, "versions")
    if not versions or ENDED in versions[0]:
        return str(versions[0][ENDED]) if versions else "it printed nothing"
    return Measured(peer, environment.python, versions[0]["versions"])


def measure_peers(
    environments: dict[str, Environment], names: Sequence[str], *, quick: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measures the peers in turns, so that those of a row meet the machine in the same minutes.

    Yields:
        What was measured last, and all results so far.
    """
    started_peers = {name: started(environments, name) for name in names}
    peers = [peer for peer in started_peers.values() if isinstance(peer, Measured)]

    def results() -> dict[str, Any]:
        return {
            name: peer.results() if isinstance(peer, Measured) else {"not_run": peer}
            for name, peer in started_peers.items()
        }

    for size in QUICK_SIZES if quick else SIZES:
        for peer in peers:
            peer.measure_size(size)
        yield f"n = {size:,}", results()
    for workers in (0, 2):
        for peer in peers:
            peer.rows += once(peer.python, peer.name, "rows", QUICK_ROWS if quick else ROWS, workers)
        yield f"rows, {workers} workers", results()
    for peer in peers:
        peer.ranks = once(peer.python, peer.name, "ranks")
    yield "ranks", results()


TEXTS = {"core": ("core", "--quick"), "tar": ("tar", "--quick")}
"""The benchmarks that print their own Markdown."""

TEXT_SECONDS = 420


def text_of(python: str, command: Sequence[str]) -> str:
    """Runs a benchmark that prints Markdown; gives that, or why there is none."""
    try:
        return printed_by(*command, python=python, timeout=TEXT_SECONDS, PYTHONWARNINGS="ignore").strip()
    except RuntimeError as error:
        return f"Not run: {error}"


def machine() -> dict[str, Any]:
    """Returns where and when this is measured, and what."""
    git = shutil.which("git")
    commit = git and subprocess.run(
        [git, "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "in_front": os.sched_getscheduler(0) in {os.SCHED_FIFO, os.SCHED_RR},
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "commit": (commit and commit.stdout.strip()) or "unknown",
    }


def collect(
    environments: dict[str, Environment], *, quick: bool, only: Sequence[str], texts: Sequence[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measures everything.

    Args:
        environments: by name, as `environments` made them.
        quick: small sizes only.
        only: the peers to measure.
        texts: the benchmarks with Markdown of their own to run.

    Yields:
        What was measured last, and all results so far: a run that is stopped keeps what it has.
    """
    start = time.monotonic()
    results: dict[str, Any] = {"machine": machine(), "quick": quick, "peers": {}, "texts": {}}
    for done, peers in measure_peers(environments, only, quick=quick):
        results |= {"peers": peers, "seconds": round(time.monotonic() - start)}
        yield done, results
    python = environments["torch"].python or sys.executable
    for name in texts:
        results["texts"][name] = text_of(python, TEXTS[name])
        results["seconds"] = round(time.monotonic() - start)
        yield name, results
