"""samplerkit against its peers: python -m tests.benchmarks.peers environments FOLDER, then run FOLDER.

`environments` makes the peers' environments with pip, each once. `run` measures every peer, each cell in a
process with a limit of time and memory, writes docs/performance.json, and from it the generated parts of
docs/performance.md and README.md, and the pictures. `page` writes these again from the file.
"""

import argparse
import json
import signal
import sys
from pathlib import Path

from tests.benchmarks.peers import environments, page
from tests.benchmarks.peers.collect import TEXTS, collect
from tests.benchmarks.peers.limits import ROOT

RESULTS = ROOT / "docs" / "performance.json"
PAGES = (ROOT / "docs" / "performance.md", ROOT / "README.md")


def write_page(results: Path) -> None:
    """Writes the pages and the pictures from a file of results."""
    # matplotlib is only needed here.
    from tests.benchmarks.peers.picture import draw  # noqa: PLC0415

    loaded = json.loads(results.read_text(encoding="utf-8"))
    for path in PAGES:
        path.write_text(page.filled(path.read_text(encoding="utf-8"), loaded), encoding="utf-8")
    draw(loaded, ROOT / "docs" / "images" / "performance.png")


def measure(options: argparse.Namespace) -> None:
    """Measures the requested parts, and writes the results after each of them."""
    path: Path = options.results
    is_complete = set(options.only) == set(environments.PEERS) and set(options.texts) == set(TEXTS)
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() and not is_complete else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    envs = environments.load(options.folder.absolute())
    for done, results in collect(envs, quick=options.quick, only=options.only, texts=options.texts):
        joined = {part: {**before.get(part, {}), **results[part]} for part in ("peers", "texts")}
        # What is measured again joins a run whose date and commit stay, and the page says so.
        merged = {**results, **before, **joined, "in_one_run": is_complete}
        path.write_text(json.dumps(merged, indent=1) + "\n", encoding="utf-8")
        print(f"{results['seconds']:5} s: {done}", flush=True)
    if not options.no_page:
        write_page(path)


def main() -> None:
    """Runs one of the commands."""
    # An exit ends the measurement that is under way, which is in a session of its own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("environments", help="make the environments of the peers")
    make.add_argument("folder", type=Path)
    make.add_argument("--use", action="append", default=[], metavar="NAME=PYTHON", help="use this one")
    run = commands.add_parser("run", help="measure, and write the results and the page")
    run.add_argument("folder", type=Path, help="of the environments")
    run.add_argument("--quick", action="store_true", help="up to a million samples")
    run.add_argument("--only", nargs="*", choices=environments.PEERS, default=list(environments.PEERS))
    run.add_argument("--texts", nargs="*", choices=TEXTS, default=list(TEXTS), help="the other benchmarks")
    run.add_argument("--results", type=Path, default=RESULTS)
    run.add_argument("--no-page", action="store_true", help="write the results only")
    again = commands.add_parser("page", help="write the page from the results")
    again.add_argument("results", type=Path, nargs="?", default=RESULTS)
    options = parser.parse_args()
    if options.command == "environments":
        environments.make(options.folder.absolute(), environments.parsed(options.use))
    elif options.command == "run":
        measure(options)
    else:
        write_page(options.results)


if __name__ == "__main__":
    main()
