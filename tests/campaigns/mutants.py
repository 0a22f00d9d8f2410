"""Whether the tests would notice a random change of the package, and which changes they do not.

    python -m tests.campaigns.mutants record FOLDER        # which test runs which line: once
    python -m tests.campaigns.mutants run FOLDER --seed 1  # 300 mutants; resumes where it stopped
    python -m tests.campaigns.mutants report FOLDER --seed 1

A mutant is a copy of the package with one mutation, drawn by the seed from all of `order`, `samplers`,
`batches`, `loading`, `storage` and `config`. First the tests that run the mutated line are tried, the
quickest first, then, unless it is to be `--quick`, all tests of its room, until one fails that passes without
the mutation. One that survives is examined by hand: either it changes no behaviour, and is listed in
`equivalent_mutants.json` with the reason, or a test is missing.
"""

import argparse
import ast
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from coverage import CoverageData

from tests.campaigns.forked import copied, failing, prepare, replace
from tests.campaigns.mutations import Mutation, mutations

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "samplerkit"
ROOMS = ("order", "samplers", "batches", "loading", "storage", "config")
BESIDE = ["tests/test_bad_arguments.py", "tests/testing"]
TESTS = [f"{of}/{room}" for of in ("tests", "samplerkit") for room in ROOMS] + BESIDE
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
LIMITS = (1.0, 8.0)
"""How long the tests that are tried first took when they were recorded, and those after them."""
UNKNOWN_SECONDS = 0.3
"""What a test is taken to last where the recording was cut short."""
CHOSEN_SECONDS, WHOLE_SECONDS = 90.0, 600.0
"""With a mutant that chosen tests do not end with in this time, something was noticed; a room may be slow."""


def drawn(seed: int, count: int) -> list[Mutation]:
    """Gives the mutants of a seed."""
    files = [path for room in ROOMS for path in sorted(PACKAGE.glob(f"{room}/**/*.py"))]
    every = [mutation for path in files for mutation in mutations(PACKAGE, str(path.relative_to(PACKAGE)))]
    return random.Random(seed).sample(every, count)


def record(folder: Path) -> None:
    """Runs the tests once and keeps which of them runs which line, and how long each takes."""
    folder.mkdir(parents=True, exist_ok=True)
    options = [
        "--cov=samplerkit",
        "--cov-context=test",
        "--cov-report=",
        f"--junitxml={folder / 'times.xml'}",
    ]
    environment = {**os.environ, "COVERAGE_FILE": str(folder / "coverage")}
    # A test that fails finds no mutant, and the rest of the record is still valid.
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, *TESTS], cwd=ROOT, env=environment, check=False
    )


class Recording:
    """Which tests run a line, and how many seconds each takes: what `record` left in a folder."""

    def __init__(self, folder: Path) -> None:
        self._data = CoverageData(no_disk=True)
        for path in sorted(folder.glob("coverage*")):  # of each process, if the run was cut short
            part = CoverageData(str(path))
            part.read()
            self._data.update(part)
        times = folder / "times.xml"
        cases = ET.parse(times).iter("testcase") if times.exists() else ()  # noqa: S314  # pytest wrote it
        self._seconds = {
            _node(case.attrib["classname"], case.attrib["name"]): float(case.attrib["time"]) for case in cases
        }
        self._contexts = cache(self._data.contexts_by_lineno)

    def tests_of(self, mutation: Mutation) -> dict[str, float]:
        """Gives the tests that run the mutated line, or what is nearest to it, and their seconds."""
        file = f"/samplerkit/{mutation.file}"
        contexts = self._contexts(
            next((path for path in self._data.measured_files() if path.endswith(file)), "")
        )
        for lines in _lines_of(PACKAGE / mutation.file, mutation):
            tests = {context.partition("|")[0] for line in lines for context in contexts.get(line, ())} - {""}
            if tests:
                return {test: self._seconds.get(test, UNKNOWN_SECONDS) for test in sorted(tests)}
        return {}


def _node(module: str, name: str) -> str:
    """Gives the name by which pytest knows a test, from its name in the report."""
    parts = module.split(".")
    counts = range(len(parts), 0, -1)
    at = next((n for n in counts if (ROOT / "/".join(parts[:n])).with_suffix(".py").exists()), 0)
    return "::".join(["/".join(parts[:at]) + ".py", *parts[at:], name])


def _lines_of(path: Path, mutation: Mutation) -> Iterator[Iterable[int]]:
    """Yields the lines whose tests are tried: of the statement, of its function, of the file."""
    tree = ast.parse(path.read_text())
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    around = sorted(
        (node for node in statements if mutation.line in _range(node)), key=lambda node: node.lineno
    )
    body = getattr(around[-1], "body", None)
    yield range(around[-1].lineno, body[0].lineno) if body else _range(around[-1])
    for node in reversed(around):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            # The line of `def` runs when the module is imported, whatever is tested.
            yield range(node.body[0].lineno, _range(node).stop)
    # A constant, or a field: where its name occurs.
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name | ast.Attribute)]
    used = {getattr(node, "id", "") for node in ast.walk(around[-1])}
    yield [node.lineno for node in names if (node.id if isinstance(node, ast.Name) else node.attr) in used]
    yield range(1, _range(tree.body[-1]).stop)


def _range(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def stages_of(seconds: dict[str, float]) -> list[list[str]]:
    """Returns the tests to try: a few that are quick and differ, then more of them."""
    queues: dict[str, list[str]] = defaultdict(list)
    for test in sorted(seconds, key=seconds.__getitem__):
        queues[test.partition("[")[0]].append(test)
    # One case of each test in turn: a second case of the same finds less than another test.
    remaining = [test for row in itertools.zip_longest(*queues.values()) for test in row if test is not None]
    stages: list[list[str]] = []
    for limit in LIMITS:
        sums = itertools.accumulate(seconds[test] for test in remaining)
        count = sum(total <= limit for total in sums)
        stages.append(remaining[:count])
        remaining = remaining[count:]
    return stages


def try_mutant(mutation: Mutation, tests: dict[str, float], clean: Path, *, whole: bool) -> dict[str, Any]:
    """Runs the tests over a mutant, in the end those of its whole room; returns the failed one."""
    with tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as name:
        folder = copied(clean, Path(name), "docs", "README.md")
        target = folder / "samplerkit" / mutation.file
        replace(target, mutation.applied(target.read_bytes()))
        stages = [(chosen, CHOSEN_SECONDS) for chosen in stages_of(tests)]
        if whole:
            room = mutation.file.partition("/")[0]
            stages.append(([f"tests/{room}", f"samplerkit/{room}", *BESIDE], WHOLE_SECONDS))
        for stage, (chosen, seconds) in enumerate(stages):
            by = _noticed(folder, clean, chosen, seconds)
            if by and not (by == "time" and seconds == WHOLE_SECONDS):
                return {"caught": True, "stage": stage, "by": by}
    return {"caught": False, "stage": None, "by": None}


def _noticed(folder: Path, clean: Path, tests: list[str], seconds: float) -> str | None:
    """Gives the first test that fails over the mutant, and passes without the mutation."""
    while tests:
        by = failing(folder, tests, seconds)
        again = [by] if by in tests else tests
        if by is None or failing(clean, again, seconds) is None:
            return by
        print("fails without a mutation:", by, flush=True)
        tests = [test for test in tests if test not in again]
    return None


def run(folder: Path, seed: int, count: int, parallel: int, *, whole: bool) -> None:
    """Tries the mutants of a seed that were not tried yet, in some processes."""
    recording = Recording(folder)
    results = folder / f"mutants-{seed}.jsonl"
    known = {line["number"] for line in _lines(results)}
    # All tests are looked up here: what coverage read is lost in a fork.
    todo = [
        (number, mutant, recording.tests_of(mutant))
        for number, mutant in enumerate(drawn(seed, count))
        if number not in known
    ]
    prepare()
    workers = []
    for part in range(parallel):
        worker = os.fork()
        if worker == 0:
            _work(todo[part::parallel], results, whole=whole)
            return
        workers.append(worker)
    for worker in workers:
        os.waitpid(worker, 0)


def _work(todo: list[tuple[int, Mutation, dict[str, float]]], results: Path, *, whole: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="clean-", ignore_cleanup_errors=True) as name:
        clean = copied(ROOT, Path(name), "docs", "README.md")
        for number, mutant, tests in todo:
            outcome = try_mutant(mutant, tests, clean, whole=whole)
            place = f"{mutant.file}:{mutant.line} {mutant.function}"
            line = {"number": number, "place": place, "shown": mutant.shown, **outcome}
            with results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print("caught" if outcome["caught"] else "LIVES ", place, "|", mutant.shown, flush=True)


def report(folder: Path, seed: int) -> None:
    """Prints the share that was caught, and the mutants that survived."""
    # By function and text, so that a file may be moved; `file` is its present place.
    equivalent = {(line["function"], line["shown"]) for line in json.loads(EQUIVALENT.read_text())}
    lines = _lines(folder / f"mutants-{seed}.jsonl")
    alive = [line for line in lines if not line["caught"]]
    same = [line for line in alive if (line["place"].partition(" ")[2], line["shown"]) in equivalent]
    rest = [line for line in alive if line not in same]
    counted = len(lines) - len(same)
    caught = counted - len(rest)
    print(f"seed {seed}: {len(lines)} mutants, {len(same)} change nothing; {caught} of {counted} caught")
    print(f"share caught: {caught / max(1, counted):.1%}")
    for line in rest:
        print("survived:", line["place"], "|", line["shown"])


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    """Runs one of the three commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=["record", "run", "report"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="leave out the last stage, whole rooms")
    chosen = parser.parse_args()
    if chosen.command == "record":
        record(chosen.folder)
    elif chosen.command == "run":
        run(chosen.folder, chosen.seed, chosen.count, chosen.parallel, whole=not chosen.quick)
    else:
        report(chosen.folder, chosen.seed)


if __name__ == "__main__":
    main()
