"""Benchmark of remote reading: clients compared, and loaders against webdataset, from nginx on loopback.

Run it with `python -m tests.benchmarks.remote`, with nginx (`apt install nginx-light`) and obstore (`pip
install obstore`) installed; `--quick` takes a tenth of the requests, once. It prints Markdown. Each run is a
process of its own; they take turns, so that all meet the same noise, and ratios are what counts. An anonymous
store of S3 is a file at /bucket/key.
"""

import argparse
import contextlib
import datetime as dt
import os
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tests.benchmarks.remote_clients import CLIENTS, OBJECT, OBJECTS
from tests.benchmarks.remote_loading import CASES, write
from tests.benchmarks.timing import answer_of, in_turns, print_header, print_row, versions

CONFIG = """
worker_processes 2; pid {folder}/pid; daemon off; error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
    access_log off; sendfile on; tcp_nodelay on; keepalive_requests 100000000;
    client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
    uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
    server {{ listen 127.0.0.1:{port}; root {folder}; }}
}}
"""
REPEATS = 3
SIZES = {"16 KiB": (1 << 14, 4000), "256 KiB": (1 << 18, 1500), "4 MiB": (1 << 22, 200)}
PACKAGES = ("obstore", "urllib3", "s3fs", "webdataset", "numpy", "torch")


@contextlib.contextmanager
def nginx(folder: Path) -> Iterator[str]:
    """Serves a folder; gives the address."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise SystemExit("nginx is not installed: apt install nginx-light")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (folder / "nginx.conf").write_text(CONFIG.format(folder=folder, port=port))
    folder.chmod(0o755)
    with subprocess.Popen([program, "-c", f"{folder}/nginx.conf"]) as server:
        try:
            while socket.socket().connect_ex(("127.0.0.1", port)):
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def measured(module: str, runs: dict[str, list[str]], repeats: int) -> dict[str, tuple[float, float]]:
    """The medians of each run: so many a second, and microseconds of processor time."""
    works = {name: partial(answer_of, module, name, *arguments) for name, arguments in runs.items()}
    return {
        name: (statistics.median(rate for rate, _ in each), statistics.median(own for _, own in each))
        for name, each in in_turns(works, repeats).items()
    }


def report(title: str, subtitle: str, bases: list[str], rates: dict[str, tuple[float, float]]) -> None:
    """Prints a table, with ratios to some of its rows."""
    print(f"\n### {title}\n")
    print_header("who", f"{subtitle}/s", "CPU", *(f"times {base}" for base in bases))
    for name, (rate, own) in rates.items():
        ratios = (f"{rate / rates[base][0]:.2f}" for base in bases)
        print_row(name, f"{rate:,.0f}", f"{own:,.0f} us", *ratios)


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the requests, once")
    parser.add_argument("--only", choices=["clients", "loaders"], help="one half of it")
    options = parser.parse_args()
    repeats, share = (1, 10) if options.quick else (REPEATS, 1)
    print(f"{dt.datetime.now(dt.UTC).date()}, {os.cpu_count()} cores, {versions(*PACKAGES)}")
    with TemporaryDirectory() as temporary:
        bucket = Path(temporary, "bucket")
        bucket.mkdir()
        for number in range(OBJECTS):
            (bucket / f"{number}.bin").write_bytes(np.random.default_rng(number).bytes(OBJECT))
        with nginx(Path(temporary)) as url:
            for shown, (size, count) in SIZES.items() if options.only != "loaders" else ():
                for threads in (1, 16):
                    few = str(max(64, count // share // (4 if threads == 1 else 1)))
                    runs = {name: [url, str(size), str(threads), few] for name in CLIENTS}
                    bases = [
                        next(name for name in CLIENTS if name.startswith(base)) for base in ("http", "s3fs")
                    ]
                    title = f"{shown}, {threads} thread{'s' * (threads > 1)}"
                    report(title, "requests", bases, measured("remote_clients", runs, repeats))
            if options.only != "clients":
                write(bucket)
                for workers in (0, 2):
                    runs = {name: [url, str(workers)] for name in CASES}
                    title = f"An epoch, {workers} workers"
                    report(title, "samples", [next(iter(CASES))], measured("remote_loading", runs, repeats))


if __name__ == "__main__":
    main()
