"""Signals at any moment, and processes forked in the middle: no batch is lost, and nothing remains."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from functools import partial

import pytest

import samplerkit as sk
from tests.jobs import ended
from tests.loading.worker_kinds import THREADS
from tests.numbers import Made
from tests.programs import Program
from tests.waiting import alive

LOAD_FREE_SECONDS = 30
"""Five times what these jobs take; one that takes longer hangs."""


ANY_CALL = {"call", "c_return"}
"""Python runs the handler of a signal where a function begins, and after a call of one in C."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # while a generator is closed
@pytest.mark.parametrize(
    ("make", "interrupted", "stride"),
    [
        (partial(sk.Loader, range(12), batch_size=2, collate_fn=list), {"call"}, 1),
        (partial(sk.Loader, range(12), batch_size=2, collate_fn=list, **THREADS), {"call"}, 3),
        (partial(sk.DeviceLoader, [[number] for number in range(4)], "cpu"), ANY_CALL, 1),
    ],
    ids=["a loader", "threads", "a device loader"],
)
def test_an_interrupt_at_any_call_loses_no_batch(make, interrupted, stride):
    wrong, own_code = [], sys._getframe().f_code
    for number in range(1, 100_000, stride):
        loader, received, calls = make(), [], 0

        def interrupt(frame, event, _, at=number):
            nonlocal calls
            is_counted = event in interrupted and frame.f_code is not own_code
            # An interrupt within the start of a thread leaves it in Python's list of threads for ever.
            calls += is_counted and frame.f_globals["__name__"] != "threading"
            if calls == at:
                sys.setprofile(None)
                raise KeyboardInterrupt

        before = sys.getprofile()
        sys.setprofile(interrupt)
        try:
            for batch in loader:
                received += batch
                if len(received) == 8:
                    break
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(before)
        state = loader.state_dict()
        if state.get("position", 4 * state["epoch"] + state.get("step", 0)) != len(received):
            wrong.append((number, state, received))
        if isinstance(loader, sk.DeviceLoader):
            loader.close()
        if calls < number:
            break  # the loop has made fewer calls than that
    gc.collect()  # loaders that were interrupted while they ended leave their threads until then
    assert number > 100
    assert wrong == []


INTERRUPTED = """
import multiprocessing, os, signal, sys, samplerkit as sk
from multiprocessing.connection import Connection

written, process, is_armed = Connection._send, os.getpid(), False

def write(self, message, *more):
    global is_armed
    if is_armed and os.getpid() == process:
        is_armed = False
        written(self, message[:9], *more)
        signal.raise_signal(signal.SIGTERM)
    written(self, message, *more)

Connection._send = write
signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
options = {"num_workers": 2, "persistent_workers": True, "after_break": "continue"}
loader = sk.Loader(range(200), sk.SequentialSampler(), batch_size=4, **options)
received, workers = [], []
"""

IN_A_STEP = """
try:
    for batch in loader:
        received += batch.tolist()
        if loader.step == 3:
            workers, is_armed = loader.worker_pids, True
except SystemExit:
    print(received == list(range(12)), loader.state_dict()["position"], flush=True)
"""

AT_THE_START = """
is_armed = True
try:
    next(iter(loader))
except SystemExit:
    print(multiprocessing.active_children() == [], loader.state_dict()["position"], flush=True)
"""

CONTINUED = """
for batch in loader:  # the next iteration has workers of its own
    received += batch.tolist()
print(received == list(range(200)), set(workers).isdisjoint(loader.worker_pids))
"""


@pytest.mark.parametrize(("when", "position"), [(IN_A_STEP, 12), (AT_THE_START, 0)], ids=["step", "start"])
def test_a_signal_handler_that_raises_in_the_middle_of_a_request_hangs_nothing(when, position):
    code, printed, errors = ended("-c", INTERRUPTED + when + CONTINUED, load_free_seconds=LOAD_FREE_SECONDS)
    assert (code, printed) == (0, f"True {position}\nTrue True\n"), errors


REQUEUED = """
import os, signal, time, samplerkit as sk
signals = []
signal.signal(signal.SIGTERM, lambda *_: signals.append(True))
class Slow:
    def __len__(self): return 1000
    def __getitem__(self, index):
        time.sleep(0.2)
        return index
with sk.Loader(Slow(), sk.SequentialSampler(), batch_size=2, num_workers=2) as loader:
    for batch in loader:
        print("step", flush=True)
        if signals:
            signals.append(True)
        if len(signals) > 6:  # more steps than there were batches on their way
            print("saved", loader.state_dict()["position"] == 2 * loader.step, flush=True)
            break
"""


def test_a_sigterm_to_all_processes_of_the_job_lets_the_loop_finish_its_step_and_save():
    with Program(["-c", REQUEUED], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        for _ in range(4):
            assert process.stdout.readline() == "step\n"
        os.killpg(process.pid, signal.SIGTERM)
        assert process.stdout.read().splitlines()[-1:] == ["saved True"], process.stderr.read()[-300:]


BLOCKED = """
import ctypes, os, sys, time, samplerkit as sk

readable, writable = os.pipe()

class Blocking:
    def __len__(self):
        return 100
    def __getitem__(self, index):
        if index == 8:
            os.write(writable, b"%d\\n" % os.getpid())
            ctypes.PyDLL(None).sleep(300)  # with Python's lock, as some decoders of images do
        return index

batches = [iter(sk.Loader(Blocking(), sk.SequentialSampler(), batch_size=4, num_workers=1)) for _ in range(2)]
for loader in batches:
    next(loader)
pids = b""
while pids.count(b"\\n") < 2:  # a pipe takes each number whole; lines of print may mix
    pids += os.read(readable, 100)
print(pids.decode(), end="", flush=True)
time.sleep(0.2)
"""


def test_a_job_ends_though_its_workers_are_in_the_middle_of_a_call_to_c():
    """They do not react to the request to end before the call returns."""
    code, printed, errors = ended("-c", BLOCKED, load_free_seconds=LOAD_FREE_SECONDS)
    assert code == 0, errors
    pids = printed.split()
    assert len(set(pids)) == 2
    assert not alive(pids)


class Garbage:
    """Refers to itself, and writes down in which process it is finalized."""

    def __init__(self, path):
        self.path, self.myself = path, self

    def __del__(self):
        with self.path.open("a") as file:
            file.write(f"{os.getpid()}\n")


def collecting(index):
    """Reading a sample collects garbage."""
    gc.collect()
    return index


def test_a_worker_does_not_finalize_garbage_of_its_parent(tmp_path):
    gc.disable()
    try:
        Garbage(tmp_path / "ended")
        with sk.Loader(
            Made(4, collecting), batch_size=2, num_workers=2, multiprocessing_context="fork", collate_fn=list
        ) as loader:
            assert list(loader) == [[0, 1], [2, 3]]
    finally:
        gc.enable()
    gc.collect()
    assert (tmp_path / "ended").read_text().split() == [str(os.getpid())]


HELD = """
import os, signal, samplerkit as sk
loader = sk.Loader(range(20), batch_size=4)
with loader._cursor.lock:  # as the thread of a device loader holds it now and then
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        os._exit(sum(map(len, loader)))
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_process_that_is_forked_while_a_thread_makes_a_request_reads_all():
    _, printed, errors = ended("-c", HELD, load_free_seconds=LOAD_FREE_SECONDS)
    assert printed == "20\n", errors
