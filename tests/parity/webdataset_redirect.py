"""A pytest plugin for webdataset's own tests: its names are those of the drop-in, if that is selected.

`tests/parity/webdataset_suite.py` runs it. What the drop-in does not claim stays webdataset's.
"""

from __future__ import annotations

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
"""The environment's name of the file that the results go to."""

DROP_IN = "SUITE_OF_THE_DROP_IN"
"""Is set where the drop-in answers."""

ADDRESS = "SUITE_ADDRESS"
"""The address at which stand-ins of remote shards are served."""

results: dict[str, dict[str, str]] = {}
made: set[str] = set()


def pytest_configure() -> None:
    """Puts the drop-in into webdataset's place, and notes which of the two classes is made."""
    if DROP_IN not in os.environ:
        noted(compat.WebDataset, "dataset")
        noted(writer.TarWriter, "writer")
        return
    for name in drop_in.__all__:
        setattr(webdataset, name, getattr(drop_in, name))
    compat.WebDataset = drop_in.WebDataset
    writer.TarWriter, writer.ShardWriter = drop_in.TarWriter, drop_in.ShardWriter
    # The suite's own commands are allowed.
    noted(drop_in.WebDataset, "dataset", allow_commands=True)


def noted(kind: Any, what: str, **defaults: Any) -> None:
    """Makes a class note that it is made, and take more defaults."""
    original = kind.__init__

    @functools.wraps(original)
    def init(self: Any, *arguments: Any, **options: Any) -> None:
        made.add(what)
        original(self, *arguments, **defaults, **options)

    kind.__init__ = init


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Tells the suite where remote shards are served."""
    conftest = sys.modules["tests.conftest"]
    conftest.remote_loc = f"{os.environ[ADDRESS]}/openimages/"
    conftest.remote_sample = f"{os.environ[ADDRESS]}/testdata/sample.tgz"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any) -> Iterator[None]:
    """Notes how a test ended."""
    report = yield
    if report.when == "setup":
        made.clear()
    if report.when == "call" or report.outcome != "passed":
        why = str(report.longrepr.reprcrash.message) if hasattr(report.longrepr, "reprcrash") else ""
        results[item.nodeid] = {
            "outcome": report.outcome,
            "made": ",".join(sorted(made)),
            "why": why.splitlines()[0] if why else "",
        }
    return report


def pytest_unconfigure() -> None:
    """Writes the results."""
    Path(os.environ[REPORT]).write_text(json.dumps(results))
