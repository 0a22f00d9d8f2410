"""How long work takes, in turns or in a process of its own; tables in Markdown. Standard library only."""

import json
import multiprocessing
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

ROOT = Path(__file__).parents[2]
K = TypeVar("K")
T = TypeVar("T")


class Used(NamedTuple):
    """Seconds by the clock, and of the processor: of this process, and of its children that have ended."""

    clock: float
    processor: float


def now() -> Used:
    """The seconds so far: the difference of two is what was used between them."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Used(time.perf_counter(), time.process_time() + children.ru_utime + children.ru_stime)


def timed(work: Callable[[], T]) -> tuple[T, Used]:
    """Calls a function; returns its result, and the seconds that it took."""
    start = now()
    result = work()
    ended = now()
    return result, Used(ended.clock - start.clock, ended.processor - start.processor)


def seconds(work: Callable[[], Any]) -> float:
    """The seconds of one call by the clock."""
    return timed(work)[1].clock


def in_turns(works: Mapping[K, Callable[[], T]], rounds: int) -> dict[K, list[T]]:
    """The result of each function in each round; they take turns, so that all meet the same noise."""
    results: dict[K, list[T]] = {name: [] for name in works}
    for _, (name, work) in product(range(rounds), works.items()):
        results[name].append(work())
    return results


def medians(times: Mapping[str, list[float]]) -> dict[str, float]:
    """The median of each row."""
    return {name: statistics.median(values) for name, values in times.items()}


def forked(work: Callable[[], T]) -> T:
    """The result of a function that is called in a fork of this process."""
    context = multiprocessing.get_context("fork")
    answer = context.SimpleQueue()
    process = context.Process(target=lambda: answer.put(work()))
    process.start()
    result: T = answer.get()
    process.join()
    return result


def side_by_side(other: Callable[[], Any], work: Callable[[], Any]) -> float:
    """Seconds by the clock of both, the other one in a fork: two processes that never communicate."""
    context = multiprocessing.get_context("fork")
    both = context.Barrier(2)

    def start() -> None:
        both.wait()
        other()

    process = context.Process(target=start)
    process.start()

    def both_done() -> None:
        work()
        process.join()

    both.wait()
    return seconds(both_done)


def printed_by(
    module: str,
    *arguments: object,
    python: str | Path = sys.executable,
    timeout: float | None = None,
    **environment: str,
) -> str:
    """What a module of the benchmarks prints in a process of its own.

    Args:
        module: below `tests.benchmarks`.
        arguments: of its command line.
        python: the interpreter, such as that of a peer's environment.
        timeout: seconds that it may take.
        environment: variables besides those of this process.

    Raises:
        RuntimeError: it took longer, or failed; the message is the last line of its standard error.
    """
    command = [python, "-m", f"tests.benchmarks.{module}", *map(str, arguments)]
    variables = {**os.environ, **environment}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"over {timeout} s") from None
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return done.stdout


def answer_of(module: str, *arguments: object, **options: Any) -> Any:
    """The JSON value that a module prints last, in a process of its own: as `printed_by`."""
    return json.loads(printed_by(module, *arguments, **options).splitlines()[-1])


def versions(*packages: str) -> str:
    """The versions of Python and of some packages, and the kind of machine."""
    # A checkout need not be installed, but an imported package has its version.
    numbers = (getattr(sys.modules.get(name), "__version__", None) or version(name) for name in packages)
    named = ", ".join(f"{name} {number}" for name, number in zip(packages, numbers, strict=True))
    return f"Python {platform.python_version()}, {named}, {platform.machine()}"


def print_header(*titles: str) -> None:
    """Begins a table."""
    print_row(*titles)
    print(f"|{'---|' * len(titles)}", flush=True)


def print_row(*cells: object) -> None:
    """Prints a row of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
