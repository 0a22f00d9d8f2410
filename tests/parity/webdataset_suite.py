"""Runs webdataset's own tests, for itself and redirected: python -m tests.parity.webdataset_suite PATH.

PATH is a checkout of webdataset, of the version that is installed; it is only read. (The source distribution
lacks a part of the tests and of their data.) They run twice, in a copy: once as they are, and once with the
names of webdataset that `samplerkit.compat.webdataset` has replaced by its own; all others stay webdataset's.
Remote shards are replaced by stand-ins on loopback. Commands are allowed.

Prints the counts and each test that fails. Exits with 0 if those that pass with webdataset alone are named on
`docs/migration.md`.
"""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import tests
from samplerkit.storage.tar.writer import TarWriter
from tests.parity import webdataset_redirect
from tests.storage.remote.server import served

PAGE = Path(tests.__file__).parents[1] / "docs" / "migration.md"
SECONDS = 1800

Results = dict[str, dict[str, str]]


def main(checkout: Path) -> int:
    """Runs both, and prints the differences."""
    with tempfile.TemporaryDirectory(prefix="samplerkit-suite-") as name:
        folder = Path(name)
        shutil.copytree(checkout / "tests", folder / "tests")
        shutil.copytree(checkout / "testdata", folder / "testdata")
        make_remote(folder / "web" / "openimages")
        (folder / "web" / "testdata").symlink_to(folder / "testdata")
        # The server prints each client that disconnects early.
        with served(folder / "web") as web, contextlib.redirect_stderr(io.StringIO()):
            theirs = results(folder, web.url, drop_in=False)
            ours = results(folder, web.url, drop_in=True)
    return compared(theirs, ours, PAGE.read_text())


def make_remote(folder: Path) -> None:
    """Makes the shards of photographs that the tests read from a web server."""
    folder.mkdir(parents=True)
    stream = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (300, 320, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(stream, "JPEG")
    for number in (*range(100), 321):
        with TarWriter(f"{folder}/openimages-train-{number:06}.tar") as writer:
            for sample in range(4):
                about = [{"LabelName": f"/m/{number:06}{sample}"}]
                writer.write({"__key__": f"{number:06}{sample}", "jpg": stream.getvalue(), "json": about})
    for index in folder.glob("*.skidx"):  # webdataset's shards have none
        index.unlink()


def results(folder: Path, address: str, *, drop_in: bool) -> Results:
    """Runs the suite in a process of its own."""
    report = folder / "report.json"
    report.unlink(missing_ok=True)
    plugin = Path(webdataset_redirect.__file__)
    # The suite is a package `tests`, too: the folder of the plugin is looked at first.
    paths = [str(plugin.parent), str(PAGE.parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "XDG_CACHE_HOME": str(folder / "cache"),
        webdataset_redirect.REPORT: str(report),
        webdataset_redirect.ADDRESS: address,
        # Other servers that the suite asks have nothing; curl would try again for a minute.
        "http_proxy": address,
        "https_proxy": address,
        "no_proxy": "127.0.0.1",
    }
    environment.pop(webdataset_redirect.DROP_IN, None)
    if drop_in:
        environment[webdataset_redirect.DROP_IN] = "1"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        plugin.stem,
        "-p",
        "no:cacheprovider",
        "--tb=short",
        "-rN",
    ]
    command += ["-o", "addopts=", "--rootdir", str(folder), "tests"]
    done = subprocess.run(  # our own arguments
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode not in {0, 1} or not report.exists():
        raise SystemExit(f"the suite did not run:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    results: Results = json.loads(report.read_text())
    return results


def compared(theirs: Results, ours: Results, page: str) -> int:
    """Prints the counts and the differences; returns the exit code."""
    print(f"the whole suite: {counts(theirs, ours, list(ours))}")
    for kind in ("writer", "dataset"):
        names = [name for name in ours if kind in theirs[name]["made"] + ours[name]["made"]]
        print(f"tests that make a {kind}: {counts(theirs, ours, names)}")
    unlisted = []
    for name in sorted(name for name in ours if ours[name]["outcome"] != "passed"):
        file, _, function = name.removeprefix("tests/").partition("::")
        is_listed = any(file in line and f"::{function}`" in line for line in page.splitlines())
        if theirs[name]["outcome"] != "passed":
            note = "failed in both"
        else:
            note = "on the migration page" if is_listed else "NOT on the migration page"
            unlisted += [] if is_listed else [name]
        print(f"  {name} ({note}): {ours[name]['why']}")
    for name in sorted(name for name in ours if ours[name]["outcome"] == "passed" != theirs[name]["outcome"]):
        print(f"  {name} (fails with webdataset alone): {theirs[name]['why']}")
    return 1 if unlisted else 0


def counts(theirs: Results, ours: Results, names: list[str]) -> str:
    """How many passed of some tests."""
    passed = [sum(run[name]["outcome"] == "passed" for name in names) for run in (theirs, ours)]
    return f"{len(names)}; webdataset {passed[0]}, with the drop-in {passed[1]}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1]).resolve()))
