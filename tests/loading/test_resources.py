"""Fifty epochs hold no more than ten did, with few descriptors; a fork in mid-epoch works on both sides."""

from __future__ import annotations

import json
import statistics

import pytest

from tests.loading.fifty_epochs import DESCRIPTORS, EPOCHS
from tests.loading.worker_kinds import THREADS
from tests.programs import run

MARGINS = {"memory": 2 << 20, "worker_memory": 3 << 20, "threads": 2, "descriptors": 6}
"""What the median of the last ten epochs may be above that of epochs 10 to 20: bytes, or a number."""


def fifty_epochs(leaks="no leak", **options):
    return run(["-m", "tests.loading.fifty_epochs", json.dumps(options), leaks])


def growth(done):
    """How much the medians grew, by what grew."""
    assert done.returncode == 0, done.stderr
    held = json.loads(done.stdout)
    assert {len(amounts) for amounts in held.values()} == {EPOCHS}
    return {
        name: statistics.median(amounts[40:50]) - statistics.median(amounts[10:20])
        for name, amounts in held.items()
    }


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 1},
        {"num_workers": 2, "run_ahead": True},
        THREADS,
        {"num_workers": 0, "device": "cpu", "run_ahead": True},
    ],
    ids=["new workers each epoch", "run ahead", "threads", "a device stage that runs ahead"],
)
def test_fifty_epochs_with_64_descriptors_keep_memory_threads_and_descriptors_flat(options):
    grown = growth(fifty_epochs(**options))
    print(f"{options}: grown between epochs 10 to 20 and 40 to 50: {grown}")
    for name, margin in MARGINS.items():
        assert grown[name] <= margin, (name, grown)


def test_a_leak_of_one_a_loop_would_show():
    grown = growth(fifty_epochs("leaks", num_workers=0))
    assert all(grown[leak] > 2 * MARGINS[leak] for leak in ("memory", "threads", "descriptors")), grown


def test_a_leak_of_descriptors_beside_workers_would_meet_the_limit():
    done = fifty_epochs("leaks", num_workers=3, persistent_workers=True)
    assert done.returncode != 0
    assert "Too many open files" in done.stderr
    assert DESCRIPTORS == 64


FORKED = """
import json, multiprocessing, os, sys, time
import samplerkit as sk

STEP = 10

def ids_of(loader):
    return [sample for batch in loader for sample in batch.tolist()]

def read_own(child_workers):
    options = {"num_workers": child_workers}
    if child_workers == "threads":
        options = {"num_workers": 2, "workers": "threads"}
    with sk.Loader(range(100), sk.RandomSampler(seed=2), batch_size=4, **options) as own:
        read = ids_of(own)
    os._exit(0 if read == list(sk.RandomSampler(seed=2).order(100)) else 5)

def code_of(pid, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "took too long"

def in_the_child(how, child_workers, loader, batches):
    if how == "hangs":
        time.sleep(600)
    elif how == "closes":
        loader.close()
    elif how == "drops":
        loader.__dict__.clear()
    elif how == "iterates":
        try:
            next(batches)
        except sk.StateError as error:
            problem = "iteration: belongs to the process that began it; iterate again in this process"
            os._exit(0 if problem in str(error) else 7)
        os._exit(8)
    else:
        read_own(child_workers)
    os._exit(0)

def fork(how, child_workers, loader, batches):
    if how == "multiprocessing":
        child = multiprocessing.get_context("fork").Process(target=read_own, args=(child_workers,))
        child.start()
        return child.pid
    pid = os.fork()
    if pid == 0:
        try:
            in_the_child(how, child_workers, loader, batches)
        finally:
            os._exit(6)
    return pid

def told(how, child_workers, kind):
    received = []
    loader = sk.Loader(range(200), sk.RandomSampler(seed=1), batch_size=4, num_workers=2, workers=kind)
    batches = iter(loader)
    for batch in batches:
        received += batch.tolist()
        if loader.step == STEP:
            child = fork(how, child_workers, loader, batches)
            code = code_of(child, 1 if how == "hangs" else 100)
    return [code, received == list(sk.RandomSampler(seed=1).order(200)), loader.epoch]

print(json.dumps([told(*case) for case in json.loads(sys.argv[1])]))
"""


FORKS = [
    *((how, workers, "processes") for how in ("fork", "multiprocessing") for workers in (0, 2)),
    *(("fork", workers, "threads") for workers in (0, 2, "threads")),
    *((how, 0, kind) for how in ("closes", "drops") for kind in ("processes", "threads")),
    *(("iterates", 0, kind) for kind in ("processes", "threads")),
    ("hangs", 0, "processes"),
]


@pytest.fixture(scope="module")
def forked():
    """By how the fork came and the child's workers: the child's exit code, whether the parent received its
    whole epoch, and the epoch that it is in."""
    done = run(["-c", FORKED, json.dumps(FORKS)])
    assert done.returncode == 0, done.stderr
    return dict(zip(FORKS, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("case", FORKS[:-1], ids=str)
def test_a_fork_in_mid_epoch_reads_a_loader_of_its_own_and_the_parent_goes_on(forked, case):
    """Or ends that of its parent, whose workers live on; over processes and over threads."""
    assert forked[case] == [0, True, 1]


def test_a_child_that_hangs_would_be_noticed(forked):
    assert forked["hangs", 0, "processes"] == ["took too long", True, 1]
