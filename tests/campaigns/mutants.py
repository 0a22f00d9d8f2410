"""Whether the tests would notice a random change of the package, and which changes they do not.

    python -m tests.campaigns.mutants record FOLDER        # which test runs which function: once
    python -m tests.campaigns.mutants run FOLDER --seed 1  # 300 mutants; goes on where it stopped
    python -m tests.campaigns.mutants report FOLDER --seed 1

A mutant is a copy of the package with one mutation, drawn by the seed from all of `order`, `samplers`,
`loading`, `storage` and `config`. First the tests that run the mutated function are tried, the quickest
first, then all tests of its room, until one fails. One that lives is looked at by hand: it changes nothing
that anyone can see, and stands in `equivalent_mutants.json` with the reason, or a test is missing.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from coverage import CoverageData

from tests.campaigns.mutations import Mutation, mutations
from tests.jobs import ended

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "samplerkit"
ROOMS = ("order", "samplers", "loading", "storage", "config")
TESTS = [*(f"tests/{room}" for room in ROOMS), "tests/test_bad_arguments.py", "tests/testing"]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.json")
FIRST_SECONDS, MORE_SECONDS = 8.0, 40.0
"""How long the tests that are tried first take without a mutation, and those after them."""
UNKNOWN_SECONDS = 0.3
"""What a test is taken to last where the recording was cut short."""
MOST_SECONDS = 240.0
"""A mutant with which chosen tests come to no end in this time was noticed: they take a sixth of it."""


def drawn(seed: int, count: int) -> list[Mutation]:
    """Gives the mutants of a seed."""
    files = [path for room in ROOMS for path in sorted(PACKAGE.glob(f"{room}/**/*.py"))]
    every = [mutation for path in files for mutation in mutations(PACKAGE, str(path.relative_to(PACKAGE)))]
    return random.Random(seed).sample(every, count)


def record(folder: Path) -> None:
    """Runs the tests once and keeps which of them runs which function, and how long each takes."""
    folder.mkdir(parents=True, exist_ok=True)
    times = folder / "times.xml"
    options = ["--cov=samplerkit", "--cov-context=test", "--cov-report=", f"--junitxml={times}", "-q"]
    environment = {**os.environ, "COVERAGE_FILE": str(folder / "coverage")}
    subprocess.run([sys.executable, "-m", "pytest", *options, *TESTS], cwd=ROOT, env=environment, check=True)
    digest(folder)


def digest(folder: Path) -> None:
    """Makes the table of functions and tests from what pytest left."""
    seconds: dict[str, float] = {}
    times = folder / "times.xml"
    cases = ET.parse(times).iter("testcase") if times.exists() else ()  # noqa: S314  # pytest wrote it just now
    for case in cases:
        seconds[_node(case.attrib["classname"], case.attrib["name"])] = float(case.attrib["time"])
    data = CoverageData(no_disk=True)
    for path in sorted(folder.glob("coverage*")):  # of each process, if the run was cut short
        part = CoverageData(str(path))
        part.read()
        data.update(part)
    table: dict[str, dict[str, float]] = {}
    for path in data.measured_files():
        file = Path(path)
        contexts = data.contexts_by_lineno(path)
        if not file.is_relative_to(PACKAGE):
            continue
        for name, lines in _functions(ast.parse(file.read_text())):
            tests = {context.partition("|")[0] for line in lines for context in contexts.get(line, ())} - {""}
            key = f"{file.relative_to(PACKAGE)}::{name}"
            table[key] = {test: seconds.get(test, UNKNOWN_SECONDS) for test in sorted(tests)}
    (folder / "tests_of_functions.json").write_text(json.dumps(table))


def _node(module: str, name: str) -> str:
    """Gives the name by which pytest knows a test, from its name in the report."""
    parts = module.split(".")
    at = next(n for n in range(len(parts), 0, -1) if (ROOT / "/".join(parts[:n])).with_suffix(".py").exists())
    return "::".join(["/".join(parts[:at]) + ".py", *parts[at:], name])


def _functions(tree: ast.AST, above: str = "") -> Iterator[tuple[str, range]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{above}.{node.name}" if above else node.name
            if not isinstance(node, ast.ClassDef):
                # The line of `def` runs when the module is imported, which says nothing.
                yield name, range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
            yield from _functions(node, name)
        else:
            yield from _functions(node, above)


def stages_of(table: dict[str, dict[str, float]], mutation: Mutation) -> list[list[str]]:
    """Gives tests that run the mutated function: a few that run little else, then more of them."""
    names = [mutation.function]
    if not table.get(f"{mutation.file}::{mutation.function}"):
        # A constant, or a function that no test runs in its own process: whatever runs in the file.
        names = [key.partition("::")[2] for key in table if key.startswith(f"{mutation.file}::")]
    by_file: dict[str, dict[str, float]] = defaultdict(dict)
    for name in names:
        for test, seconds in table.get(f"{mutation.file}::{name}", {}).items():
            if (ROOT / test.partition("::")[0]).exists():
                by_file[test.partition("::")[0]][test] = seconds
    # A file of which few tests run this function tells more about it than one of which all do.
    queues = [sorted(tests, key=tests.__getitem__) for _, tests in sorted(by_file.items(), key=_size)]
    seconds_of = {test: seconds for tests in by_file.values() for test, seconds in tests.items()}
    first = _within(queues[:4], seconds_of, FIRST_SECONDS)
    more = _within(queues, seconds_of, MORE_SECONDS)
    return [first, [test for test in more if test not in first]]


def _within(queues: list[list[str]], seconds: dict[str, float], limit: float) -> list[str]:
    """Takes one test of each file in turn, until they would last too long."""
    chosen: list[str] = []
    for row in itertools.zip_longest(*queues):
        for test in row:
            if test is not None and seconds[test] <= limit:
                chosen.append(test)
                limit -= seconds[test]
    return chosen


def _size(item: tuple[str, dict[str, float]]) -> int:
    return len(item[1])


def try_mutant(mutation: Mutation, table: dict[str, dict[str, float]], *, whole: bool) -> dict[str, Any]:
    """Runs the tests over a mutant, in the end those of its whole room; tells which one failed, if any."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        for part in ("samplerkit", "tests", "docs"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / file, folder)
        target = folder / "samplerkit" / mutation.file
        target.write_bytes(mutation.applied(target.read_bytes()))
        room = f"tests/{mutation.file.partition('/')[0]}"
        below = f"tests/{'/'.join(mutation.file.split('/')[:2])}"
        above = [path for path in dict.fromkeys([below, room]) if (folder / path).is_dir()]
        stages = [*stages_of(table, mutation), [*above, *TESTS[-2:]]]
        for stage, tests in enumerate(stages):
            by = _failed(folder, tests) if tests else ""
            # All tests of a room may well take longer, without any fault of a mutant.
            if by and not (by == "time" and stage == len(stages) - 1):
                return {"caught": True, "stage": stage, "by": by}
            if stage == len(stages) - 2 and any(stages[:-1]) and not whole:
                break
    return {"caught": False, "stage": None, "by": None}


def _failed(folder: Path, tests: list[str]) -> str:
    """Gives the first test that fails, `time` where they come to no end, and nothing where all pass."""
    options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--no-header", "-o", "addopts="]
    marks = ["-m", "not campaign and not trainers", "--import-mode=importlib"]
    command = ["-m", "pytest", *options, *marks, *tests]
    own = {"PYTHONPATH": str(folder), "TMPDIR": str(folder)}
    try:
        # A mutant may leave workers behind; nothing of its session is.
        code, output, errors = ended(*command, seconds=MOST_SECONDS, folder=folder, **own)
    except subprocess.TimeoutExpired:
        return "time"
    if code == 0:
        return ""
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0][:200] if failed else f"exit code {code}: {(output + errors)[-200:]}"


def run(folder: Path, seed: int, count: int, parallel: int, *, whole: bool) -> None:
    """Tries the mutants of a seed that were not tried yet."""
    table = json.loads((folder / "tests_of_functions.json").read_text())
    results = folder / f"mutants-{seed}.jsonl"
    known = {line["number"] for line in _lines(results)}
    todo = [(number, mutant) for number, mutant in enumerate(drawn(seed, count)) if number not in known]

    def one(item: tuple[int, Mutation]) -> None:
        number, mutant = item
        outcome = try_mutant(mutant, table, whole=whole)
        place = f"{mutant.file}:{mutant.line} {mutant.function}"
        line = {"number": number, "place": place, "shown": mutant.shown, **outcome}
        with results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print("caught" if outcome["caught"] else "LIVES ", place, "|", mutant.shown, flush=True)

    with ThreadPoolExecutor(parallel) as pool:
        list(pool.map(one, todo))


def report(folder: Path, seed: int) -> None:
    """Prints the share that was caught, and what lives."""
    # By function and text, so that a file may be moved; `file` says where it stands today.
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
        print("lives:", line["place"], "|", line["shown"])


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    """Runs one of the three commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=["record", "digest", "run", "report"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="leave out the last stage, whole rooms")
    chosen = parser.parse_args()
    if chosen.command == "record":
        record(chosen.folder)
    elif chosen.command == "digest":
        digest(chosen.folder)
    elif chosen.command == "run":
        run(chosen.folder, chosen.seed, chosen.count, chosen.parallel, whole=not chosen.quick)
    else:
        report(chosen.folder, chosen.seed)


if __name__ == "__main__":
    main()
