"""The demo's data, the training of each rank, and the processes of the job."""

import json
import logging
import os
import signal
import tempfile
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

from samplerkit.cli.printing import progress
from samplerkit.config.config import load_config
from samplerkit.storage.atomic import atomic
from samplerkit.storage.files.packages import extra

MODES = ("false", "infile", "files", "partial", "adaptive", "global")
"""The modes of the demo, from storage order to the full shuffle."""

SAVED_EVERY = 5
"""Steps between checkpoints."""

CONFIG = "train.yaml"

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


def ledger_path(folder: Path, shuffle: str, seed: int, rank: int) -> Path:
    """Returns the path of a rank's ledger: JSON lines with the batches that its training loop received."""
    return folder / f"{shuffle}-{seed}.{rank}.jsonl"


def ledger_lines(folder: Path, shuffle: str, seed: int, rank: int) -> list[dict[str, Any]]:
    """Reads a ledger."""
    text = ledger_path(folder, shuffle, seed, rank).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


LEARNING_RATE = 0.005


def make_network() -> nn.Sequential:
    """Makes a small network that classifies digits of 8 by 8 pixels."""
    layers = [nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(*layers)


def train(
    folder: Path,
    ledgers: Path,
    device: torch.device,
    *,
    shuffle: str,
    seed: int,
    epochs: int,
    checkpoint: Path | None = None,
    killed_in: int = 0,
    **loader_options: Any,
) -> float:
    """Trains the network.

    Args:
        folder: the folder of the data and the config.
        ledgers: the folder in which this rank logs the samples of each step.
        device: the device of the network.
        shuffle: the shuffle mode, in place of the config's.
        seed: the seed of the order and of the network.
        epochs: the number of epochs.
        checkpoint: the file in which the training is saved, and from which it resumes if it exists.
        killed_in: the step in which the last rank kills itself; 0 for none.
        loader_options: arguments of the loader, in place of the config's.

    Returns:
        The accuracy on the test set, in percent.
    """
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(seed)
    network = make_network().to(device)
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    written = load_config(folder / CONFIG).to_dict()
    written["sampler"] |= {"shuffle": shuffle, "seed": seed}
    written["loader"] |= loader_options
    config = load_config(written)
    loader: Any = config.make_loader(device=device)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0, epochs * len(loader))
    parts = {"network": network, "optimizer": optimizer, "schedule": schedule, "loader": loader}
    if checkpoint is not None and checkpoint.exists():
        saved = torch.load(checkpoint, weights_only=True, map_location=device)
        for name, part in parts.items():
            part.load_state_dict(saved[name])
    step = 0
    with loader, ledger_path(ledgers, shuffle, seed, rank).open("w", encoding="utf-8") as ledger:
        while loader.epoch < epochs:
            for batch in loader:  # copied to the device during the previous step
                line = {"epoch": loader.epoch, "ids": batch["ids"].tolist()}
                line["pads"] = loader.pads(loader.step - 1).tolist()
                line["files_read"] = config.dataset.stats.files_read
                print(json.dumps(line), file=ledger, flush=True)
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(scaled(batch["pixels"])), batch["labels"])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                step += 1
                if checkpoint is not None and step % SAVED_EVERY == 0:
                    states = {name: part.state_dict() for name, part in parts.items()}
                    save({**states, "step": step}, checkpoint)
                if step == killed_in and rank == ranks - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
    return accuracy(network, folder / "data" / "test.npz", device)


@torch.no_grad()
def accuracy(network: nn.Module, test_set: Path, device: torch.device) -> float:
    """Returns the accuracy on the test set, in percent."""
    with np.load(test_set, allow_pickle=False) as file:
        pixels, labels = (torch.from_numpy(file[name]).to(device) for name in ("pixels", "labels"))
    return 100 * float((network(scaled(pixels)).argmax(dim=1) == labels).float().mean())


def scaled(pixels: torch.Tensor) -> torch.Tensor:
    """Scales pixels, which are numbers from 0 to 16, to [0, 1]."""
    return pixels.float() / 16


def save(states: dict[str, Any], checkpoint: Path) -> None:
    """Replaces the checkpoint atomically: after a crash it is the old one or the new one."""
    if torch.distributed.get_rank() == 0:
        with atomic(checkpoint) as file:
            torch.save(states, file)
    torch.distributed.barrier()


_ACCURACIES = "accuracies.json"


class LaunchError(SystemExit):
    """A rank of a launched job failed; it ends the command, which then prints the rank's log."""


def device_of(rank: int) -> torch.device:
    """Returns the device of a rank."""
    gpus = torch.cuda.device_count()
    return torch.device("cuda", rank % gpus) if gpus else torch.device("cpu")


def launch(num_ranks: int, folder: Path, scratch: Path, trainings: list[dict[str, Any]]) -> list[float]:
    """Runs trainings one after the other, each in all ranks, and returns the accuracies.

    Args:
        num_ranks: processes of the job.
        folder: the folder of the data and the config.
        scratch: a folder for ledgers, logs and the file of the rendezvous; the caller deletes it.
        trainings: for each training the keyword arguments of `train`.

    Raises:
        LaunchError: a rank failed.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    # torch logs that it ends the other ranks when one fails, which is expected.
    logging.getLogger(ProcessException.__module__).setLevel(logging.ERROR)
    work = (num_ranks, folder, scratch, trainings)
    job: Any = start_processes(_rank, work, num_ranks, join=False)  # type: ignore[no-untyped-call]  # torch's
    try:
        with progress() as report:
            while not job.join(0.1):
                report("training", len([*scratch.glob("*.0.jsonl")]), len(trainings))
    except ProcessException as error:
        rank = error.error_index
        log = (scratch / f"rank-{rank}.log").read_text(encoding="utf-8", errors="replace")
        end = f"samplerkit: rank {rank}: failed; its traceback is above"
        raise LaunchError(f"{log}{error.msg.rstrip()}\n\n{end}") from None
    finally:
        for process, file in zip(job.processes, job.error_files, strict=True):
            process.kill()
            process.join()
            Path(file).unlink(missing_ok=True)
    accuracies: list[float] = json.loads((scratch / _ACCURACIES).read_text(encoding="utf-8"))
    return accuracies


def _rank(rank: int, num_ranks: int, folder: Path, scratch: Path, trainings: list[dict[str, Any]]) -> None:
    """Runs one rank."""
    # Output of libraries must not be mixed with the output of the command.
    log = os.open(scratch / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(log, stream)
    tempfile.tempdir = str(scratch)  # temporary files of libraries are deleted with the rest
    torch.set_num_threads(1)  # the ranks share the machine
    # The loopback interface needs no network, and no host name that resolves.
    os.environ["GLOO_SOCKET_IFNAME"] = "lo0" if os.uname().sysname == "Darwin" else "lo"
    rendezvous = f"file://{scratch / 'store'}"
    torch.distributed.init_process_group("gloo", rendezvous, rank=rank, world_size=num_ranks)
    accuracies = [train(folder, scratch, device_of(rank), **training) for training in trainings]
    if rank == 0:
        (scratch / _ACCURACIES).write_text(json.dumps(accuracies), encoding="utf-8")
    torch.distributed.destroy_process_group()
