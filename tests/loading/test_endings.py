"""However an iteration ends, its workers end within two seconds, nothing remains, and the state is right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import samplerkit as sk
from tests.jobs import ended
from tests.load_free_timer import LoadFreeTimer
from tests.loading.ending_job import BATCH_SIZE, SIZE
from tests.loading.worker_kinds import THREADS
from tests.programs import Program
from tests.waiting import alive

SECONDS = 2
"""Of their own. torch takes up to five by itself to notice that the parent is gone."""

PATIENCE = 60
"""After this many seconds of the clock they count as hanging."""

SIGNALS = {
    "SIGINT": signal.SIGINT,
    "SIGTERM": signal.SIGTERM,
    "SIGTERM with a handler": signal.SIGTERM,
    "SIGKILL": signal.SIGKILL,
}
# The signals go to the main process alone, or to its whole group, as Ctrl-C and Slurm send them.
CASES = [
    ("SIGKILL", {"persistent_workers": True}, os.kill),
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
        assert end in {"SIGTERM", "SIGKILL"}, errors.read_text()


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
