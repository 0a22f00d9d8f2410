"""Workers of each kind, while the parent has read or reads: right bytes, and no hang."""

import os
from itertools import product

import pytest

from tests.jobs import ended
from tests.storage.remote.fork_matrix import METHODS, PARENTS, SCHEMES, put_shards

pytest.importorskip("s3fs", reason="s3fs is not installed")


@pytest.fixture
def shards(server, tmp_path):
    """Shards in a bucket."""
    put_shards(server, tmp_path)
    return server.url


def read(url, folder, cell, epochs):
    """Reads the epochs of a cell, and compares each sample."""
    arguments = ("-m", "tests.storage.remote.fork_matrix", url, str(folder), *map(str, cell))
    code, printed, errors = ended(*arguments, str(epochs), seconds=400 + 20 * epochs)
    assert (code, printed) == (0, "read\n"), errors


def test_forked_workers_read_right_bytes_while_their_parent_reads(shards, tmp_path):
    read(shards, tmp_path, ("s3", "fork", "reading", 1), 2)


FORKS_DURING_THE_FIRST_REQUEST = """
import os, sys, threading, time, warnings
from samplerkit.storage.remote.options import RemoteOptions
from samplerkit.storage.remote.storage import RemoteStorage, Span

warnings.simplefilter("ignore")
url, cache, package, *more = sys.argv[1:]
options = {"anon": True, "endpoint_url": url, **dict.fromkeys(more, {})}
storage = RemoteStorage(RemoteOptions(cache=cache, storage_options=options))
thread = threading.Thread(target=storage.version, args=["s3://shards/0.tar"])
thread.start()
while package not in sys.modules:
    time.sleep(0.001)
if not (child := os.fork()):
    part = storage.read([Span("s3://shards/0.tar", 0, 6)])[0]
    print(part.decode(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
thread.join()
"""


@pytest.mark.parametrize("option", [(), ("s3_additional_kwargs",)], ids=["signed", "fsspec"])
def test_a_child_that_is_forked_while_its_parent_imports_a_client_reads(option, shards, tmp_path):
    package = "s3fs" if option else "botocore.session"
    arguments = ("-c", FORKS_DURING_THE_FIRST_REQUEST, shards, str(tmp_path / "cache"), package, *option)
    assert ended(*arguments, load_free_seconds=30) == (0, "000000\n", "")


EPOCHS = {"fork": 3, "threads": 3, "forkserver": 1, "spawn": 1}
"""SAMPLERKIT_EPOCHS says how many of each. Workers that inherit nothing have nothing to race with."""

CELLS = [
    (scheme, method, parent)
    for scheme, method, parent in product(SCHEMES, METHODS, PARENTS)
    if method in {"fork", "threads"} or parent == "reading"  # others get what is pickled
]


@pytest.mark.campaign
@pytest.mark.parametrize(("scheme", "method", "parent"), CELLS)
def test_two_loaders_read_right_bytes_in_each_combination_of_start_methods(
    scheme, method, parent, shards, tmp_path
):
    epochs = int(os.environ.get("SAMPLERKIT_EPOCHS", EPOCHS[method]))
    read(shards, tmp_path, (scheme, method, parent, 2), epochs)
