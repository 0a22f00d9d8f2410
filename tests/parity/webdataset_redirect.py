"""A pytest plugin for webdataset's own tests: its names are those of the drop-in, if requested.

`tests/parity/webdataset_suite.py` runs it. Names that the drop-in does not have stay webdataset's.
"""

import functools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import webdataset
from webdataset import compat, writer

from samplerkit.compat import webdataset as drop_in

REPORT = "SUITE_REPORT"
"""The environment variable with the file of the results."""

DROP_IN = "SUITE_OF_THE_DROP_IN"
"""The environment variable that is set if the drop-in is used."""

ADDRESS = "SUITE_ADDRESS"
"""The address at which stand-ins of remote shards are served."""

results: dict[str, dict[str, str]] = {}
instantiated: set[str] = set()


def pytest_configure() -> None:
    """Puts the drop-in into webdataset's place, and records which of the two classes is made."""
    if DROP_IN not in os.environ:
        record_instances(compat.WebDataset, "dataset")
        record_instances(writer.TarWriter, "writer")
        return
    for name in drop_in.__all__:
        setattr(webdataset, name, getattr(drop_in, name))
    compat.WebDataset = drop_in.WebDataset
    writer.TarWriter, writer.ShardWriter = drop_in.TarWriter, drop_in.ShardWriter
    # The suite's own commands are allowed.
    record_instances(drop_in.WebDataset, "dataset", allow_commands=True)


def record_instances(kind: Any, name: str, **defaults: Any) -> None:
    """Makes a class record that it is made, and take more defaults."""
    original = kind.__init__

    @functools.wraps(original)
    def init(self: Any, *arguments: Any, **options: Any) -> None:
        instantiated.add(name)
        original(self, *arguments, **defaults, **options)

    kind.__init__ = init


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Gives the suite the address of remote shards."""
    conftest = sys.modules["tests.conftest"]
    conftest.remote_loc = f"{os.environ[ADDRESS]}/openimages/"
    conftest.remote_sample = f"{os.environ[ADDRESS]}/testdata/sample.tgz"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any) -> Iterator[None]:
    """Records the outcome of a test."""
    report = yield
    if report.when == "setup":
        instantiated.clear()
    if report.when == "call" or report.outcome != "passed":
        why = str(report.longrepr.reprcrash.message) if hasattr(report.longrepr, "reprcrash") else ""
        results[item.nodeid] = {
            "outcome": report.outcome,
            "made": ",".join(sorted(instantiated)),
            "why": why.splitlines()[0] if why else "",
        }
    return report


def pytest_unconfigure() -> None:
    """Writes the results."""
    Path(os.environ[REPORT]).write_text(json.dumps(results))
