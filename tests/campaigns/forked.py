"""Runs chosen tests over a copy of the package, in a fork of a process that has imported everything else.

Importing torch and the other distributions takes longer than most tests, and is the same for every copy. A
process that has imported the package uses another: `python -m tests.campaigns.forked` answers line by line.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from hypothesis import Phase, settings

from tests import programs

ROOT = Path(__file__).parents[2]
BECOME_SUBREAPER = 36
"""The option of `prctl` by which the children of a dead process become those of this one."""
NOT_TRIED = 99
"""The exit code of a fork in which the campaign itself has failed."""
IMPORTED = (
    *("numpy", "torch", "torch.distributed", "torch.utils.data", "hypothesis", "hypothesis.extra.numpy"),
    *("pydantic", "yaml", "requests", "urllib3", "fsspec", "typer", "rich", "rich.table", "PIL.Image"),
)
"""Modules that are imported once: those of the package and its tests that take long."""


class _Chosen:
    """Runs the chosen tests, then all of the chosen files and folders, and keeps the first that fails."""

    def __init__(self, tests: Sequence[str], among: str, failed: Path) -> None:
        self._rank = {test: rank for rank, test in enumerate(tests)}
        self._above = tuple(f"{test}{border}" for test in tests for border in ("/", "::", "["))
        self._among, self._failed = among, failed

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid.startswith(self._above) or item.nodeid in self._rank]
        chosen = [item for item in chosen if self._among in item.nodeid]
        items[:] = sorted(chosen, key=lambda item: self._rank.get(item.nodeid, len(self._rank)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._record(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._record(report.nodeid)

    def _record(self, test: str) -> None:
        if not self._failed.exists():
            self._failed.write_text(test)


def copied(source: Path, folder: Path, *more: str) -> Path:
    """Copies the package, its tests and their settings, and other named paths; returns the folder."""
    for part in ("samplerkit", "tests", "pyproject.toml", *more):
        copy = shutil.copytree if (source / part).is_dir() else shutil.copy2
        copy(source / part, folder / part)
    return folder


def replace(file: Path, text: str | bytes) -> None:
    """Writes another text to a file of a copy, so that Python reads it."""
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    # The compiled code of the text before may look as new as this one.
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
        compiled.unlink()


def prepare() -> None:
    """Imports modules that are the same for every copy."""
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert not any(name.partition(".")[0] == "samplerkit" for name in sys.modules), "a copy is to be imported"
    # The programs that a test starts are forks, too, of a process that lasts for all copies.
    os.environ[programs.NAME] = programs.start()
    # The profile of the tests is based on this one. The smallest example of a planted bug is not needed.
    settings.register_profile("first", phases=(Phase.explicit, Phase.generate))
    settings.load_profile("first")
    # A fork need not scan the imported objects in each garbage collection: a quarter of its time.
    gc.freeze()


def failing(folder: Path, tests: Sequence[str], seconds: float, among: str = "") -> str | None:
    """Returns the first of some tests that fails over the copy in a folder; `time` if they do not end.

    Of the tests, those are run whose ids have `among` in them.
    """
    ctypes.CDLL(None).prctl(BECOME_SUBREAPER, 1, 0, 0, 0)
    failed = folder / "failed"
    failed.unlink(missing_ok=True)
    # Not in the folder of the copy: its name is too long for sockets, which some tests have there.
    with tempfile.TemporaryDirectory(prefix="forked-", ignore_cleanup_errors=True) as temporary:
        child = os.fork()
        if child == 0:
            try:
                os._exit(_run(folder, tests, among, failed, temporary))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(NOT_TRIED)
        code = _code_of(child, seconds)
        _kill_remaining(child)
    if code is None:
        return "time"
    if failed.exists():
        return failed.read_text()
    assert code != NOT_TRIED, (folder / "output").read_text()[-2000:]
    return None if code in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED} else f"exit code {code}"


def _run(folder: Path, tests: Sequence[str], among: str, failed: Path, temporary: str) -> int:
    os.setsid()
    os.chdir(folder)
    output = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.environ.update(PYTHONPATH=str(folder), TMPDIR=temporary)
    tempfile.tempdir = None
    # The processes that a test spawns import the main module, and the tests are those of the copy.
    sys.modules["__main__"] = types.ModuleType("__main__")
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    sys.path[:] = [
        str(folder),
        *(path for path in sys.path if path and not (Path(path) / "samplerkit").is_dir()),
    ]
    # Searching for plugins takes a second; modules imported already were not rewritten, and need not be.
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "_hypothesis_pytestplugin", "--no-header"]
    options += ["-o", "addopts=", "--doctest-modules", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    marks = ["-m", "not campaign and not statistics and not trainers"]
    options += [*marks, "--import-mode=importlib", "--rootdir", str(folder)]
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    code = pytest.main([*options, *files], plugins=[_Chosen(tests, among, failed)])
    package = sys.modules.get("samplerkit")
    assert package is None or Path(str(package.__file__)).is_relative_to(folder), "another copy was tested"
    return int(code)


def _code_of(child: int, seconds: float) -> int | None:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    return None


def _kill_remaining(session: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)
    # Those in sessions of their own come to this process, once the one that started them is dead.
    own = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    while children := {*own.read_text().split()} - {os.environ.get(programs.NAME, "").rpartition("-")[2]}:
        for child in map(int, children):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@cache
def _other() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.campaigns.forked"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.communicate()


def failing_elsewhere(folder: Path, tests: Sequence[str], seconds: float, among: str = "") -> str | None:
    """As `failing`, by a process that has not imported the package; the first call starts it."""
    process = _other()
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps([str(folder), [*tests], seconds, among]), file=process.stdin, flush=True)
    answer = process.stdout.readline()
    assert answer, f"the process that forks ended with {process.wait()}"
    failed: str | None = json.loads(answer)
    return failed


def main() -> None:
    """Answers each line: a folder, tests, seconds, and a part of the ids of those that are run."""
    prepare()
    for line in sys.stdin:
        folder, *arguments = json.loads(line)
        print(json.dumps(failing(Path(folder), *arguments)), flush=True)


if __name__ == "__main__":
    main()
