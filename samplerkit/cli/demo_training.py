"""The demo's data, the training of each rank, and the processes of the job."""

from __future__ import annotations

import json
import logging
import os
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed

# Before the process group exists: DDP imports this module, and ten default arguments in it keep a reference
# to the group if there is one. Destroying the group then does not end gloo's threads, and a thread that frees
# a tensor while Python exits aborts the process (in about one run of ten).
import torch.distributed.nn.functional
from torch import nn
from torch.multiprocessing.spawn import ProcessException, start_processes
from torch.nn.parallel import DistributedDataParallel

from samplerkit.config.config import load_config
from samplerkit.errors import ConfigError, SamplerkitError
from samplerkit.order.modes import Shuffle
from samplerkit.storage.atomic import atomic
from samplerkit.storage.files.dataset import FileDataset
from samplerkit.storage.files.packages import extra

MODES = tuple(map(Shuffle, ("false", "infile", "files", "partial", "adaptive", "global")))
"""The modes of the demo, from storage order to the full shuffle."""

EPOCHS = 10
"""Passes over the training part: few enough for a weak shuffle to show."""

RESUMED_EPOCHS, GLOBAL_BATCH, SAVED_EVERY = 4, 48, 5
"""For `--resume`: passes, samples of all ranks per step, and steps between checkpoints."""

CHECKPOINT, CONFIG = "checkpoint.pt", "train.yaml"

# PARTIAL mixes blocks of about two files, and there are more samples than `adaptive_threshold`.
_CONFIG = """\
dataset:
  kind: files
  files: data/digits-*.npz
  reader: npz
  lengths: [{sizes}]
  max_files: 3
sampler:
  kind: distributed
  shuffle: adaptive
  num_shards: auto
  shard_id: auto
  partial_size: 180
  adaptive_threshold: 1000
  seed: 0
loader:
  batch_size: 32
"""

NUM_FILES = 16
"""Files of the training part: about 90 samples each, so nearly all files hold one digit only."""

TEST_EVERY = 5
"""Every fifth sample is held out for the test set."""


def write_digits(folder: Path) -> list[int]:
    """Writes scikit-learn's handwritten digits as the data files of the demo.

    The training part is sorted by label, as data collected class by class often is: the hard case for a
    shuffle that does not mix files.

    Returns:
        The number of samples in each training file.

    Raises:
        DatasetError: scikit-learn is not installed.
    """
    digits = extra("sklearn.datasets", "demo").load_digits()
    folder.mkdir(parents=True, exist_ok=True)
    pixels, labels = digits.data.astype(np.uint8), digits.target.astype(np.int64)
    held_out = np.arange(labels.size) % TEST_EVERY == 0
    np.savez(folder / "test.npz", pixels=pixels[held_out], labels=labels[held_out])
    pixels, labels = pixels[~held_out], labels[~held_out]
    parts = np.array_split(np.argsort(labels, kind="stable"), NUM_FILES)
    ids = np.array_split(np.arange(labels.size), NUM_FILES)
    for number, part in enumerate(parts):
        path = folder / f"digits-{number:02}.npz"
        np.savez(path, pixels=pixels[part], labels=labels[part], ids=ids[number])
    return [part.size for part in parts]


def write_config(folder: Path, sizes: list[int]) -> Path:
    """Writes the config, unless one exists already: it may have been edited."""
    path = folder / CONFIG
    if not path.exists():
        path.write_text(_CONFIG.format(sizes=", ".join(map(str, sizes))), encoding="utf-8")
    return path


def ledger_path(folder: Path, run: str, rank: int) -> Path:
    """Returns the path of a rank's ledger: JSON lines with the batches that its training loop received."""
    return folder / f"{run}.{rank}.jsonl"


def ledger_lines(folder: Path, run: str, rank: int) -> list[dict[str, Any]]:
    """Reads a ledger."""
    text = ledger_path(folder, run, rank).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


LEARNING_RATE = 0.005

ReportEvent = Callable[[dict[str, Any]], None]


class Trainee:
    """A small network that classifies digits of 8 by 8 pixels, with its optimizer and its loader.

    Args:
        folder: the folder of the data and the config.
        device: the device of the network.
        mode: the shuffle mode, in place of the config's.
        seed: the seed of the order and of the network.
        arguments: arguments of the loader, in place of the config's.
    """

    def __init__(
        self, folder: Path, device: torch.device, mode: Shuffle, seed: int, **arguments: Any
    ) -> None:
        torch.manual_seed(seed)
        self._folder, self._device = folder, device
        layers = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)]
        self._network = nn.Sequential(*layers).to(device)
        self._model = DistributedDataParallel(self._network)
        self._optimizer = torch.optim.Adam(self._model.parameters())
        written = load_config(folder / CONFIG).to_dict()
        written["sampler"] |= {"shuffle": mode.value, "seed": seed}
        written["loader"] |= arguments
        config = load_config(written)
        if not isinstance(config.dataset, FileDataset):
            raise ConfigError("dataset", "must be of kind files", config.dataset, hint=f"see {CONFIG}")
        self._dataset = config.dataset
        self.loader: Any = config.make_loader(device=device)
        self._saved: dict[str, Any] = {
            "network": self._network,
            "optimizer": self._optimizer,
            "loader": self.loader,
        }

    def steps(self, ledger: Path, epochs: int) -> Iterator[None]:
        """Trains from the loader's position; writes a line of the ledger and yields after each step."""
        with self.loader, ledger.open("w", encoding="utf-8") as file:
            while self.loader.epoch < epochs:
                before = self._dataset.stats.files_read
                for batch in self.loader:  # copied to the device during the previous step
                    epoch, step = self.loader.epoch, self.loader.step - 1
                    line = {"epoch": epoch, "ids": batch["ids"].tolist()}
                    line["pads"] = self.loader.pads(step).tolist()
                    line["files_opened"] = self._dataset.stats.files_read - before
                    before = self._dataset.stats.files_read
                    print(json.dumps(line), file=file, flush=True)
                    self._learn(batch, LEARNING_RATE * (1 - (epoch + step / len(self.loader)) / epochs))
                    yield

    def _learn(self, batch: dict[str, torch.Tensor], rate: float) -> None:
        """Runs one training step; pixels are numbers from 0 to 16."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.zero_grad()
        answers = self._model(batch["pixels"].float() / 16)
        nn.functional.cross_entropy(answers, batch["labels"]).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    @torch.no_grad()
    def accuracy(self) -> float:
        """Returns the accuracy on the test set, in percent."""
        with np.load(self._folder / "data" / "test.npz", allow_pickle=False) as file:
            pixels, labels = (torch.from_numpy(file[name]) for name in ("pixels", "labels"))
        answers = self._network((pixels.float() / 16).to(self._device)).argmax(dim=1).cpu()
        return 100 * float((answers == labels).float().mean())

    def save(self, step: int) -> None:
        """Replaces the checkpoint atomically: after a crash it is the old one or the new one."""
        if torch.distributed.get_rank() == 0:
            states = {name: part.state_dict() for name, part in self._saved.items()}
            with atomic(self._folder / CHECKPOINT) as file:
                torch.save({**states, "step": step}, file)
        torch.distributed.barrier()

    def load(self) -> None:
        """Resumes from the checkpoint, if there is one."""
        if (self._folder / CHECKPOINT).exists():
            state = torch.load(self._folder / CHECKPOINT, weights_only=True, map_location=self._device)
            for name, part in self._saved.items():
                part.load_state_dict(state[name])


def train_modes(report: ReportEvent, device: torch.device, folder: Path, ledgers: Path, seeds: int) -> None:
    """Trains with each shuffle mode and each seed."""
    for mode, seed in product(MODES, range(seeds)):
        trainee = Trainee(folder, device, mode, seed)
        ledger = ledger_path(ledgers, f"{mode.value}-{seed}", torch.distributed.get_rank())
        for _ in trainee.steps(ledger, EPOCHS):
            pass
        torch.distributed.barrier()  # all ranks have written their ledgers
        report({"mode": mode.value, "accuracy": trainee.accuracy(), "device": str(device)})


def train_and_save(report: ReportEvent, device: torch.device, folder: Path, run: str, killed_in: int) -> None:
    """Trains from the last checkpoint; the last rank kills itself in step `killed_in`, or never if 0."""
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    trainee = Trainee(folder, device, Shuffle.PARTIAL, 7, batch_size=GLOBAL_BATCH // ranks)
    trainee.load()
    for step, _ in enumerate(trainee.steps(ledger_path(folder, run, rank), RESUMED_EPOCHS), start=1):
        if step % SAVED_EVERY == 0:
            trainee.save(step)
        if step == killed_in and rank == ranks - 1:
            os.kill(os.getpid(), signal.SIGKILL)
    report({"accuracy": trainee.accuracy()})


_LOG_LINES = 30


class LaunchError(SamplerkitError, RuntimeError):
    """A job that a command launched has failed; `report` is the end of its log."""

    def __init__(self, place: str, problem: str, *, report: str) -> None:
        super().__init__(place, problem)
        self.report = report


def run_job(num_ranks: int, scratch: Path, train: Callable[..., None], *arguments: Any) -> Generator[Any]:
    """Runs a function in each rank, and yields the reports of rank 0 as they arrive.

    Closing the iterator ends the job, so close it (`contextlib.closing`) where an exception may interrupt it.

    Args:
        num_ranks: processes of the job.
        scratch: a folder for logs and for the file of the rendezvous; the caller deletes it.
        train: the function; takes a function that sends a report, the device, and the arguments.
        arguments: further arguments of `train`.

    Raises:
        LaunchError: a rank failed.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    events = get_context("spawn").SimpleQueue()
    # torch logs that it ends the other ranks when one fails, which is expected.
    logging.getLogger(ProcessException.__module__).setLevel(logging.ERROR)
    work = (events, num_ranks, scratch, train, arguments)
    job: Any = start_processes(_rank, work, num_ranks, join=False)  # type: ignore[no-untyped-call]  # torch's
    try:
        is_done = False
        while not is_done:
            is_done = job.join(0.1)
            while not events.empty():
                yield events.get()
    except ProcessException as error:
        log = (scratch / f"rank-{error.error_index}.log").read_text(encoding="utf-8", errors="replace")
        report = "\n".join([*log.splitlines()[-_LOG_LINES:], error.msg])
        problem = "failed; its traceback is above"
        raise LaunchError(f"rank {error.error_index}", problem, report=report) from None
    finally:
        for process, file in zip(job.processes, job.error_files, strict=True):
            process.kill()
            process.join()
            Path(file).unlink(missing_ok=True)


def _rank(
    rank: int,
    events: Any,
    num_ranks: int,
    scratch: Path,
    train: Callable[..., None],
    arguments: tuple[Any, ...],
) -> None:
    """Runs one rank."""
    # Output of libraries must not be mixed with the output of the command.
    log = os.open(scratch / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(log, stream)
    tempfile.tempdir = str(scratch)  # temporary files of libraries are deleted with the rest
    torch.set_num_threads(1)  # the ranks share the machine
    gpus = torch.cuda.device_count()
    device = torch.device("cuda", rank % gpus) if gpus else torch.device("cpu")
    # The loopback interface needs no network, and no host name that resolves.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if os.uname().sysname == "Darwin" else "lo"
    rendezvous = f"file://{scratch / 'store'}"
    torch.distributed.init_process_group("gloo", rendezvous, rank=rank, world_size=num_ranks)
    train(events.put if rank == 0 else lambda _: None, device, *arguments)
    torch.distributed.destroy_process_group()
