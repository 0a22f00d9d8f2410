"""What each rank of the demo trains on, and how; and the processes of the job."""

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

# Before the process group exists: DDP imports this module, and ten default arguments in it take hold of the
# group if there is one. Then destroying it does not end gloo's threads, and one that lets go of a tensor
# while Python ends aborts the process (one run in ten or so).
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
"""Passes over the training part: few enough that a weak shuffle shows."""

RESUMED_EPOCHS, GLOBAL_BATCH, SAVED_EVERY = 4, 48, 5
"""Of `--resume`: the passes, samples of all ranks in a step, and steps from one checkpoint to the next."""

CHECKPOINT, CONFIG = "checkpoint.pt", "train.yaml"

# PARTIAL mixes two files' worth at a time, and there are more samples than `adaptive_threshold`.
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
"""Every fifth sample is held out of training."""


def write_digits(folder: Path) -> list[int]:
    """Writes scikit-learn's handwritten digits as the data files of the demo.

    The training part is sorted by label, as data often is that was collected class by class: the hard case
    for a shuffle which does not mix files.

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
    """Writes the config, except where there is one already: it may have been edited."""
    path = folder / CONFIG
    if not path.exists():
        path.write_text(_CONFIG.format(sizes=", ".join(map(str, sizes))), encoding="utf-8")
    return path


def ledger_path(folder: Path, run: str, rank: int) -> Path:
    """Names the ledger of a rank: JSON lines of what its training loop received."""
    return folder / f"{run}.{rank}.jsonl"


def ledger_lines(folder: Path, run: str, rank: int) -> list[dict[str, Any]]:
    """Reads a ledger."""
    text = ledger_path(folder, run, rank).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


LEARNING_RATE = 0.005

ReportEvent = Callable[[dict[str, Any]], None]


class Trainee:
    """The small network that reads digits of 8 by 8 pixels, with its optimizer and its loader.

    Args:
        folder: where the data and the config are.
        device: where the network is.
        mode: the shuffle mode, in place of the config's.
        seed: of the order and of the network.
        arguments: of the loader, in place of the config's.
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
        """Trains from where the loader is; yields after each step, which is a line of the ledger."""
        with self.loader, ledger.open("w", encoding="utf-8") as file:
            while self.loader.epoch < epochs:
                before = self._dataset.stats.files_read
                for batch in self.loader:  # on the device already, while the step before trained
                    epoch, step = self.loader.epoch, self.loader.step - 1
                    line = {"epoch": epoch, "ids": batch["ids"].tolist()}
                    line["pads"] = self.loader.pads(step).tolist()
                    line["files_opened"] = self._dataset.stats.files_read - before
                    before = self._dataset.stats.files_read
                    print(json.dumps(line), file=file, flush=True)
                    self._learn(batch, LEARNING_RATE * (1 - (epoch + step / len(self.loader)) / epochs))
                    yield

    def _learn(self, batch: dict[str, torch.Tensor], rate: float) -> None:
        """Does one step; pixels are the numbers 0 to 16."""
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.zero_grad()
        answers = self._model(batch["pixels"].float() / 16)
        nn.functional.cross_entropy(answers, batch["labels"]).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    @torch.no_grad()
    def accuracy(self) -> float:
        """Gives the share of right answers on the test set, in percent."""
        with np.load(self._folder / "data" / "test.npz", allow_pickle=False) as file:
            pixels, labels = (torch.from_numpy(file[name]) for name in ("pixels", "labels"))
        answers = self._network((pixels.float() / 16).to(self._device)).argmax(dim=1).cpu()
        return 100 * float((answers == labels).float().mean())

    def save(self, step: int) -> None:
        """Replaces the checkpoint at once, so that a crash leaves the old one or the new one."""
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
    """Trains in the order of each shuffle mode, with each seed."""
    for mode, seed in product(MODES, range(seeds)):
        trainee = Trainee(folder, device, mode, seed)
        ledger = ledger_path(ledgers, f"{mode.value}-{seed}", torch.distributed.get_rank())
        for _ in trainee.steps(ledger, EPOCHS):
            pass
        torch.distributed.barrier()  # all have written
        report({"mode": mode.value, "accuracy": trainee.accuracy(), "device": str(device)})


def train_and_save(report: ReportEvent, device: torch.device, folder: Path, run: str, killed_in: int) -> None:
    """Trains from the last checkpoint on; in step `killed_in`, or never if 0, the last rank kills itself."""
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
    """The job that a command launched failed; `report` is what the job said of it."""

    def __init__(self, place: str, problem: str, *, report: str) -> None:
        super().__init__(place, problem)
        self.report = report


def run_job(num_ranks: int, scratch: Path, train: Callable[..., None], *arguments: Any) -> Generator[Any]:
    """Runs a function in each rank, and yields what rank 0 reports, as it reports it.

    Closing the iterator ends the job, so close it (`contextlib.closing`) where an exception may come between.

    Args:
        num_ranks: processes of the job.
        scratch: for logs, and the file by which the ranks meet; the caller deletes it.
        train: takes a function that reports, the device, and the arguments.
        arguments: of it.

    Raises:
        LaunchError: a rank failed.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    events = get_context("spawn").SimpleQueue()
    # That it ends the other ranks when one fails is no news.
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
    """Does the work of one rank."""
    # What libraries print is not to stand in what the command prints.
    log = os.open(scratch / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(log, stream)
    tempfile.tempdir = str(scratch)  # what libraries leave goes with the rest
    torch.set_num_threads(1)  # the ranks share the machine
    gpus = torch.cuda.device_count()
    device = torch.device("cuda", rank % gpus) if gpus else torch.device("cpu")
    # On loopback, which works without a network and a host name that resolves.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if os.uname().sysname == "Darwin" else "lo"
    meeting = f"file://{scratch / 'store'}"
    torch.distributed.init_process_group("gloo", meeting, rank=rank, world_size=num_ranks)
    train(events.put if rank == 0 else lambda _: None, device, *arguments)
    torch.distributed.destroy_process_group()
