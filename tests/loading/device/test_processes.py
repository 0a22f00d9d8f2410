"""Whole processes: exit, signals and forks while the loading thread is at work."""

import json
import os
import signal
import subprocess
import time

import pytest

from tests.jobs import ended
from tests.programs import Program
from tests.waiting import LoadFreeTimer

PREPARED = """
import os, signal, sys, threading, time, warnings
import torch
warnings.filterwarnings("ignore", "This process", DeprecationWarning)  # of a fork beside threads, by 3.12
from samplerkit.loading.device.loader import DeviceLoader

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.full((8,), index)

def loader(workers=0, **options):
    batches = torch.utils.data.DataLoader(Slow(), batch_size=2, num_workers=workers)
    return DeviceLoader(batches, "cpu", **options)
"""

SECONDS = 120
"""More than any of these takes by far."""


ABORTED = "terminate called without an active exception"

ENDS = {
    "a loop that is left": "kept = loader()\nfor batch in kept:\n    break",
    "an iterator that is kept": "kept = iter(loader())\nnext(kept)",
    "an iterator in a cycle": "kept = [iter(loader())]\nnext(kept[0])\nkept.append(kept)",
    "run ahead": "kept = iter(loader(run_ahead=True))\nnext(kept)",
    "workers": "kept = iter(loader(workers=2))\nnext(kept)",
    "sys.exit": "kept = iter(loader())\nnext(kept)\nprint('done')\nsys.exit(0)",
    "a thread that is never started": "kept = iter(loader())",
    "two loaders": "kept = [iter(loader()), iter(loader())]\nfor one in kept: next(one)",
}


FORKS = {
    "a child begins an iteration of its own, and closes without waiting": """
running = loader()
iterator = iter(running)
next(iterator)
for _ in range(20):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            next(iterator)
        except Exception as error:
            assert "belongs to the process that began it" in str(error), error
        else:
            os._exit(3)
        assert next(iter(running))[:, 0].tolist() == [0, 1]
        running.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
assert next(iterator)[:, 0].tolist() == [2, 3]
""",
    "a child ends through the interpreter's exit": """
iterator = iter(loader(run_ahead=True))
next(iterator)
child = os.fork()
if child == 0:
    signal.alarm(20)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
next(iterator)
""",
    "another loader forks workers while a thread loads": """
first = iter(loader())
next(first)
for _ in range(3):
    second = torch.utils.data.DataLoader(Slow(), batch_size=2, num_workers=2, multiprocessing_context="fork")
    assert next(iter(second))[:, 0].tolist() == [0, 1]
    next(first)
""",
}


IN_A_FORK = """
import json, tempfile
reports = {}
for name, code in json.loads(sys.argv[1]).items():
    printed, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    child = os.fork()
    if child == 0:
        os.dup2(printed.fileno(), 1)
        os.dup2(errors.fileno(), 2)
        exec(code)
        break  # and here its interpreter ends, as that of any program
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    texts = [os.pread(file.fileno(), 1 << 20, 0).decode() for file in (printed, errors)]
    reports[name] = [status, *texts]
else:
    print(json.dumps(reports))
"""


@pytest.fixture(scope="module")
def ends():
    """How each program ended: its code, what it printed, its errors; torch is imported once for all."""
    programs = {
        name: code if "print(" in code else f"{code}\nprint('done')"
        for name, code in {**ENDS, **FORKS}.items()
    }
    code, printed, errors = ended("-c", PREPARED + IN_A_FORK, json.dumps(programs), seconds=2 * SECONDS)
    assert (code, errors) == (0, "")
    return json.loads(printed)


@pytest.mark.parametrize("name", [*ENDS, *FORKS])
def test_the_interpreter_exits_at_once_and_quietly(ends, name):
    """Also where it was forked while a thread loads."""
    assert ends[name] == [0, "done\n", ""]


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGINT, 2), (signal.SIGTERM, 0)])
def test_a_signal_ends_a_process_that_waits_for_a_batch(number, workers, short_folder):
    code = f"""
class Stuck(Slow):
    def __getitem__(self, index):
        if index >= 4:
            time.sleep(0.5)
        return torch.zeros(1)
batches = torch.utils.data.DataLoader(Stuck(), batch_size=2, num_workers={workers})
for number, batch in enumerate(DeviceLoader(batches, "cpu")):
    print(number, flush=True)
"""
    # The sockets of torch's own workers stay where SIGTERM ends their parent.
    process = Program(
        ["-c", PREPARED + code],
        env={**os.environ, "TMPDIR": short_folder},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline() == "0\n"
    assert process.stdout.readline() == "1\n"
    time.sleep(0.2)
    with LoadFreeTimer([process.pid]) as timer:
        process.send_signal(number)
        _, errors = process.communicate(timeout=SECONDS)
    assert timer.seconds < 10
    # A thread that is in torch's C++ when Python ends may abort the process, which ends all the same.
    aborted = {-signal.SIGABRT} if ABORTED in errors else set()
    assert process.returncode in {-number, 128 + number, 1, *aborted}, errors
    if number == signal.SIGINT:
        assert errors.replace(ABORTED, "").rstrip().endswith("KeyboardInterrupt")
        assert errors.count("Traceback") == 1
