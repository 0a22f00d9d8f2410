"""Signals at any moment, and processes forked in the middle: no batch is lost, and nothing is left."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys

import pytest

import samplerkit as sk
from tests.jobs import ended
from tests.loading.worker_kinds import beside
from tests.numbers import Made
from tests.programs import Program
from tests.waiting import alive

OWN_SECONDS = 30
"""Five times what these jobs take; one that hangs is noticed then."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # while a generator is closed
@pytest.mark.parametrize("workers", [0, "2 threads"])
def test_an_interrupt_on_entry_of_any_function_takes_no_batch_away(workers):
    wrong, options = [], beside(workers)
    for number in range(1, 100_000, 3 if options.get("workers") else 1):
        loader = sk.Loader(range(12), sk.SequentialSampler(), batch_size=2, collate_fn=list, **options)
        received, calls = [], 0

        def interrupt(*_, at=number):
            nonlocal calls
            calls += 1
            if calls == at:
                sys.settrace(None)
                raise KeyboardInterrupt

        before = sys.gettrace()
        sys.settrace(interrupt)
        try:
            for batch in loader:
                received += batch
                if len(received) == 8:
                    break
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        if loader.state_dict()["position"] != len(received):
            wrong.append((number, loader.state_dict()["position"], len(received)))
        if calls < number:
            break  # the loop has made fewer calls than that
    gc.collect()  # loaders that were interrupted while they ended leave their threads until then
    assert number > 100
    assert wrong == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # while a stage is closed
def test_an_interrupt_behind_any_call_takes_no_batch_of_a_device_loader_away():
    """Python runs the handler of a signal where a function begins, and behind a call of one in C."""
    wrong, batches, own = [], [[number] for number in range(4)], sys._getframe().f_code
    for number in range(1, 100_000):
        loader, received, calls = sk.DeviceLoader(batches, "cpu"), [], 0

        def interrupt(frame, event, _, at=number):
            nonlocal calls
            is_counted = event in {"call", "c_return"} and frame.f_code is not own
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
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(before)
        state = loader.state_dict()
        if state["epoch"] * len(batches) + state["step"] != len(received):
            wrong.append((number, state, received))
        loader.close()
        if calls < number:
            break
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

GOES_ON = """
for batch in loader:  # the next iteration has workers of its own
    received += batch.tolist()
print(received == list(range(200)), set(workers).isdisjoint(loader.worker_pids))
"""


@pytest.mark.parametrize(("when", "position"), [(IN_A_STEP, 12), (AT_THE_START, 0)], ids=["step", "start"])
def test_a_signal_handler_that_raises_in_the_middle_of_a_request_hangs_nothing(when, position):
    code, printed, errors = ended("-c", INTERRUPTED + when + GOES_ON, own_seconds=OWN_SECONDS)
    assert (code, printed) == (0, f"True {position}\nTrue True\n"), errors


REQUEUED = """
import os, signal, time, samplerkit as sk
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
class Slow:
    def __len__(self): return 1000
    def __getitem__(self, index):
        time.sleep(0.2)
        return index
with sk.Loader(Slow(), sk.SequentialSampler(), batch_size=2, num_workers=2) as loader:
    for batch in loader:
        print("step", flush=True)
        if asked:
            asked.append(True)
        if len(asked) > 6:  # more steps than there were batches on their way
            print("saved", loader.state_dict()["position"] == 2 * loader.step, flush=True)
            break
"""


def test_a_sigterm_to_all_processes_of_the_job_lets_the_loop_finish_its_step_and_save():
    with Program(["-c", REQUEUED], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        for _ in range(4):
            assert process.stdout.readline() == "step\n"
        os.killpg(process.pid, signal.SIGTERM)
        assert process.stdout.read().splitlines()[-1:] == ["saved True"], process.stderr.read()[-300:]


DEAF = """
import ctypes, os, sys, time, samplerkit as sk

are_deaf, is_deaf = os.pipe()

class Deaf:
    def __len__(self):
        return 100
    def __getitem__(self, index):
        if index == 8:
            os.write(is_deaf, b"%d\\n" % os.getpid())
            ctypes.PyDLL(None).sleep(300)  # with Python's lock, as some decoders of images do
        return index

batches = [iter(sk.Loader(Deaf(), sk.SequentialSampler(), batch_size=4, num_workers=1)) for _ in range(2)]
for loader in batches:
    next(loader)
pids = b""
while pids.count(b"\\n") < 2:  # a pipe takes each number whole; lines of print may mix
    pids += os.read(are_deaf, 100)
print(pids.decode(), end="", flush=True)
time.sleep(0.2)
"""


def test_a_job_ends_though_its_workers_are_in_the_middle_of_a_call_to_c():
    """They would be waited for until the call returns, since they do not hear that they are to end."""
    code, printed, errors = ended("-c", DEAF, own_seconds=OWN_SECONDS)
    assert code == 0, errors
    pids = printed.split()
    assert len(set(pids)) == 2
    assert not alive(pids)


class Garbage:
    """Refers to itself, and notes in which process it ends."""

    def __init__(self, path):
        self.path, self.myself = path, self

    def __del__(self):
        with self.path.open("a") as file:
            file.write(f"{os.getpid()}\n")


def collecting(index):
    """To read a sample collects garbage."""
    gc.collect()
    return index


def test_a_worker_does_not_end_what_its_parent_has_left_to_the_collector(tmp_path):
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


FORKS = """
import os, sys
import samplerkit as sk
loader = sk.Loader(range(400), sk.SequentialSampler(), batch_size=4, num_workers=2, collate_fn=list)
batches = iter(loader)
received = [*next(batches)]
if os.fork() == 0:
    sys.exit()
os.wait()
print(received + [id for batch in batches for id in batch] == [*range(400)])
"""


def test_the_exit_of_a_process_that_the_loop_has_forked_ends_no_worker_of_it():
    command = [sys.executable, "-c", FORKS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    # At the exit of the other process multiprocessing says on stderr that it joins only its own.
    assert done.stdout == "True\n", done.stderr


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


def test_a_process_that_is_forked_as_a_thread_makes_a_request_reads_all():
    command = [sys.executable, "-c", HELD]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "20\n", done.stderr
