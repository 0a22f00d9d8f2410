"""However an iteration ends, its workers end within two seconds, nothing remains, and the state is right."""

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

import samplerkit as sk
from tests.jobs import ended
from tests.loading.ending_job import BATCH_SIZE, SIZE
from tests.loading.worker_kinds import THREADS
from tests.numbers import Made
from tests.programs import Program
from tests.waiting import LoadFreeTimer, alive

SECONDS = 2
"""Of their own. torch takes up to five by itself to notice that the parent is gone."""

PATIENCE = 60
"""After this many seconds of the clock they count as hanging."""

SIGNALS = {
    "SIGINT": signal.SIGINT,
    "SIGTERM": signal.SIGTERM,
    "SIGTERM with a handler": signal.SIGTERM,
    "SIGKILL": signal.SIGKILL,
    "SIGKILL of the parent of a fork": signal.SIGKILL,
}
# The signals go to the main process alone, or to its whole group, as Ctrl-C and Slurm send them.
CASES = [
    ("SIGKILL", {"persistent_workers": True}, os.kill),
    ("SIGKILL of the parent of a fork", {}, os.kill),
    ("exception", {"run_ahead": True}, None),
    ("the end of the script", {"persistent_workers": True}, None),
    ("SIGINT", {}, os.killpg),
    ("SIGINT", THREADS, os.killpg),
    ("SIGINT", {"persistent_workers": True}, os.kill),
    ("SIGTERM", {}, os.kill),
    ("SIGTERM with a handler", {}, os.killpg),
]


def shared_memory_of(pids):
    """What torch's processes have left in shared memory: its names are torch_PID_RANDOM_NUMBER."""
    names = [path.name for path in Path("/dev/shm").iterdir()]  # noqa: S108  # only listed
    return [name for name in names for pid in pids if name.startswith(f"torch_{pid}_")]


def test_own_seconds_include_sleep():
    with LoadFreeTimer() as timer:
        time.sleep(0.3)
    assert timer.seconds > 0.2


@pytest.mark.parametrize(("end", "options", "send"), CASES, ids=str)
def test_workers_are_gone_in_two_seconds_and_the_state_is_what_was_received(
    tmp_path, short_folder, end, options, send
):
    """Workers without a process of their own are gone when the loop prints its report."""
    errors = tmp_path / "errors"
    with (
        errors.open("w") as written,
        Program(
            ["-m", "tests.loading.ending_job", end, json.dumps(options)],
            env={**os.environ, "TMPDIR": short_folder},
            stdout=subprocess.PIPE,
            stderr=written,
        ) as process,
    ):
        try:
            workers = json.loads(process.stdout.readline())
            assert len(workers) == (0 if "workers" in options else 2)
            assert process.stdout.readline() == "read\n"
            start = time.monotonic()
            with LoadFreeTimer([process.pid, *workers]) as timer:
                if send is not None:
                    send(process.pid, SIGNALS[end])
                printed = "" if workers else process.stdout.readline()
                while alive(workers) and time.monotonic() < start + PATIENCE:
                    time.sleep(0.01)
            print(f"{end}: gone after {timer.seconds:.2f} s, {time.monotonic() - start:.2f} of the clock")
            assert not alive(workers)
            assert timer.seconds < SECONDS
            process.wait(PATIENCE)  # the interpreter itself may take seconds to end
            printed += process.stdout.read()
        finally:
            process.kill()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it has forked
    assert shared_memory_of([process.pid, *workers]) == []
    assert not any(Path(short_folder).iterdir())
    if printed:
        received, state = json.loads(printed.splitlines()[-1])
        assert received == list(range(len(received)))
        assert state["position"] == len(received) > 0
        resumed = sk.Loader(range(SIZE), sk.SequentialSampler(), batch_size=BATCH_SIZE)
        resumed.load_state_dict(state)
        assert next(iter(resumed)).tolist() == [len(received), len(received) + 1]
    else:
        assert end.startswith(("SIGTERM", "SIGKILL")), errors.read_text()


CLOSED_BY_GARBAGE = """
import samplerkit as sk
class Closes:
    def __init__(self, loader):
        self.loader = loader
    def __del__(self):
        self.loader.close()
        print("closed", flush=True)
loader = sk.Loader(range(40), batch_size=2, num_workers=1, persistent_workers=True)
batches = iter(loader)
next(batches)
kept = Closes(loader)
kept.itself = kept  # garbage that is found when the interpreter ends
"""


def test_a_loader_may_be_closed_by_an_object_that_is_freed_at_interpreter_exit():
    code, printed, errors = ended("-c", CLOSED_BY_GARBAGE, load_free_seconds=20)
    assert (code, printed, errors) == (0, "closed\n", "")


CLOSED_AT_EXIT = """
import atexit, time, samplerkit as sk
class Closing:
    is_closed = False
    def __init__(self):
        atexit.register(self.close)
    def close(self):
        self.is_closed = True
        time.sleep(0.2)
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        if self.is_closed:
            print("read", index, flush=True)
        time.sleep(0.001)
        return index
batches = iter(sk.Loader(Closing(), batch_size=100, num_workers=2, workers="threads"))
next(batches)
"""


def test_a_dataset_that_is_closed_at_the_exit_is_not_read_any_more():
    code, printed, errors = ended("-c", CLOSED_AT_EXIT, load_free_seconds=20)
    assert (code, printed, errors) == (0, "", "")


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
