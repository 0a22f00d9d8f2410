"""Settings and checks of all tests."""

import gc
import multiprocessing.util
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from _pytest.doctest import DoctestItem
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# A shell that starts pytest in the background makes it, and every process that a test starts, deaf to Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines of CI often keep no compiled code. Then each worker compiles all tests again, and each process that
# a test starts compiles the package.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The same examples in each run, however busy the machine is; `--hypothesis-profile default` draws others.
settings.register_profile(
    "same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")

# Hypothesis also draws the numbers and strings that it finds in the project's imported modules. With
# them, examples change with every edited file, and with the files that xdist gives to a process.
if hasattr(providers, "_get_local_constants"):  # old versions have none
    providers._get_local_constants = providers.Constants


# Left by torch itself: the folder of torchrun's logs, the compiler's cache, and the socket of a worker of its
# DataLoader, which sends tensors by it, if the worker had to be ended by a signal.
LEFT_BY_TORCH = ("torchelastic_", "torchinductor_", "pymp-")
TESTS = Path(__file__).parent
RUN_FOLDER = pytest.StashKey[Path]()
LEFT_OVER = pytest.StashKey[list[str]]()
SECONDS_TO_CLEAN_UP = 10
MARK_OF_A_FILE = re.compile(r"^pytestmark = pytest\.mark\.(\w+)$", re.MULTILINE)


class Examples:
    """Settings of examples, also in docstrings, which have no conftest.py above them."""

    def pytest_ignore_collect(self, collection_path, config):
        """Leaves out files without tests, and those whose mark is not selected: to import them takes long.

        Programs of tests may also import packages that are not installed here.
        """
        if collection_path.suffix != ".py":
            return None
        mark = config.getoption("markexpr")
        if not collection_path.name.startswith("test_"):
            return mark.isidentifier() or TESTS in collection_path.parents or None
        text = collection_path.read_text()
        if mark.isidentifier():
            return (mark not in collection_path.parts and f"mark.{mark}" not in text) or None
        marks = {*MARK_OF_A_FILE.findall(text), collection_path.parent.name}
        return any(f"not {name}" in mark for name in marks) or None

    @pytest.fixture(autouse=True)
    def _temporary_files_of_an_example(self, request):
        """Puts the folders that an example makes by `mkdtemp` into that of its test: none has to clean up."""
        if isinstance(request.node, DoctestItem):
            request.getfixturevalue("temporary_folder")

    @pytest.fixture
    def temporary_folder(self, tmp_path, monkeypatch):
        """The folder in which `tempfile` makes files, until the test ends."""
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        return tmp_path


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        [shutil.which("mount") or "mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run([shutil.which("umount") or "umount", folder], check=True)


def pytest_configure(config):
    """Gives the whole run, its workers included, a temporary folder of its own."""
    config.pluginmanager.register(Examples())
    if hasattr(config, "workerinput"):
        return
    # The place of `tmp_path` must stay, since pytest keeps these folders of the last runs.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    config.stash[RUN_FOLDER] = Path(tempfile.mkdtemp(prefix="tests-"))
    os.environ["TMPDIR"] = str(config.stash[RUN_FOLDER])
    tempfile.tempdir = None
    # After the modules that tests import, and after multiprocessing's folder, with the priority -100.
    remove = {"args": (config.stash[RUN_FOLDER],), "kwargs": {"ignore_errors": True}}
    multiprocessing.util.Finalize(None, shutil.rmtree, **remove, exitpriority=-200)


def _left_in(folder):
    # The content of a folder shows which test has made it.
    return [
        f"{path.name} {sorted(entry.name for entry in path.glob('*'))[:3]}"
        for path in sorted(folder.iterdir())
        if not path.name.startswith(LEFT_BY_TORCH)
    ]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """Fails a run whose tests have left something in the temporary folder, once its workers are gone.

    Processes whose parent was killed clean up after it, which takes a while. Campaigns and trainers kill
    whole sessions, where no process is left to do so: there it is only named.
    """
    folder = session.config.stash.get(RUN_FOLDER, None)
    if folder is None:
        return
    if not session.config.getoption("numprocesses", None):
        return  # this process has run the tests itself, and cleans up when it ends
    end = time.monotonic() + SECONDS_TO_CLEAN_UP
    while (left := _left_in(folder)) and time.monotonic() < end:
        time.sleep(0.5)
    session.config.stash[LEFT_OVER] = left
    kills_sessions = session.config.getoption("markexpr") in {"campaign", "trainers", "doors"}
    if left and session.exitstatus == pytest.ExitCode.OK and not kills_sessions:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    shutil.rmtree(folder, ignore_errors=True)


def pytest_terminal_summary(terminalreporter, config):
    """Names the files that were left."""
    if left := config.stash.get(LEFT_OVER, []):
        terminalreporter.section("left in the temporary folder", red=True)
        terminalreporter.line(f"{', '.join(left)}: a test must use tmp_path, or clean up")


def pytest_collection_finish():
    """Sets aside imported objects, which each garbage collection would scan."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Shows with `-rP` how many cases a property test has tried."""
    report = yield
    # The plugin of Hypothesis leaves these with the test.
    passing = re.findall(r"(\d+) passing", getattr(item, "hypothesis_statistics", ""))
    if passing and report.when == "call":
        report.sections.append(("Captured cases", f"{sum(map(int, passing))} cases"))
    return report
