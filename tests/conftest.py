"""What holds for all tests."""

import gc
import os
import re
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

# A shell that starts pytest in the background makes it, and every process that a test starts, deaf to Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines of CI often keep no compiled code. Then each worker compiles all tests anew, and each process that
# a test starts compiles the package.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The same examples in each run, however busy the machine is; `--hypothesis-profile default` draws others.
settings.register_profile(
    "same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")


def pytest_collection_finish():
    """Sets aside what was imported, which each collection of garbage would look through."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Tells with `-rP` how many cases a property test has looked at."""
    report = yield
    # The plugin of Hypothesis leaves these with the test.
    told = re.findall(r"(\d+) passing", getattr(item, "hypothesis_statistics", ""))
    if told and report.when == "call":
        report.sections.append(("Captured cases", f"{sum(map(int, told))} cases"))
    return report
