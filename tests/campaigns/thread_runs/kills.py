"""A job over threads that is killed again and again, and goes on from what it had written."""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import time
import traceback
from pathlib import Path
from typing import Any

import samplerkit as sk
from tests.waiting import wait_until

SIZE, BATCH = 96, 4
SECONDS_TO_BEGIN = 600.0


class Slow:
    """Each sample takes a moment, so that threads are at work when the end comes."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> int:
        time.sleep(0.0005)
        return index


def loader() -> sk.Loader:
    return sk.Loader(
        Slow(), sk.RandomSampler(seed=5), batch_size=BATCH, num_workers=3, workers="threads", run_ahead=True
    )


def lines_of(ledger: Path) -> list[dict[str, Any]]:
    """The batches that were written whole, each with the state after it."""
    return [json.loads(line) for line in ledger.read_bytes().split(b"\n")[:-1]]


def read_on(ledger: Path) -> None:
    """What a job does: it goes on, and writes each batch with the state after it in one piece."""
    done = lines_of(ledger)
    with ledger.open("ab", buffering=0) as written, loader() as job:
        if done:
            job.load_state_dict(done[-1]["state"])
        while True:
            for ids in job:
                line = json.dumps({"ids": ids.tolist(), "state": job.state_dict()})
                written.write(f"{line}\n".encode())


def killed_again_and_again(folder: Path, kills: int, seed: int) -> tuple[int, int, int]:
    """Starts the job and kills it, many times.

    Returns:
        The batches that were written, the samples that are lost, and those that came again.
    """
    dice, ledger = random.Random(seed), folder / "ledger"
    ledger.touch()
    for _ in range(kills):
        # A kill may end a write between two pages of the file: what it left of a line was never written.
        size = ledger.read_bytes().rfind(b"\n") + 1
        os.truncate(ledger, size)
        job = os.fork()
        if job == 0:
            # One that hangs tells where, and ends before anybody stops to wait for it.
            faulthandler.dump_traceback_later(SECONDS_TO_BEGIN / 2, exit=True)
            try:
                read_on(ledger)
            except BaseException:
                traceback.print_exc()  # nobody else would tell it
            finally:
                os._exit(1)
        try:
            # Half of them in the middle of reading, however long a busy machine takes to begin.
            if dice.random() < 0.5:
                wait_until(lambda size=size: ledger.stat().st_size > size, SECONDS_TO_BEGIN)
            time.sleep(dice.uniform(0.0, 0.08))
        finally:
            os.kill(job, signal.SIGKILL)
            os.waitpid(job, 0)
    received = [index for line in lines_of(ledger) for index in line["ids"]]
    expected: list[int] = []
    while len(expected) < len(received):
        expected += sk.RandomSampler(seed=5).order(SIZE, len(expected) // SIZE)[:].tolist()
    of_epochs = [(place // SIZE, index) for place, index in enumerate(received)]
    wanted = {(place // SIZE, index) for place, index in enumerate(expected[: len(received)])}
    return len(received) // BATCH, len(wanted - {*of_epochs}), len(of_epochs) - len({*of_epochs})
