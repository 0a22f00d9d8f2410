"""Fifty epochs hold no more than ten did, with few descriptors; a fork in mid-epoch works on both sides."""

import json
import signal
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


def test_a_leak_of_one_per_epoch_would_show():
    grown = growth(fifty_epochs("leaks", num_workers=0))
    assert all(grown[leak] > 2 * MARGINS[leak] for leak in ("memory", "threads", "descriptors")), grown


def test_a_leak_of_descriptors_with_workers_would_hit_the_limit():
    done = fifty_epochs("leaks", num_workers=3, persistent_workers=True)
    assert done.returncode != 0
    assert "Too many open files" in done.stderr
    assert DESCRIPTORS == 64


FORKED = """
import json, multiprocessing, os, pytest, signal, sys, time
import samplerkit as sk

def ids_of(loader):
    return [sample for batch in loader for sample in batch.tolist()]

def read_own(**options):
    with sk.Loader(range(100), sk.RandomSampler(seed=2), batch_size=4, **options) as own:
        assert ids_of(own) == list(sk.RandomSampler(seed=2).order(100))

def refused(batches):
    problem = "iteration: belongs to the process that began it; iterate again in this process"
    with pytest.raises(sk.StateError, match=problem):
        next(batches)

def child(code, loader, batches):
    signal.alarm(100)  # ends a child that hangs
    exec(code, {**globals(), **locals()})

def code_of(method, *arguments):
    if method == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=child, args=arguments)
        process.start()
        process.join()
        return process.exitcode
    pid = os.fork()
    if pid == 0:
        child(*arguments)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def outcome(kind, method, code):
    options = dict(batch_size=4, num_workers=2, workers=kind, persistent_workers=True)
    loader = sk.Loader(range(200), sk.RandomSampler(seed=1), **options)
    batches = iter(loader)
    received = [sample for _ in range(10) for sample in next(batches).tolist()]
    ended = code_of(method, code, loader, batches)
    received += ids_of(batches)
    return [ended, received == list(sk.RandomSampler(seed=1).order(200)), loader.epoch]

print(json.dumps([outcome(*case) for case in json.loads(sys.argv[1])]))
"""


IN_THE_LOOP = "read_own()"
PROCESSES = "read_own(num_workers=2)"
LEFT_OPEN = "sys.left = iter(sk.Loader(range(100), batch_size=4, num_workers=2)); next(sys.left)"
THREADS_OF_ITS_OWN = "read_own(num_workers=2, workers='threads')"
OF_THE_PARENT = (
    "loader.close()",
    "assert len(ids_of(loader)) == 200",
    "loader.__dict__.clear()",
    "refused(batches)",
    "sys.exit()",
)
HANGS = ("processes", "fork", "signal.alarm(1); time.sleep(600)")
FORKS = [
    *(("processes", by, code) for by in ("fork", "multiprocessing") for code in (IN_THE_LOOP, PROCESSES)),
    ("processes", "multiprocessing", LEFT_OPEN),
    *(("threads", "fork", code) for code in (IN_THE_LOOP, PROCESSES, THREADS_OF_ITS_OWN)),
    *((kind, "fork", code) for kind in ("processes", "threads") for code in OF_THE_PARENT),
]


@pytest.fixture(scope="module")
def forked():
    """By the kind of workers, the method of the fork and the code of the child: the exit code of the child,
    whether the parent received its whole epoch, and the epoch of the parent."""
    done = run(["-c", FORKED, json.dumps([*FORKS, HANGS])])
    assert done.returncode == 0, done.stderr
    return dict(zip([*FORKS, HANGS], json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("case", FORKS, ids=str)
def test_a_fork_in_mid_epoch_reads_a_loader_of_its_own_and_the_parent_continues(forked, case):
    """Or closes that of its parent, whose workers survive; with processes and with threads."""
    assert forked[case] == [0, True, 1]


def test_a_child_that_hangs_would_be_noticed(forked):
    assert forked[HANGS] == [-signal.SIGALRM, True, 1]
